/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of the watch, with who writes each. The programs that note a death include only this file: none of
 * these maps has a lock. Weak, since two objects are linked into one.
 */
#ifndef HEDGEROW_BPF_NODE_WATCH_WATCH_MAPS_BPF_H_
#define HEDGEROW_BPF_NODE_WATCH_WATCH_MAPS_BPF_H_

#include <linux/bpf.h>
/* The order of these two matters: the helpers need the types. */
#include <bpf/bpf_helpers.h>

#include "bpf/node/watch/watch_abi.h"

/* Written by the watchdog's programs, read by the clock and by the process. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_watch);
} node_watch SEC(".maps") __weak;

/* Written by the clock, read by the process. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_watch_clock);
} node_clock SEC(".maps") __weak;

/* Written by the process: as leader, whenever the order of its followers changes. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_watch_plan);
} node_plan SEC(".maps") __weak;

/* Written by the process: at its start, and when a route changes. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_WATCH_TARGETS);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_watch_target);
} node_targets SEC(".maps") __weak;

#endif /* HEDGEROW_BPF_NODE_WATCH_WATCH_MAPS_BPF_H_ */
