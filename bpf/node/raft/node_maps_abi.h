/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the loader gives a node's kernel programs: their identity, the addresses of the members, and the mark of a
 * datagram for several of them. bpf/node reads it; cluster/offload/bpf_kernel writes it. The state that they share is
 * in bpf/node/raft/node_abi.h.
 */
#pragma once

#include "bpf/node/raft/node_abi.h"

/* Fixed while the programs are loaded. The configuration's epoch is in the shared state: it changes under the fence. */
struct hr_node_config {
  __u64 cluster_id;
  struct hr_address address; /* where this node's peers send to */
  __u32 self;                /* node id */
  __u16 port_be;
  __u16 reserved;
};
HR_STATIC_ASSERT(sizeof(struct hr_node_config) == 32, "hr_node_config");

enum hr_node_peer_flag {
  HR_NODE_PEER_MAC = 1, /* ifindex and both MACs are known: the broadcast may send to it */
};

/* A member by its slot. Written by the process only; a reader may see half of a change, which costs a datagram. */
struct hr_node_peer {
  struct hr_address address;
  __u32 node; /* id; 0: no member */
  __u16 port_be;
  __u16 flags;  /* enum hr_node_peer_flag */
  __u8 mac[12]; /* as a frame begins: the next hop's, and that of the interface itself */
  __u32 ifindex;
};
HR_STATIC_ASSERT(sizeof(struct hr_node_peer) == 40, "hr_node_peer");

/*
 * Between the kernel programs and a leader's process: what the process would be woken for it sees by itself while it is
 * awake (bpf/node/raft/take.h, hr_node_only_wakes). Each side has a cache line of its own. Not pinned: a new process
 * begins with a new one.
 */
struct hr_node_doorbell {
  __u64 awake;      /* the process's: it will look at `moved` before it sleeps */
  __u64 sent_index; /* the process's: as leader it has sent entries up to this one ... */
  __u64 sent_round; /* ... and heartbeats up to this round. No follower can have answered more. */
  __u64 unused[5];
  __u64 moved; /* the programs': grows whenever something moved that the process should look at */
  __u64 unused_too[7];
};
HR_STATIC_ASSERT(sizeof(struct hr_node_doorbell) == 128, "hr_node_doorbell");

/* How the XDP program is attached. */
struct hr_node_hook {
  __u32 generic; /* on packets that the stack has received already; 0: in the driver */
};
HR_STATIC_ASSERT(sizeof(struct hr_node_hook) == 4, "hr_node_hook");

/* Whose pinned maps these are. Written last when they are made: without it nothing was ever accepted. */
struct hr_node_about {
  __u32 abi_version; /* HR_NODE_ABI_VERSION */
  __u32 self;
  __u64 cluster_id;
};

/* Mark of a datagram that the broadcast copies to the members of a mask. Cleared before anybody else sees it. */
#define HR_NODE_MARK_BROADCAST 0x4e000000u
#define HR_NODE_MARK_MEMBERS(mark) ((mark) & ((1u << HR_NODE_MEMBERS) - 1))
