/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timing wheel: where requests wait until the clock looks at them. Any CPU pushes, only the clock's lap takes.
 * A slot is a stack pushed by compare-and-swap and taken whole by exchange, so a link can never be read after its
 * request was reused (no ABA). A push into a slot that the lap has just passed is not lost: a lap publishes how far it
 * goes (`passed`) before it reads a slot; a pusher that finds its slot passed sets `late`, and the next lap goes over
 * the whole wheel again.
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/stats.bpf.h"

#define HR_PUSH_TRIES 16
/* A little less than the whole wheel, so that a slot never holds two rounds at once. */
#define HR_FINE_HORIZON_NS ((__u64)(HR_FINE_SLOTS - 64) << HR_FINE_SHIFT)
#define HR_COARSE_HORIZON_NS ((__u64)(HR_COARSE_SLOTS - 4) << HR_COARSE_SHIFT)

HR_INLINE struct hr_request *hr_request_at(__u32 index) {
  if (!index) return 0;
  return bpf_map_lookup_elem(&requests, &index);
}

/* Of the parked copy. */
HR_INLINE __u32 hr_l3_header_bytes(const struct hr_request *request) {
  return request->flags & HR_REQUEST_IPV6 ? HR_IPV6_HEADER_BYTES : HR_IPV4_HEADER_BYTES;
}

/* Takes back a request's claim on its slot's `live`: once, by the program that exchanges the non-zero value out. */
HR_INLINE void hr_disarm(struct hr_wheel *wheel, struct hr_request *request) {
  __u32 armed = __sync_lock_test_and_set(&request->armed, 0);

  if (armed) __sync_fetch_and_sub(&wheel->fine[(armed - 1) & (HR_FINE_SLOTS - 1)].live, 1);
}

/*
 * One try to put a request into a fine slot, whose two words are swapped as one, counted as `live` or not (0 or 1). -1:
 * another CPU won.
 */
HR_INLINE int hr_try_push_fine(union hr_fine_slot *slot, struct hr_request *request, __u32 index, __u32 live) {
  __u64 old = READ_ONCE(slot->both);

  WRITE_ONCE(request->next, (__u32)old);
  live += (__u32)(old >> 32);
  return __sync_val_compare_and_swap(&slot->both, old, (__u64)live << 32 | index) == old ? 0 : -1;
}

/* Further tries, after another CPU has won the first. A global function: rare, and clang unrolls its
 * loop, of which the verifier would walk each copy on every path of the callers. */
HR_GLOBAL int hr_push_fine_again(__u32 slot, __u32 index, __u32 live) {
  struct hr_request *request = hr_request_at(index);
  struct hr_wheel *wheel = hr_the_wheel();

  if (!request || !wheel) return -1;
  for (__u32 i = 1; i < HR_PUSH_TRIES; i++)
    if (!hr_try_push_fine(&wheel->fine[slot & (HR_FINE_SLOTS - 1)], request, index, live)) return 0;
  /* An answer has taken back what was not counted. */
  if (live && !__sync_lock_test_and_set(&request->armed, 0))
    __sync_fetch_and_add(&wheel->fine[slot & (HR_FINE_SLOTS - 1)].live, 1);
  return -1;
}

/*
 * Puts a request into the fine slot of `when_ns`, counted as live if it still waits for an answer. -1 when other
 * CPUs won every try; the request is then in no slot. `armed` stands before the slot has the request, so an answer in
 * between takes one off `live` a moment before it is there.
 */
HR_INLINE int hr_push_fine(struct hr_wheel *wheel, struct hr_request *request, __u32 index, __u64 when_ns,
                           __u64 now_ns) {
  __u32 state = HR_WORD_STATE(request->word), live = state == HR_STATE_PENDING || state == HR_STATE_CLAIMING;
  __u64 tick = when_ns >> HR_FINE_SHIFT;
  __u64 now_tick = now_ns >> HR_FINE_SHIFT;
  __u32 slot;

  if (tick < now_tick) tick = now_tick;
  slot = tick & (HR_FINE_SLOTS - 1);
  if (live) WRITE_ONCE(request->armed, slot + 1);
  if (hr_try_push_fine(&wheel->fine[slot], request, index, live) && hr_push_fine_again(slot, index, live)) return -1;
  if (tick < READ_ONCE(wheel->fine_passed)) WRITE_ONCE(wheel->late, 1);
  return 0;
}

/* As for a fine slot. Rare: inline tries would be walked by the verifier on every path of the callers. */
HR_GLOBAL int hr_push_head(__u32 *head, __u32 index) {
  struct hr_request *request = hr_request_at(index);

  if (!head || !request) return -1;
  for (__u32 i = 0; i < HR_PUSH_TRIES; i++) {
    __u32 old = READ_ONCE(*head);

    WRITE_ONCE(request->next, old);
    if (__sync_val_compare_and_swap(head, old, index) == old) return 0;
  }
  return -1;
}

/* For what needs no precision, and for what is due beyond the fine wheel: looked at when its coarse tick begins. */
HR_INLINE int hr_push_coarse(struct hr_wheel *wheel, __u32 index, __u64 when_ns, __u64 now_ns) {
  __u64 now_tick = now_ns >> HR_COARSE_SHIFT;
  __u64 tick;

  if (when_ns > now_ns + HR_COARSE_HORIZON_NS) when_ns = now_ns + HR_COARSE_HORIZON_NS;
  tick = when_ns >> HR_COARSE_SHIFT;
  if (tick <= now_tick) tick = now_tick + 1;
  if (hr_push_head(&wheel->coarse[tick & (HR_COARSE_SLOTS - 1)], index)) return -1;
  if (tick < READ_ONCE(wheel->coarse_passed)) WRITE_ONCE(wheel->late, 1);
  return 0;
}

/* By due time: precise where the fine wheel reaches. */
HR_INLINE int hr_push_due(struct hr_wheel *wheel, struct hr_request *request, __u32 index, __u64 now_ns) {
  __u64 due_ns = request->due_ns;

  if (due_ns < now_ns + HR_FINE_HORIZON_NS) {
    /* A slot that other CPUs keep winning is not worth failing for: the next one is 33 us later. */
    return hr_push_fine(wheel, request, index, due_ns, now_ns) &&
           hr_push_fine(wheel, request, index, due_ns + (1ull << HR_FINE_SHIFT), now_ns);
  }
  /* Early enough for a lap of the longest class to put it into the fine wheel in time. */
  return hr_push_coarse(wheel, index, due_ns - (2ull << HR_COARSE_SHIFT), now_ns);
}

/* ---- What skb->priority says to the clock's queueing discipline -------------------------------------------------- */

/* For a packet that is not to be held back. */
HR_INLINE __u32 hr_priority_unheld(void) { return load_config.clock_kind == HR_CLOCK_FQ ? 0 : HR_CLOCK_HANDLE; }

/* For the clock packet: a lap of this class, or, with fq, after just this time. */
HR_INLINE __u32 hr_priority_of_lap(__u32 class, __u64 wait_ns) {
  if (load_config.clock_kind == HR_CLOCK_FQ) return (__u32)wait_ns & HR_CLOCK_WAIT_MASK;
  return HR_CLOCK_HANDLE | (HR_CLOCK_CLASS_BASE + class);
}

/* ---- Setting the clock going ------------------------------------------------------------------------------------- */

/* A lap takes at most 10 ms by its class; under load rare maxima of 5 to 30 ms were measured on top. */
#define HR_CLOCK_OVERDUE_NS 100000000ull

/*
 * The proxy's own packets on the clock's link bear this load's tag, which lasts as long as the frame does: a lap's
 * packet and its clones keep it. Stored from where it stands: the reply program, which puts it too, has no stack left.
 */
HR_INLINE int hr_put_tag(struct __sk_buff *skb) {
  return bpf_skb_store_bytes(skb, 0, (const void *)&load_config.clock_tag, HR_CLOCK_TAG_BYTES, 0);
}

HR_INLINE int hr_has_tag(struct __sk_buff *skb) {
  __u64 tag = 0;

  return !bpf_skb_load_bytes(skb, 0, &tag, HR_CLOCK_TAG_BYTES) && tag == load_config.clock_tag;
}

/*
 * Sends a clone of the packet in hand round the clock's link as the new clock packet. The link has no transmit
 * checksum offload, so the clone arrives with a finished checksum: the carrier is never CHECKSUM_PARTIAL. Where that
 * fails the epoch goes back, so that a clock packet which is still on its way stays the clock. Returns 0 when it was
 * sent.
 */
HR_INLINE int hr_clock_send(struct __sk_buff *skb, struct hr_wheel *wheel) {
  __u32 epoch = __sync_fetch_and_add(&wheel->epoch, 1) + 1;
  __u32 mark = skb->mark;
  __u32 priority = skb->priority;
  long failed;

  skb->mark = HR_MARK_LAP | HR_MARK_VALUE(epoch);
  skb->priority = hr_priority_of_lap(0, 0);
  failed = hr_put_tag(skb) || bpf_clone_redirect(skb, load_config.clock_out_ifindex, 0);
  if (failed) {
    hr_host_reason(HR_REASON_CLOCK_KICK_FAILED);
    __sync_val_compare_and_swap(&wheel->epoch, epoch, epoch - 1);
  }
  skb->mark = mark;
  skb->priority = priority;
  return failed ? -1 : 0;
}

/*
 * Called after a push. Rest handshake, first half: the push is published before `running` is read (the compare-and-
 * swap of the push is a full barrier); the clock clears `running` before it asks what is in use (clock.bpf.c).
 */
HR_INLINE void hr_clock_wake(struct __sk_buff *skb, struct hr_wheel *wheel, __u64 now_ns) {
  __u64 last_lap_ns;

  if (!READ_ONCE(wheel->running)) {
    if (__sync_val_compare_and_swap(&wheel->running, 0, 1)) return;
    wheel->kick_ns = now_ns;
    WRITE_ONCE(wheel->last_lap_ns, now_ns);
    wheel->kicks++;
    /* At rest as before: the next request tries again. */
    if (hr_clock_send(skb, wheel)) __sync_lock_test_and_set(&wheel->running, 0);
    return;
  }
  last_lap_ns = READ_ONCE(wheel->last_lap_ns);
  if (now_ns < last_lap_ns + HR_CLOCK_OVERDUE_NS) return;
  /* Overdue by many laps: its packet is lost. One CPU wins the right to replace it, and no other for as long again. */
  if (__sync_val_compare_and_swap(&wheel->last_lap_ns, last_lap_ns, now_ns) != last_lap_ns) return;
  wheel->restarts++;
  /* Still overdue: the next request tries again. */
  if (hr_clock_send(skb, wheel)) __sync_val_compare_and_swap(&wheel->last_lap_ns, now_ns, last_lap_ns);
}

/*
 * Starts a lap at once, for work that no due time stands for, however long the clock packet is still held back. The old
 * clock packet then dies by its epoch, counted as clock_stale. A clock at rest has no request to look at, and needs no
 * lap. Where the new packet cannot be sent, the old one may have died by the epoch that has gone back since: without a
 * lap by then the next request, or the watchdog, sends another.
 */
HR_INLINE void hr_clock_hurry(struct __sk_buff *skb, struct hr_wheel *wheel) {
  if (READ_ONCE(wheel->running) && hr_clock_send(skb, wheel)) WRITE_ONCE(wheel->last_lap_ns, 0);
}
