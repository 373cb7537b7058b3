/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Verifies a datagram: the tag over all of it, the member by its id, its known incarnation, and whether its number is
 * new. Only a datagram that passes all checks reaches the node's state (xdp.bpf.c).
 */
#pragma once

#include "bpf/node/parse.bpf.h"

/* The slot of a member; HR_NODE_NO_MEMBER: none. `here` says whether it is where the datagram came from. */
HR_INLINE __u32 hr_node_slot(__u32 node_id, const struct hr_node_frame *frame, int *here) {
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) {
    __u32 slot = i;
    struct hr_node_peer *peer = bpf_map_lookup_elem(&members, &slot);

    if (!peer || peer->node != node_id) continue;
    *here = peer->port_be == frame->source_port_be && peer->address.halves[0] == frame->source.halves[0] &&
            peer->address.halves[1] == frame->source.halves[1];
    return i;
  }
  return HR_NODE_NO_MEMBER;
}

/*
 * HR_NODE_EVENT_COUNT: the datagram was made with a key of the cluster's. It names which one, so a forgery costs one
 * tag at most, also while two are valid.
 */
HR_GLOBAL int hr_node_seal_fault(struct hr_node_scratch *in) {
  struct hr_siphash_key key;
  struct hr_node_key *known;

  if (!in || in->datagram.header.key_id == HR_NODE_KEY_SEALS) return HR_NODE_EVENT_DROPPED_KEY;
  known = hr_node_key_of(in->datagram.header.key_id);
  if (!known) return HR_NODE_EVENT_DROPPED_KEY;
  key = known->key;
  return in->datagram.header.tag ==
                 hr_siphash_bounded(&key, in->words, in->bytes, sizeof(in->words), HR_SIPHASH_TAG_WORD)
             ? HR_NODE_EVENT_COUNT
             : HR_NODE_EVENT_DROPPED_TAG;
}

/* enum hr_node_window_verdict. An incarnation that is not known is the process's. */
HR_GLOBAL int hr_node_take_number(struct hr_node_scratch *in) {
  struct hr_node_locked_window *locked;
  enum hr_node_window_verdict verdict;
  __u64 number, incarnation;
  __u32 slot;

  if (!in) return HR_NODE_WINDOW_OTHER_INCARNATION;
  number = in->datagram.header.packet_number;
  incarnation = in->datagram.header.from_incarnation;
  slot = in->taken.slot;
  locked = bpf_map_lookup_elem(&windows, &slot);
  if (!locked) return HR_NODE_WINDOW_OTHER_INCARNATION;
  bpf_spin_lock(&locked->lock);
  verdict = hr_node_window_take(&locked->window, incarnation, number);
  bpf_spin_unlock(&locked->lock);
  return verdict;
}
