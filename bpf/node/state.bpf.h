/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The two maps that every kernel program of a node shares, in whatever object it is: the state of rule R0, and the
 * numbers that all draw from. Each object's loader puts the node's own maps in their place.
 */
#ifndef HEDGEROW_BPF_NODE_STATE_BPF_H_
#define HEDGEROW_BPF_NODE_STATE_BPF_H_

#include <linux/bpf.h>
/* The order of these two matters: the helpers need the types. */
#include <bpf/bpf_helpers.h>

#include "bpf/node/raft/node_abi.h"

/* Of rule R0: changed by the XDP program, and for the process by the control program. Never by an update. */
struct hr_node {
  struct bpf_spin_lock lock;
  __u32 pad;
  struct hr_node_view view;
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct hr_node);
} node SEC(".maps") __weak;

/* Drawn from by atomic additions of programs and process. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_node_numbers);
} numbers SEC(".maps") __weak;

#endif /* HEDGEROW_BPF_NODE_STATE_BPF_H_ */
