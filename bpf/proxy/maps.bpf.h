/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of the data plane, with the writer of each and the reason for its size. The entry programs are compiled one by
 * one and linked into one object, so every map is weak: the linker keeps one of each. Sizes written 1 here are set
 * by the loader from the configuration's limits.
 */
#ifndef HEDGEROW_BPF_PROXY_MAPS_BPF_H_
#define HEDGEROW_BPF_PROXY_MAPS_BPF_H_

#include <linux/bpf.h>
/* The order of these two matters: the helpers need the types. */
#include <bpf/bpf_helpers.h>

#include "bpf/abi/config_abi.h"
#include "bpf/abi/request_abi.h"
#include "bpf/abi/stats_abi.h"

/* ---- Written by user space -------------------------------------------------------------------------------------- */

/* Two generations of all services: the published one, and the one that a reload fills. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_GENERATIONS * HR_MAX_SERVICES);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_service_config);
} configs SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_MAX_SERVICES);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_service_policy);
} policies SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_MAX_BACKENDS);
  __type(key, __u32);
  __type(value, struct hr_backend);
} backends SEC(".maps") __weak;

/* (VIP, port) -> service id. Changed by reloads. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HR_MAX_SERVICES);
  __type(key, struct hr_endpoint);
  __type(value, __u32);
} vips SEC(".maps") __weak;

/* (backend address, port) -> backend id. Changed by reloads. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HR_MAX_BACKENDS);
  __type(key, struct hr_endpoint);
  __type(value, __u32);
} backend_ids SEC(".maps") __weak;

/*
 * Cluster id -> the key and epoch of its announcements. Changed by reloads. At most one for each service, and while a reload
 * changes them one more.
 */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 2 * HR_MAX_SERVICES);
  __type(key, __u64);
  __type(value, struct hr_cluster);
} clusters SEC(".maps") __weak;

/* VIP address alone -> 1: what may be pinged. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HR_MAX_SERVICES);
  __type(key, struct hr_address);
  __type(value, __u32);
} vip_addresses SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_MAX_BACKENDS);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_backend_tuning);
} backend_tuning SEC(".maps") __weak;

/* ---- Written by the control and the reply program (announcements), under its lock --------------------------------- */

struct hr_leader {
  struct bpf_spin_lock lock;
  __u32 pad;
  struct hr_leader_view view;
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_MAX_SERVICES);
  __type(key, __u32);
  __type(value, struct hr_leader);
} leaders SEC(".maps") __weak;

/* ---- Written by the kernel programs ------------------------------------------------------------------------------ */

/*
 * Key -> request: sets of references, see hr_scoreboard_set. Never an LRU map: the clock's look-ups of old entries would
 * mark them as referenced and the LRU would evict live ones. Not a kernel hash either: an insertion there cost 385 ns
 * of a splitter's 1,500 (cold bucket, lock, element), here one cache line. Twice as many places as requests.
 */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct hr_scoreboard_set);
} scoreboard SEC(".maps") __weak;

/* Free indices of `requests` and `pool`. A kernel queue map takes a lock, and hands out the coldest element. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_FREE_LISTS);
  __type(key, __u32);
  __type(value, struct hr_free_list);
} free_lists SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* limits.requests + 1: index 0 is no request */
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_request);
} requests SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* limits.parked + 1 */
  __type(key, __u32);
  __type(value, struct hr_parked);
} pool SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* limits.parked + 1 */
  __type(key, __u32);
  __type(value, __u32);
} parked_links SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_wheel);
} wheels SEC(".maps") __weak;

/*
 * When full it forgets the flow that was silent longest; a reply to a forgotten flow reaches no client (counted as
 * no_flow). Size it above the number of client sockets that wait at one time, times backends.
 */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1);
  __type(key, struct hr_flow_key);
  __type(value, struct hr_flow);
} flows SEC(".maps") __weak;

/* When full it forgets the oldest fragmented datagram; its later fragments then reach no receiver (counted). */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1);
  __type(key, struct hr_fragment_key);
  __type(value, struct hr_fragment);
} fragments SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_MAX_BACKENDS);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_backend_state);
} backend_states SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HR_MAX_SERVICES);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct hr_service_state);
} service_states SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, HR_MAX_SERVICES + 1);
  __type(key, __u32);
  __type(value, struct hr_stats);
} stats SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, HR_MAX_BACKENDS);
  __type(key, __u32);
  __type(value, struct hr_backend_stats);
} backend_stats SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1); /* HR_SERVICE_HISTOGRAMS for each service that there is room for (DataPlaneRoom) */
  __type(key, __u32);
  __type(value, struct hr_histogram);
} service_histograms SEC(".maps") __weak;

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1); /* HR_BACKEND_HISTOGRAMS for each backend that there is room for */
  __type(key, __u32);
  __type(value, struct hr_histogram);
} backend_histograms SEC(".maps") __weak;

/* ---- Fixed at load ----------------------------------------------------------------------------------------------- */

const volatile struct hr_load_config load_config __weak = {};

/* Makes another build of the same programs; see hedgerow_bpf_skeleton. */
#ifndef HR_BUILD_LABEL
#define HR_BUILD_LABEL "this"
#endif
const volatile char build_label[8] __weak = HR_BUILD_LABEL;

#endif /* HEDGEROW_BPF_PROXY_MAPS_BPF_H_ */
