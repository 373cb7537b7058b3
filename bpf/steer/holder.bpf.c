// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HOLDER: never attached; the process runs it by BPF_PROG_TEST_RUN, in its own context. Arguments: the number of one of
 * its sockets, and what is wanted of the program that the kernel runs for the socket's reuseport group. No system call
 * returns it, and every process that may open a socket of the group may replace its program.
 *   HR_STEER_ASK_ID: its id; 0 without one.
 *   HR_STEER_ASK_LENGTH: of a classic filter, its instructions; else 0.
 *   HR_STEER_ASK_FIRST + 2 i, + 1: the two words of instruction i of a classic filter.
 */
#include "bpf/abi/steer_abi.h"

#include <linux/bpf.h>
/* The order of these matters: the helpers need the types. */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <linux/filter.h>

/* Only the names count: the loader finds the offsets in the running kernel's BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_prog_aux {
  __u32 id;
};
struct sock_fprog_kern {
  __u16 len;
  struct sock_filter *filter;
};
struct bpf_prog {
  struct bpf_prog_aux *aux;
  struct sock_fprog_kern *orig_prog; /* a classic filter as it was attached */
};
struct sock_reuseport {
  struct bpf_prog *prog;
};
struct sock {
  struct sock_reuseport *sk_reuseport_cb;
};
struct socket {
  struct sock *sk;
};
struct file {
  void *private_data;
};
struct fdtable {
  unsigned int max_fds;
  struct file **fd;
};
struct files_struct {
  struct fdtable *fdt;
};
struct task_struct {
  struct files_struct *files;
};

#pragma clang attribute pop

HR_INLINE __u32 hr_steer_classic(struct bpf_prog *program, __u64 asked) {
  const __u32 length = BPF_CORE_READ(program, orig_prog, len);
  const __u32 *words = (const __u32 *)BPF_CORE_READ(program, orig_prog, filter);
  __u32 word = 0;

  if (asked == HR_STEER_ASK_LENGTH) return length;
  if (asked - HR_STEER_ASK_FIRST >= 2 * (__u64)length) return 0;
  bpf_probe_read_kernel(&word, sizeof(word), words + (asked - HR_STEER_ASK_FIRST));
  return word;
}

SEC("raw_tp")
int hr_steer_program_of(struct bpf_raw_tracepoint_args *context) {
  struct task_struct *task = (struct task_struct *)bpf_get_current_task();
  struct fdtable *table = BPF_CORE_READ(task, files, fdt);
  struct file **files = BPF_CORE_READ(table, fd);
  const __u64 number = context->args[0], asked = context->args[1];
  struct file *file = NULL;
  struct socket *socket;
  struct bpf_prog *program;
  __u32 id;

  if (number >= BPF_CORE_READ(table, max_fds)) return 0;
  if (bpf_probe_read_kernel(&file, sizeof(file), files + number) || !file) return 0;
  socket = BPF_CORE_READ(file, private_data); /* of a socket's file; the caller has seen that it is one */
  program = BPF_CORE_READ(socket, sk, sk_reuseport_cb, prog);
  if (!program) return 0;
  id = BPF_CORE_READ(program, aux, id);
  if (asked != HR_STEER_ASK_ID) return id ? 0 : hr_steer_classic(program, asked);
  return id ? id : HR_STEER_CLASSIC_PROGRAM;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
