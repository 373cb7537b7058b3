/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of the data plane, with the writer of each and the reason for its size. Sizes written 1 here are set by the
 * loader from the configuration's limits.
 */
#pragma once

#include "bpf/abi/config_abi.h"
#include "bpf/abi/request_abi.h"
#include "bpf/abi/stats_abi.h"
#include "bpf/abi/trace_abi.h"
#include "bpf/map.bpf.h"

/* ---- Written by user space -------------------------------------------------------------------------------------- */

/* Two generations of all services: the published one, and the one that a reload fills. */
HR_MAPPED_ARRAY(configs, HR_GENERATIONS *HR_MAX_SERVICES, struct hr_service_config);
HR_MAPPED_ARRAY(policies, HR_MAX_SERVICES, struct hr_service_policy);
HR_ARRAY(backends, HR_MAX_BACKENDS, struct hr_backend);
HR_MAPPED_ARRAY(backend_tuning, HR_MAX_BACKENDS, struct hr_backend_tuning);

/* (VIP, port) -> service id. Changed by reloads. */
HR_HASH(vips, HR_MAX_SERVICES, struct hr_endpoint, __u32);

/* (backend address, port) -> backend id. Changed by reloads. */
HR_HASH(backend_ids, HR_MAX_BACKENDS, struct hr_endpoint, __u32);

/*
 * Cluster id -> the key and epoch of its announcements. Changed by reloads. At most one for each service, and while a
 * reload changes them one more.
 */
HR_HASH(clusters, 2 * HR_MAX_SERVICES, __u64, struct hr_cluster);

/* VIP address alone. */
HR_HASH(vip_addresses, HR_MAX_SERVICES, struct hr_address, struct hr_vip);

/* This host's addresses, by which packets are its own (docs/adr/0056). A packet from a further one is known by its
 * socket alone. */
HR_HASH(own_addresses, HR_MAX_OWN_ADDRESSES, struct hr_address, __u32);

/* ---- Written by the control and the reply program (announcements), under its lock ---------------------------------
 */

struct hr_leader {
  struct bpf_spin_lock lock;
  __u32 pad;
  struct hr_leader_view view;
};
HR_ARRAY(leaders, HR_MAX_SERVICES, struct hr_leader);

/* ---- Written by the kernel programs ------------------------------------------------------------------------------ */

/*
 * Key -> request: sets of references, see hr_scoreboard_set. Never an LRU map: the clock's look-ups of old entries
 * would mark them as referenced and the LRU would evict live ones. Not a kernel hash either: an insertion there cost
 * 385 ns of a splitter's 1,500 (cold bucket, lock, element), here one cache line. Twice as many places as requests.
 */
HR_ARRAY(scoreboard, 1, struct hr_scoreboard_set);

/* Free indices of `requests` and `pool`: what each CPU keeps, and what all share, a lock for each batch. */
HR_PER_CPU(free_caches, HR_FREE_LISTS, struct hr_free_cache);
HR_STACK(free_requests, 1, struct hr_free_batch); /* limits.requests / free_batch + 1 */
HR_STACK(free_parked, 1, struct hr_free_batch);   /* limits.parked / free_batch + 1 */

HR_MAPPED_ARRAY(requests, 1, struct hr_request); /* limits.requests + 1: index 0 is no request */
HR_ARRAY(pool, 1, struct hr_parked);             /* limits.parked + 1 */
HR_MAPPED_ARRAY(wheels, 1, struct hr_wheel);

/*
 * When full they forget the flow that was silent longest. A reply to a forgotten flow still reaches a tracked request's
 * client, and a socket of this host that is connected to the VIP; else none (counted as no_flow). Size them above the
 * number of client sockets that wait at one time, times backends, and of connections, times two.
 */
HR_LRU_HASH(flows, 1, struct hr_flow_key, struct hr_flow);
HR_LRU_HASH(crowded_flows, 1, struct hr_flow_key,
            struct hr_flow); /* of clients that make more than their part of `flows` anew */
HR_LRU_HASH(connections, 1, struct hr_flow_key, struct hr_flow);
/* When full it forgets the oldest. */
HR_LRU_HASH(late_requests, 1, struct hr_request_key, struct hr_late); /* limits.flows / HR_FLOW_PARTS */

/* When full it forgets the oldest fragmented datagram; its later fragments then reach no receiver (counted). */
HR_LRU_HASH(fragments, 1, struct hr_fragment_key, struct hr_fragment);

HR_MAPPED_ARRAY(backend_states, 2 * HR_MAX_BACKENDS, struct hr_backend_state);
HR_MAPPED_ARRAY(backend_loads, HR_MAX_BACKENDS, struct hr_backend_load);
HR_MAPPED_ARRAY(service_states, HR_MAX_SERVICES, struct hr_service_state);
HR_ARRAY(clients, HR_CLIENTS, struct hr_client);
HR_PER_CPU(stats, HR_MAX_SERVICES + 1, struct hr_stats);
HR_PER_CPU(backend_stats, HR_MAX_BACKENDS, struct hr_backend_stats);
/* HR_SERVICE_HISTOGRAMS for each service, and HR_BACKEND_HISTOGRAMS for each backend, that there is room for
 * (DataPlaneRoom). */
HR_PER_CPU(service_histograms, 1, struct hr_histogram);
HR_PER_CPU(backend_histograms, 1, struct hr_histogram);

/* A variable and not an element to be looked up: reading it takes one register and no stack. */
struct hr_live hr_live __weak SEC(".data.live") = {};

/* ---- Fixed at load ----------------------------------------------------------------------------------------------- */

const volatile struct hr_load_config load_config __weak = {};

/* Makes another build of the same programs; see hedgerow_bpf_skeleton. */
#ifndef HR_BUILD_LABEL
#define HR_BUILD_LABEL "this"
#endif
const volatile char build_label[8] __weak = HR_BUILD_LABEL;
