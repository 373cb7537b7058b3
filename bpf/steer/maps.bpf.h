/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of a group, with the writer of each. All are pinned and outlive the supervisor. The programs only
 * read the table, the state and the devices; BPF_F_RDONLY_PROG would say so of the first two, but closes them to
 * mmap(2), too.
 */
#pragma once

#include "bpf/abi/steer_abi.h"
#include "bpf/map.bpf.h"

/* By place. The supervisor inserts; the kernel removes a socket that closes. One for each transport: a
 * socket array's sockets must be of the protocol that the packet is of. The value's 8 bytes let user space read the
 * socket's cookie. */
HR_MAP(REUSEPORT_SOCKARRAY, 0, steer_udp_sockets, HR_STEER_PLACES, __u32, __u64);
HR_MAP(REUSEPORT_SOCKARRAY, 0, steer_tcp_sockets, HR_STEER_PLACES, __u32, __u64);

/* By bucket, in two halves (hr_steer_state). Mapped by the supervisor, which writes whole entries. */
HR_MAPPED_ARRAY(steer_table, 2 * HR_STEER_BUCKETS, struct hr_steer_entry);

/* The one element is mapped by the supervisor. */
HR_MAPPED_ARRAY(steer_state, 1, struct hr_steer_state);

/* Complete and frozen before the first socket exists. */
HR_MAP(LPM_TRIE, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG, steer_devices, HR_STEER_DEVICES, struct hr_steer_network,
       struct hr_steer_device);

/* The slot of each source that stays with its open connections. Written by the supervisor, and by the programs while
 * they record. */
HR_HASH(steer_pins, HR_STEER_PINS, struct hr_steer_source, __u32);

/* Where each flow began. Written by the program; the supervisor sends those elsewhere whose worker it asks to end. One
 * element where datagrams are of no sessions. */
HR_LRU_HASH(steer_flows, HR_STEER_FLOWS, struct hr_steer_flow, struct hr_steer_opened);

/* When a flow was last heard, at two places of the kernel's hash of its addresses and ports: a Bloom filter of ticks. A
 * new flow is taken for one of them with the probability (flows / HR_STEER_HEARD)^2. Written by the program. */
HR_MAP(ARRAY, 0, steer_heard, 1, __u32, struct hr_steer_heard);

/* Written by the programs. */
HR_PER_CPU(steer_slot_counts, HR_STEER_SLOTS, struct hr_steer_slot_counts);
HR_PER_CPU(steer_counts, 1, struct hr_steer_counts);
