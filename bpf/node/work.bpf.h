/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A believed datagram meets the node's state, in one critical section of R0: ring space is reserved before the lock and
 * submitted or discarded after it, so that nothing is acknowledged that is not stored (R3), and so that every
 * acceptance before a fence lies below the ring position which is read after it (R1). Each returns an enum
 * hr_node_verdict.
 */
#pragma once

#include "bpf/node/parse.bpf.h"

HR_INLINE struct hr_node *hr_the_node(void) {
  __u32 zero = 0;

  return bpf_map_lookup_elem(&node, &zero);
}

HR_INLINE struct hr_node_doorbell *hr_the_doorbell(void) {
  __u32 zero = 0;

  return bpf_map_lookup_elem(&doorbell, &zero);
}

HR_INLINE void hr_node_fill_record(struct hr_node_record *record, const struct hr_node_scratch *in, __u32 kind) {
  record->kind = kind;
  record->from = in->taken.from;
  record->term = in->taken.term;
  record->prev_index = 0;
  record->last_index = 0;
  record->arrived_ns = in->taken.now_ns;
  record->bytes = 0;
  record->reserved = 0;
}

HR_INLINE void hr_node_fill_append(struct hr_node_record *record, const struct hr_node_scratch *in) {
  hr_node_fill_record(record, in, HR_NODE_RECORD_APPEND);
  record->prev_index = in->datagram.body.append.prev_index;
  record->last_index = record->prev_index + in->datagram.body.append.count;
  record->bytes = in->bytes;
}

/*
 * The process is never woken for the ring: it looks at it in each of its turns, which come at least three times a
 * lease, and a wake-up costs more than all of this. A voter that was woken would also compete with its candidate where
 * they share a processor; it hears its new leader in a moment.
 */
HR_INLINE void hr_node_finish_record(void *record, enum hr_node_verdict verdict, const struct hr_node_taken *taken) {
  if (!hr_node_keeps_record(verdict, taken))
    bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
  else
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

HR_INLINE enum hr_node_verdict hr_node_locked(struct hr_node *state, struct hr_node_scratch *in, __u32 kind, int room) {
  const __u32 epoch = in->datagram.header.config_epoch;
  enum hr_node_verdict verdict;

  bpf_spin_lock(&state->lock);
  verdict =
      hr_node_decide(&state->shared, kind, &in->taken, epoch, &in->datagram.body, room, &in->answer.body, &in->spoken);
  bpf_spin_unlock(&state->lock);
  return verdict;
}

/* Heartbeats, all answers, and votes that cannot be given. */
HR_GLOBAL int hr_node_work_plain(struct hr_node_scratch *in) {
  struct hr_node_doorbell *word = hr_the_doorbell();
  struct hr_node *state = hr_the_node();

  if (!in || !state || !word) return HR_NODE_PASS;
  in->taken.sent_index = READ_ONCE(word->sent_index);
  in->taken.sent_round = READ_ONCE(word->sent_round);
  return hr_node_locked(state, in, in->kind, 0);
}

HR_GLOBAL int hr_node_work_vote(struct hr_node_scratch *in) {
  struct hr_node *state = hr_the_node();
  enum hr_node_verdict verdict;
  struct hr_node_record *record;

  if (!in || !state) return HR_NODE_PASS;
  record = bpf_ringbuf_reserve(&ring, HR_NODE_RECORD_SMALL_BYTES, 0);
  if (!record) {
    in->taken.event = HR_NODE_EVENT_PASSED_RING_FULL;
    return HR_NODE_PASS;
  }
  hr_node_fill_record(record, in, HR_NODE_RECORD_VOTE);
  verdict = hr_node_locked(state, in, HR_PEER_VOTE_REQUEST, 1);
  hr_node_finish_record(record, verdict, &in->taken);
  return verdict;
}

/* `size` is a constant at each call: the ring wants one. The datagram is taken from the packet, which does not change.
 */
#define HR_NODE_WORK_APPEND(name, size)                                             \
  HR_GLOBAL int name(struct xdp_md *ctx, struct hr_node_scratch *in) {              \
    struct hr_node *state = hr_the_node();                                          \
    enum hr_node_verdict verdict = HR_NODE_PASS;                                    \
    struct hr_node_record *record;                                                  \
    __u32 bytes;                                                                    \
                                                                                    \
    if (!in || !state) return HR_NODE_PASS;                                         \
    record = bpf_ringbuf_reserve(&ring, size, 0);                                   \
    in->taken.event = HR_NODE_EVENT_PASSED_RING_FULL;                               \
    if (!record) return HR_NODE_PASS;                                               \
    hr_node_fill_append(record, in);                                                \
    bytes = in->bytes;                                                              \
    in->taken.event = HR_NODE_EVENT_PASSED_SIZE;                                    \
    if (bytes < HR_PEER_HEADER_BYTES || bytes > (size)-HR_NODE_RECORD_HEAD_BYTES || \
        bpf_xdp_load_bytes(ctx, in->payload_offset, record + 1, bytes)) {           \
      bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                                \
      return HR_NODE_PASS;                                                          \
    }                                                                               \
    verdict = hr_node_locked(state, in, HR_PEER_APPEND, 1);                         \
    hr_node_finish_record(record, verdict, &in->taken);                             \
    return verdict;                                                                 \
  }
HR_NODE_WORK_APPEND(hr_node_work_small_append, HR_NODE_RECORD_SMALL_BYTES)
HR_NODE_WORK_APPEND(hr_node_work_large_append, HR_NODE_RECORD_LARGE_BYTES)

/* enum hr_node_event. */
HR_GLOBAL int hr_node_check_entries(struct hr_node_scratch *in) {
  return in ? hr_node_entries_fault(in->words, in->bytes) : HR_NODE_EVENT_PASSED_MALFORMED;
}

/* What the state allows now, without the lock: it saves a reservation, and the decision looks again. */
HR_INLINE __u32 hr_node_peek_may(void) {
  struct hr_node *state = hr_the_node();

  return state ? READ_ONCE(state->shared.capabilities) : 0;
}

HR_INLINE enum hr_node_verdict hr_node_work_append(struct xdp_md *ctx, struct hr_node_scratch *in) {
  int fault;

  if (!(hr_node_peek_may() & HR_NODE_CAN_APPEND)) {
    in->taken.event = HR_NODE_EVENT_PASSED_FENCED;
    return HR_NODE_PASS;
  }
  fault = hr_node_check_entries(in);
  if (fault != HR_NODE_EVENT_COUNT) {
    in->taken.event = fault;
    return HR_NODE_PASS;
  }
  if (in->bytes <= HR_NODE_RECORD_SMALL_BYTES - HR_NODE_RECORD_HEAD_BYTES) return hr_node_work_small_append(ctx, in);
  return hr_node_work_large_append(ctx, in);
}

HR_INLINE enum hr_node_verdict hr_node_work(struct xdp_md *ctx, struct hr_node_scratch *in) {
  if (in->kind == HR_PEER_APPEND) return hr_node_work_append(ctx, in);
  if (in->kind == HR_PEER_VOTE_REQUEST && !in->datagram.body.vote_request.pre_vote &&
      (hr_node_peek_may() & HR_NODE_CAN_GRANT))
    return hr_node_work_vote(in);
  return hr_node_work_plain(in);
}
