/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of a node's kernel programs, with the writer of each; `node` and `numbers` are in state.bpf.h. `node`,
 * `windows`, `numbers`, `ring` and `about` are pinned and outlive the process; the rest is made anew with the
 * programs.
 */
#pragma once

#include "bpf/node/raft/datagram.h"
#include "bpf/node/raft/window.h"
#include "bpf/node/state.bpf.h"

/* By the sender's slot. Changed as `node` is. */
struct hr_node_locked_window {
  struct bpf_spin_lock lock;
  __u32 pad;
  struct hr_node_window window;
};
HR_ARRAY(windows, HR_NODE_MEMBERS, struct hr_node_locked_window);

/* What was accepted. 8 MiB: at 2 KiB a datagram the process may be away for 4,000 of them. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, HR_NODE_RING_BYTES);
} ring SEC(".maps") __weak;

/* Written once, by the process that made the pinned maps. */
HR_ARRAY(about, 1, struct hr_node_about);

/* Mapped into the process, and written by both. */
HR_MAPPED_ARRAY(doorbell, 1, struct hr_node_doorbell);

/* By slot. Written by the process, in step with configuration and neighbours. */
HR_ARRAY(members, HR_NODE_MEMBERS, struct hr_node_peer);

/* Written by the process before it attaches the XDP program. */
HR_ARRAY(xdp_hook, 1, struct hr_node_hook);

HR_PER_CPU(node_stats, 1, struct hr_node_stats);

/* Ethernet, IPv6 and UDP headers take 62 bytes: they end where the answer begins, which so stands at a multiple of 8.
 */
#define HR_NODE_HEAD_BYTES 64

/* The datagram in hand, and its answer. The XDP program's alone: it is not interrupted by itself. */
struct hr_node_scratch {
  __u8 head[HR_NODE_HEAD_BYTES];
  struct {
    struct hr_peer_header header;
    union hr_node_reply body;
  } answer;
  struct hr_node_taken taken;
  struct hr_node_spoken spoken;
  __u32 frame_bytes;
  __u32 payload_offset;
  __u32 bytes; /* of the datagram */
  __u32 ipv6;
  __u32 kind;
  __u32 pad;
  union {
    struct hr_node_datagram datagram;
    __u64 words[HR_NODE_DATAGRAM_MAX_BYTES / 8 + 1];
  };
};
HR_PER_CPU(scratch, 1, struct hr_node_scratch);

const volatile struct hr_node_config node_config __weak = {};

HR_INLINE void hr_node_count(__u32 event) {
  __u32 zero = 0;
  struct hr_node_stats *stats = bpf_map_lookup_elem(&node_stats, &zero);

  if (stats && event < HR_NODE_EVENT_COUNT) stats->events[event]++;
}
