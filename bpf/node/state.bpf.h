/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps that every kernel program of a node shares, in whatever object it is: the state of rule R0, the numbers that
 * all draw from, and the cluster's keys. Each object's loader puts the node's own maps in their place.
 */
#pragma once

#include "bpf/map.bpf.h"
#include "bpf/node/raft/node_abi.h"

/* Of rule R0: changed by the XDP program, and for the process by the control program. Never by an update. */
struct hr_node {
  struct bpf_spin_lock lock;
  __u32 pad;
  struct hr_node_shared shared;
};
HR_ARRAY(node, 1, struct hr_node);

/* Drawn from by atomic additions of programs and process. */
HR_MAPPED_ARRAY(numbers, 1, struct hr_node_numbers);

/*
 * Written by the process, one element at a time. A hash map replaces an element by another, and one that is not
 * preallocated frees the former after its last reader: a program sees a whole key, the former or the new one.
 */
HR_MAP(HASH, BPF_F_NO_PREALLOC, node_keys, HR_NODE_KEYS, __u32, struct hr_node_key);

HR_INLINE struct hr_node_key *hr_node_key_of(__u32 id) { return bpf_map_lookup_elem(&node_keys, &id); }
