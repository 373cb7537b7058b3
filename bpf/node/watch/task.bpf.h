/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few fields of the kernel's own structures that tell whether a process dies, and whether a thread of it
 * waits for a processor or has had one. Only their names count: the loader finds the offsets in the running
 * kernel's BTF.
 */
#pragma once

#include "bpf/compiler.h"

#include <linux/bpf.h>
/* The order of these matters: the helpers need the types. */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
  int counter;
} atomic_t;

struct signal_struct {
  atomic_t live; /* threads that have not begun to exit */
  unsigned int flags;
};

struct sched_entity {
  __u64 sum_exec_runtime; /* ns on a processor; brought up to date at least at every tick there */
};

struct task_struct {
  unsigned int __state; /* since 5.14; 0: it runs, or would */
  struct sched_entity se;
  __u32 tgid;
  __u64 start_boottime; /* since 5.5 */
  struct task_struct *group_leader;
  struct signal_struct *signal;
};

struct sigaction___hr { /* the suffix is ignored; <asm/signal.h> has one of its own */
  void *sa_handler;
};

struct k_sigaction {
  struct sigaction___hr sa;
};

#pragma clang attribute pop

/* include/linux/sched.h: on its way to a run queue. */
#define HR_TASK_WAKING 0x00000200u

/* include/linux/sched/signal.h: the same since 2.6. */
#define HR_SIGNAL_GROUP_EXIT 0x00000004u
#define HR_SIGNAL_UNKILLABLE 0x00000040u
