// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * XDP of a node's interface: the peers' datagrams. It believes (admit), decides in one critical section (work), and
 * answers or leaves the datagram to the process. Everything that is not to this node's peer port passes at once;
 * whatever is not plain passes too (R3). Dropped is only what was made without the key or was seen before.
 */
#include "bpf/node/admit.bpf.h"
#include "bpf/node/answer.bpf.h"
#include "bpf/node/work.bpf.h"

HR_INLINE int hr_node_left(__u32 event) {
  hr_node_count(event);
  return XDP_PASS;
}

/* The datagram into scratch, and what is known of it. HR_NODE_EVENT_COUNT: so far nothing speaks against it. */
HR_INLINE __u32 hr_node_read(struct xdp_md *ctx, struct hr_node_scratch *in, const struct hr_node_frame *frame) {
  __u32 bytes = frame->bytes;
  __u32 length = bytes;

  HR_KEEP_BOUND(length);
  if (length < HR_PEER_HEADER_BYTES) return HR_NODE_EVENT_PASSED_MALFORMED;
  if (length > HR_NODE_DATAGRAM_MAX_BYTES) return HR_NODE_EVENT_PASSED_SIZE;
  if (bpf_xdp_load_bytes(ctx, frame->payload_offset, in->words, length)) return HR_NODE_EVENT_PASSED_MALFORMED;
  if (!hr_node_header_fits(&in->datagram.header, bytes, node_config.cluster_id, node_config.self))
    return HR_NODE_EVENT_PASSED_MALFORMED;
  in->frame_bytes = frame->frame_bytes;
  in->payload_offset = frame->payload_offset;
  in->ipv6 = frame->ipv6;
  in->bytes = bytes;
  in->kind = in->datagram.header.kind;
  in->taken.term = in->datagram.header.term;
  in->taken.now_ns = bpf_ktime_get_ns();
  in->taken.from = in->datagram.header.from;
  return HR_NODE_EVENT_COUNT;
}

/*
 * XDP_TX: `in` is believed, its number is taken, and it may be answered. The tag is verified first: the
 * sender reaches the process only when it is authenticated.
 */
HR_INLINE int hr_node_believe(struct hr_node_scratch *in, const struct hr_node_frame *frame) {
  int here = 0;
  int verdict = hr_node_seal_fault(in);

  if (verdict != HR_NODE_EVENT_COUNT) {
    hr_node_count(verdict);
    return XDP_DROP;
  }
  in->taken.slot = hr_node_slot(in->taken.from, frame, &here);
  if (in->taken.slot >= HR_NODE_MEMBERS) return hr_node_left(HR_NODE_EVENT_PASSED_MALFORMED);
  if (!here) return hr_node_left(HR_NODE_EVENT_PASSED_SOURCE);
  verdict = hr_node_take_number(in);
  if (verdict == HR_NODE_WINDOW_NEW) return XDP_TX;
  if (verdict == HR_NODE_WINDOW_OTHER_INCARNATION) return hr_node_left(HR_NODE_EVENT_PASSED_INCARNATION);
  hr_node_count(verdict == HR_NODE_WINDOW_SEEN ? HR_NODE_EVENT_DROPPED_REPLAYED : HR_NODE_EVENT_DROPPED_TOO_OLD);
  return XDP_DROP;
}

/*
 * Each side writes its own word and then reads the other's, with a full barrier between (an addition that returns what
 * was there is one): either this sees that the process sleeps, or the process sees that something moved.
 */
HR_INLINE int hr_node_rings(__u32 event) {
  struct hr_node_doorbell *word;
  __u64 moved;

  if (!hr_node_only_wakes(event)) return 0;
  word = hr_the_doorbell();
  if (!word) return 0;
  moved = __sync_fetch_and_add(&word->moved, 1);
  HR_USE_RESULT(moved);
  return READ_ONCE(word->awake) != 0;
}

HR_INLINE int hr_node_act(struct xdp_md *ctx, struct hr_node_scratch *in, int verdict) {
  int action;

  if (verdict == HR_NODE_PASS && hr_node_rings(in->taken.event)) {
    in->taken.event = HR_NODE_EVENT_DOORBELL;
    verdict = HR_NODE_CONSUMED;
  }
  hr_node_count(in->taken.event);
  if (verdict == HR_NODE_CONSUMED) return XDP_DROP;
  if (verdict != HR_NODE_ANSWER) return XDP_PASS;
  action = hr_node_send_answer(ctx, in);
  if (action != XDP_TX) hr_node_count(HR_NODE_EVENT_ANSWER_FAILED);
  return action;
}

SEC("xdp.frags")
int hr_node_xdp(struct xdp_md *ctx) {
  struct hr_node_frame frame = {};
  struct hr_node_scratch *in;
  __u32 zero = 0;
  __u32 fault;
  int action;

  if (!hr_node_parse(ctx, &frame)) return XDP_PASS;
  in = bpf_map_lookup_elem(&scratch, &zero);
  if (!in) return XDP_PASS;
  fault = hr_node_read(ctx, in, &frame);
  if (fault < HR_NODE_EVENT_COUNT) return hr_node_left(fault);
  action = hr_node_believe(in, &frame);
  if (action != XDP_TX) return action;
  fault = hr_node_body_fault(&in->datagram, in->bytes);
  if (fault < HR_NODE_EVENT_COUNT) return hr_node_left(fault);
  __builtin_memset(&in->answer.body, 0, sizeof(in->answer.body));
  return hr_node_act(ctx, in, hr_node_work(ctx, in));
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
