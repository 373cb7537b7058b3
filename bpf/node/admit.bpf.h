/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Verifies a datagram: the tag over all of it, the member by its id, its known incarnation, and whether its number is
 * new. Only a datagram that passes all checks reaches the node's state (xdp.bpf.c).
 */
#pragma once

#include "bpf/node/parse.bpf.h"

/* The position of a member; HR_NODE_NO_MEMBER: none. `here` says whether it is where the datagram came from. */
HR_INLINE __u32 hr_node_position(__u32 node_id, const struct hr_node_frame *frame, int *here) {
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) {
    __u32 position = i;
    struct hr_node_peer *peer = bpf_map_lookup_elem(&members, &position);

    if (!peer || peer->node != node_id) continue;
    *here = peer->port_be == frame->source_port_be && peer->address.halves[0] == frame->source.halves[0] &&
            peer->address.halves[1] == frame->source.halves[1];
    return i;
  }
  return HR_NODE_NO_MEMBER;
}

/* 1: the datagram was made with the cluster's key. */
HR_GLOBAL int hr_node_tag_is_right(struct hr_node_scratch *in) {
  const struct hr_siphash_key key = {.k0 = node_config.key.k0, .k1 = node_config.key.k1};

  if (!in) return 0;
  return in->datagram.header.tag ==
         hr_siphash_bounded(&key, in->words, in->bytes, sizeof(in->words), HR_SIPHASH_TAG_WORD);
}

/* enum hr_node_window_verdict. An incarnation that is not known is the process's. */
HR_GLOBAL int hr_node_take_number(struct hr_node_scratch *in) {
  struct hr_node_locked_window *slot;
  enum hr_node_window_verdict verdict;
  __u64 number, incarnation;
  __u32 position;

  if (!in) return HR_NODE_WINDOW_OTHER_INCARNATION;
  number = in->datagram.header.packet_number;
  incarnation = in->datagram.header.from_incarnation;
  position = in->taken.position;
  slot = bpf_map_lookup_elem(&windows, &position);
  if (!slot) return HR_NODE_WINDOW_OTHER_INCARNATION;
  bpf_spin_lock(&slot->lock);
  verdict = hr_node_window_take(&slot->window, incarnation, number);
  bpf_spin_unlock(&slot->lock);
  return verdict;
}
