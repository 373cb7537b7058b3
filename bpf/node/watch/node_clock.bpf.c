// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NODE CLOCK: TC ingress of the inner end of a node's clock link. As the proxy's clock (bpf/proxy/clock.bpf.c) it is
 * one packet that a queueing discipline holds back between laps; it goes round only while this node leads. Each
 * lap asks whether the process is dead or its lease has passed, and if so tells peers and proxies that the
 * leader resigns, a bounded number of laps long. A loop that only waits for a processor is stalled, and peers are
 * asked to wait. The clock needs nothing of the process: a dead one's goes on. hr_watch_kick sets it going.
 */
/* The order of these two matters: the first needs a helper's name that the second defines. */
#include "bpf/node/watch/task.bpf.h"
#include "bpf/node/watch/tell.bpf.h"

#include <linux/pkt_cls.h>

HR_INLINE struct hr_watch_clock *hr_the_clock(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&node_clock, &zero);
}

HR_INLINE int hr_read_standing(struct hr_watch_standing *standing) {
  __u32 zero = 0;
  struct hr_node *state = bpf_map_lookup_elem(&node, &zero);

  if (!state) return -1;
  bpf_spin_lock(&state->lock);
  standing->incarnation = state->shared.incarnation;
  standing->term = state->shared.raft.term;
  standing->lease_until_ns = state->shared.lease_until_ns;
  standing->role = state->shared.role;
  standing->config_epoch = state->shared.config_epoch;
  bpf_spin_unlock(&state->lock);
  return 0;
}

/* Does the process that is watched lead? When another has taken the state over, this clock has nothing left to
 * say. */
HR_INLINE int hr_leads(const struct hr_watch *watch, struct hr_watch_standing *standing) {
  if (hr_read_standing(standing)) return 0;
  return standing->role == HR_NODE_LEADER && standing->incarnation &&
         standing->incarnation == READ_ONCE(watch->incarnation);
}

HR_INLINE __u64 hr_loop_ran_ns(const struct hr_watch *watch) {
  struct task_struct *loop = (struct task_struct *)watch->loop;
  __u64 ran_ns = 0;

  if (loop) bpf_core_read(&ran_ns, sizeof(ran_ns), &loop->se.sum_exec_runtime);
  return ran_ns;
}

/* Each turn of the loop puts the lease off (R5), so a lease that is another is a turn. */
HR_INLINE int hr_has_turned(struct hr_watch_clock *clock, const struct hr_watch *watch,
                            const struct hr_watch_standing *standing, __u64 now_ns) {
  if (standing->lease_until_ns == clock->lease_until_ns) return 0;
  clock->lease_until_ns = standing->lease_until_ns;
  clock->turned_ns = now_ns;
  clock->turned_ran_ns = hr_loop_ran_ns(watch);
  clock->stalled_laps = clock->asleep = 0;
  clock->forgiven_ns = 0;
  return 1;
}

/*
 * A lap that is late by far: the machine stood still, the loop with it, and what it missed was not its own fault; a
 * turn that this lap sees may have been before. Bounded, so that laps which are always late do not speak for a loop
 * that hangs.
 */
HR_INLINE void hr_forgive(struct hr_watch_clock *clock, __u64 gap_ns, int turned) {
  if (gap_ns < HR_WATCH_STANDSTILL_NS || clock->forgiven_ns >= HR_WATCH_FORGIVEN_MAX_NS) return;
  clock->forgiven_ns += gap_ns;
  if (!turned) clock->turned_ns += gap_ns;
}

/*
 * The loop has not turned for a while, and would if it had a processor: it will soon. A stopped one does not
 * want to run, and one that is caught in a loop of its own has had a processor for long enough. The kernel's
 * word is taken until `stall_until_ns`. One that was stalled and sleeps is on its way to the end of its turn, or
 * stands still: the next lap knows. Should the thread be gone, whatever is read costs an election, or delays
 * it.
 */
HR_INLINE int hr_is_stalled(struct hr_watch_clock *clock, const struct hr_watch *watch,
                            const struct hr_watch_standing *standing, __u64 now_ns) {
  struct task_struct *loop = (struct task_struct *)watch->loop;
  unsigned int state = 1;
  __u64 silent_ns;

  silent_ns = now_ns - clock->turned_ns;
  if (!standing->lease_until_ns || silent_ns < watch_config.stall_from_ns || silent_ns >= watch_config.stall_until_ns)
    return 0;
  if (!loop || clock->resigned) return 0; /* what has been said stands */
  if (bpf_core_read(&state, sizeof(state), &loop->__state) || (state & ~HR_TASK_WAKING))
    return clock->stalled_laps && ++clock->asleep < HR_WATCH_ASLEEP_LAPS;
  clock->asleep = 0;
  return hr_loop_ran_ns(watch) - clock->turned_ran_ns < watch_config.stall_from_ns;
}

HR_INLINE __u32 hr_why_resign(const struct hr_watch_clock *clock, const struct hr_watch *watch,
                              const struct hr_watch_standing *standing, int stalled, __u64 now_ns) {
  if (READ_ONCE(watch->dead_ns)) return READ_ONCE(watch->cause) == HR_WATCH_EXIT ? HR_WATCH_EXIT : HR_WATCH_SIGNAL;
  /* 0: the process keeps no lease. */
  if (stalled || !standing->lease_until_ns) return HR_WATCH_ALIVE;
  return now_ns >= standing->lease_until_ns + clock->forgiven_ns ? HR_WATCH_LEASE_OVER : HR_WATCH_ALIVE;
}

HR_INLINE void hr_count_told(struct hr_watch_clock *clock, int told, __u64 *sent) {
  if (told > 0) ++*sent;
  if (told < 0) ++clock->failures;
}

HR_INLINE void hr_tell_peers(struct __sk_buff *skb, struct hr_watch_clock *clock,
                             const struct hr_watch_standing *standing, int stalled) {
  if (hr_make_resign(standing, stalled)) return;
  for (__u32 i = 0; i < HR_WATCH_PEERS; ++i)
    hr_count_told(clock, hr_tell(skb, i), stalled ? &clock->stall_hints : &clock->resigns);
}

HR_INLINE void hr_hint_stall(struct __sk_buff *skb, struct hr_watch_clock *clock,
                             const struct hr_watch_standing *standing, __u64 now_ns) {
  if (!clock->stalled_laps++) {
    ++clock->stalls;
  } else if (now_ns < clock->stall_hint_ns + watch_config.stall_from_ns / 2) {
    return;
  }
  clock->stall_hint_ns = now_ns;
  hr_tell_peers(skb, clock, standing, 1);
}

/* Global: the announcement is sealed anew for each proxy, and verified once. */
HR_GLOBAL int hr_tell_proxy(struct __sk_buff *skb, __u32 index, __u64 term, __u64 sequence) {
  struct hr_watch_target *target = bpf_map_lookup_elem(&node_targets, &index);
  const struct hr_watch_standing standing = {.term = term};

  if (!target || !READ_ONCE(target->ifindex)) return 0;
  if (hr_make_announcement(&standing, sequence, target)) return -1;
  return hr_tell(skb, index);
}

HR_INLINE void hr_tell_proxies(struct __sk_buff *skb, struct hr_watch_clock *clock, __u64 term) {
  __u32 zero = 0;
  struct hr_node_numbers *drawn = bpf_map_lookup_elem(&numbers, &zero);
  __u64 sequence;

  if (!drawn) return;
  sequence = __sync_fetch_and_add(&drawn->announce_sequence, 1) + 1;
  for (__u32 i = HR_WATCH_PEERS; i < HR_WATCH_TARGETS; ++i)
    hr_count_told(clock, hr_tell_proxy(skb, i, term, sequence), &clock->announcements);
}

HR_INLINE int hr_go_round(struct __sk_buff *skb, __u32 epoch) {
  bpf_skb_change_tail(skb, HR_WATCH_LAP_FRAME_BYTES, 0);
  skb->mark = HR_WATCH_MARK_LAP | HR_WATCH_MARK_VALUE(epoch);
  skb->priority = HR_WATCH_LAP_PRIORITY;
  return bpf_redirect(watch_config.clock_out_ifindex, 0);
}

/*
 * Rest handshake: the process publishes that it leads and then reads `running`; the clock clears `running` and
 * then reads whether the process leads. One of the two sees the other.
 */
HR_INLINE int hr_rests(struct hr_watch_clock *clock, const struct hr_watch *watch) {
  struct hr_watch_standing standing;

  __sync_val_compare_and_swap(&clock->running, 1, 0);
  if (hr_leads(watch, &standing) && !__sync_val_compare_and_swap(&clock->running, 0, 1)) return 0;
  ++clock->rests;
  return 1;
}

/* Everything is said. The process, if it lives on, sets the clock going again. */
HR_INLINE int hr_ends(struct hr_watch_clock *clock) {
  __sync_val_compare_and_swap(&clock->running, 1, 0);
  ++clock->rests;
  return TC_ACT_SHOT;
}

HR_INLINE int hr_resign(struct __sk_buff *skb, struct hr_watch_clock *clock, const struct hr_watch_standing *standing,
                        __u32 why, __u32 epoch, __u64 now_ns) {
  if (!clock->resigned) {
    clock->resigned_ns = now_ns;
    clock->resigned_term = standing->term;
    clock->cause = why;
    ++clock->resignations;
  }
  ++clock->resigned;
  hr_tell_peers(skb, clock, standing, 0);
  hr_tell_proxies(skb, clock, standing->term);
  return hr_go_round(skb, epoch);
}

HR_INLINE int hr_lap(struct __sk_buff *skb, __u32 epoch) {
  struct hr_watch_clock *clock = hr_the_clock();
  struct hr_watch_standing standing = {};
  __u64 now_ns = bpf_ktime_get_ns();
  struct hr_watch *watch;
  __u32 zero = 0;
  __u64 gap_ns;
  __u32 why;
  int turned, stalled;

  watch = bpf_map_lookup_elem(&node_watch, &zero);
  if (!clock || !watch) return TC_ACT_SHOT;
  if (epoch != HR_WATCH_MARK_VALUE(READ_ONCE(clock->epoch))) {
    ++clock->stale;
    return TC_ACT_SHOT;
  }
  gap_ns = now_ns - clock->last_lap_ns;
  WRITE_ONCE(clock->last_lap_ns, now_ns);
  ++clock->laps;
  if (!hr_leads(watch, &standing)) {
    clock->resigned = clock->stalled_laps = 0;
    return hr_rests(clock, watch) ? TC_ACT_SHOT : hr_go_round(skb, epoch);
  }
  turned = hr_has_turned(clock, watch, &standing, now_ns);
  hr_forgive(clock, gap_ns, turned);
  stalled = !turned && hr_is_stalled(clock, watch, &standing, now_ns);
  why = hr_why_resign(clock, watch, &standing, stalled, now_ns);
  if (why == HR_WATCH_ALIVE) {
    clock->resigned = 0;
    if (stalled) hr_hint_stall(skb, clock, &standing, now_ns);
    return hr_go_round(skb, epoch);
  }
  if (clock->resigned >= watch_config.resigning_laps) return hr_ends(clock);
  return hr_resign(skb, clock, &standing, why, epoch, now_ns);
}

SEC("tc")
int hr_node_clock(struct __sk_buff *skb) {
  __u32 mark = skb->mark;
  __u32 index = HR_WATCH_MARK_VALUE(mark);
  struct hr_watch_target *target;
  struct hr_watch_clock *clock;

  if (HR_WATCH_MARK_KIND(mark) == HR_WATCH_MARK_LAP) return hr_lap(skb, HR_WATCH_MARK_VALUE(mark));
  if (HR_WATCH_MARK_KIND(mark) == HR_WATCH_MARK_SEND) {
    target = bpf_map_lookup_elem(&node_targets, &index);
    if (!target) return TC_ACT_SHOT;
    skb->mark = 0;
    skb->priority = 0;
    return bpf_redirect_neigh(target->ifindex, 0, 0, 0);
  }
  clock = hr_the_clock();
  if (clock) ++clock->stale;
  return TC_ACT_SHOT;
}

/*
 * Run by the process by BPF_PROG_TEST_RUN: sets a clock going that rests, or one whose packet was lost. Only
 * when it is long overdue: each kick makes a new epoch, and too many of them leave no lap the time to come
 * round.
 */
SEC("tc")
int hr_watch_kick(struct __sk_buff *skb) {
  struct hr_watch_clock *clock = hr_the_clock();
  __u64 now_ns = bpf_ktime_get_ns();
  __u32 epoch;

  if (!clock) return 0;
  if (__sync_val_compare_and_swap(&clock->running, 0, 1) &&
      now_ns < READ_ONCE(clock->last_lap_ns) + HR_WATCH_OVERDUE_NS)
    return 0;
  WRITE_ONCE(clock->last_lap_ns, now_ns);
  ++clock->kicks;
  epoch = __sync_fetch_and_add(&clock->epoch, 1) + 1;
  skb->mark = HR_WATCH_MARK_LAP | HR_WATCH_MARK_VALUE(epoch);
  skb->priority = HR_WATCH_LAP_PRIORITY;
  if (!bpf_clone_redirect(skb, watch_config.clock_out_ifindex, 0)) return 1;
  __sync_lock_test_and_set(&clock->running, 0);
  return -1;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
