// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * WATCHDOG: raw tracepoints that note, while kill(2) is still under way, that a node's process dies: a fatal
 * signal to the group, a fatal signal that a thread takes, or the exit of its last thread. The kernel's own
 * words are taken for it (SIGNAL_GROUP_EXIT, the count of live threads), so that handled, blocked and ignored
 * signals, a stop, an exec and the exit of single threads are no death. What follows from a death is the node's
 * clock's business (node_clock.bpf.c).
 */
#include "bpf/node/watch/task.bpf.h"
#include "bpf/node/watch/watch_maps.bpf.h"

#include <asm/signal.h>

HR_INLINE struct hr_watch *hr_the_watch(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&node_watch, &zero);
}

/* The watched process's element if `task` is one of its threads. The number is compared first: it is cheapest.
 */
HR_INLINE struct hr_watch *hr_watched(struct task_struct *task) {
  struct hr_watch *watch = hr_the_watch();

  if (!watch || !watch->incarnation || BPF_CORE_READ(task, tgid) != watch->tgid) return 0;
  if (BPF_CORE_READ(task, group_leader, start_boottime) != watch->started_ns) return 0;
  return watch;
}

HR_INLINE void hr_watch_dies(struct hr_watch *watch, enum hr_watch_cause cause, __u32 signal) {
  if (__sync_val_compare_and_swap(&watch->dead_ns, 0, bpf_ktime_get_ns())) return;
  watch->cause = cause;
  watch->signal = signal;
}

/*
 * Arguments: signal, its information, the task, group, result. Here the signal has been given to the process,
 * and if it ends it without a dump of core, every thread has SIGKILL already.
 */
SEC("raw_tp/signal_generate")
int hr_watch_generate(struct bpf_raw_tracepoint_args *context) {
  struct task_struct *task = (struct task_struct *)context->args[2];
  struct hr_watch *watch = hr_watched(task);

  if (watch && (BPF_CORE_READ(task, signal, flags) & HR_SIGNAL_GROUP_EXIT))
    hr_watch_dies(watch, HR_WATCH_SIGNAL, context->args[0]);
  return 0;
}

/* kernel/signal.c: what ignores a signal by default (SIG_KERNEL_IGNORE_MASK), and what stops
 * (SIG_KERNEL_STOP_MASK). */
HR_INLINE int hr_signal_ends(__u32 signal) {
  switch (signal) {
    case SIGCONT:
    case SIGCHLD:
    case SIGWINCH:
    case SIGURG:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU: return 0;
  }
  return 1;
}

/*
 * Arguments: signal, its information, the action; the task is the current one. For signals that dump core, and
 * for exit_group(2), of which the other threads hear as SIGKILL. An exec sends that too, but leaves the flag
 * alone.
 */
SEC("raw_tp/signal_deliver")
int hr_watch_deliver(struct bpf_raw_tracepoint_args *context) {
  struct task_struct *task = (struct task_struct *)bpf_get_current_task();
  struct k_sigaction *action = (struct k_sigaction *)context->args[2];
  struct hr_watch *watch = hr_watched(task);
  __u32 signal = context->args[0];
  __u32 flags;

  if (!watch) return 0;
  flags = BPF_CORE_READ(task, signal, flags);
  if (!(flags & HR_SIGNAL_GROUP_EXIT)) {
    if (signal == SIGKILL || !hr_signal_ends(signal) || (flags & HR_SIGNAL_UNKILLABLE)) return 0;
    if (BPF_CORE_READ(action, sa.sa_handler) != SIG_DFL) return 0;
  }
  hr_watch_dies(watch, HR_WATCH_SIGNAL, signal);
  return 0;
}

/* Argument: the task, which is the current one. Fires for every thread; `live` no longer counts this one. */
SEC("raw_tp/sched_process_exit")
int hr_watch_exit(struct bpf_raw_tracepoint_args *context) {
  struct task_struct *task = (struct task_struct *)context->args[0];
  struct hr_watch *watch = hr_watched(task);

  if (watch && !BPF_CORE_READ(task, signal, live.counter)) hr_watch_dies(watch, HR_WATCH_EXIT, 0);
  return 0;
}

/*
 * Never attached: the process runs it by BPF_PROG_TEST_RUN, in its own context, with its incarnation for an
 * argument. Whatever namespace it lives in, this is the number that the programs above see.
 */
SEC("raw_tp")
int hr_watch_me(struct bpf_raw_tracepoint_args *context) {
  struct task_struct *task = (struct task_struct *)bpf_get_current_task();
  struct hr_watch *watch = hr_the_watch();

  if (!watch || watch->incarnation) return 0;
  watch->tgid = BPF_CORE_READ(task, tgid);
  watch->started_ns = BPF_CORE_READ(task, group_leader, start_boottime);
  watch->loop = (__u64)task;
  __sync_lock_test_and_set(&watch->incarnation, context->args[0]);
  return 1;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
