/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the leader of a cluster announces to a proxy, as bytes: one datagram, the same for the node that writes it
 * (cluster/wire/announce.cc) and for the kernel program that checks it and changes the leader map. All integers
 * are little-endian, but for the address and the port, which stand in network order as they do in a packet.
 */
#pragma once

#include "bpf/abi/base_abi.h"

#define HR_ANNOUNCEMENT_MAGIC 0x31415248u /* "HRA1" */
#define HR_ANNOUNCEMENT_VERSION 1
#define HR_ANNOUNCEMENT_BYTES 104

enum hr_announcement_state {
  HR_ANNOUNCEMENT_LEADING = 1,
  HR_ANNOUNCEMENT_RESIGNING = 2,
};

/*
 * How far a term may be beyond the last accepted one: a million terms at once, and one more for each 65 microseconds
 * since, which is 15,000 elections a second. An election takes milliseconds, so no cluster is ever further: not one
 * that held elections every second while this host was suspended for twelve days.
 */
#define HR_TERM_LEAP_MAX (1ull << 20)
#define HR_TERM_NS_SHIFT 16

struct hr_announcement {
  __u32 magic;
  __u8 version;
  __u8 state;  /* enum hr_announcement_state */
  __u16 bytes; /* HR_ANNOUNCEMENT_BYTES */
  __u64 tag;   /* SipHash-2-4 of the whole datagram with this field 0, with the proxy's key; see siphash_abi.h */
  __u64 cluster_id;
  __u64 cluster_epoch;
  __u64 term;
  __u64 sequence; /* orders announcements within a term */
  struct hr_address leader_address;
  __u16 leader_port_be;
  __u8 reserved[2];
  /*
   * The leader may still hold requests that it was sent within this many ms: the age of its process, but at most the
   * time for which it holds any request. An unanswered request that was sent to it earlier is lost. 0 = not reported.
   */
  __u32 holds_ms;
  __u8 successors[32]; /* reserved */
};
HR_STATIC_ASSERT(sizeof(struct hr_announcement) == HR_ANNOUNCEMENT_BYTES, "hr_announcement is 104 bytes");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, state) == 5, "state");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, bytes) == 6, "bytes");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, tag) == 8, "tag");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, cluster_id) == 16, "cluster_id");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, cluster_epoch) == 24, "cluster_epoch");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, term) == 32, "term");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, sequence) == 40, "sequence");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, leader_address) == 48, "leader_address");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, leader_port_be) == 64, "leader_port_be");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, reserved) == 66, "reserved");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, holds_ms) == 68, "holds_ms");
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_announcement, successors) == 72, "successors");
