/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the lab's program for network faults (network_faults.bpf.c) and the script that sets the faults
 * (deploy/lab/network_faults.py, which has the same bytes as Python's struct) agree on. A link is a pair of ports of
 * the lab's switch, in one direction.
 */
#pragma once

#include "bpf/abi/base_abi.h"

#define HR_FAULTS_LINKS 128 /* 9 hosts have 72 */
#define HR_FAULTS_MILLION 1000000
#define HR_FAULTS_DELAY_CLASSES 8 /* of 0.5, 1, 2, ... 64 ms */
#define HR_FAULTS_SHORTEST_NS 500000
#define HR_FAULTS_LEAVES 256         /* of each class: as many packets can wait in it at once, about */
#define HR_FAULTS_HANDLE 0x00010000u /* htb's root is 1: */
#define HR_FAULTS_LEAF_BASE 0x10     /* the first leaf is 1:10 */
#define HR_FAULTS_FRAME_BYTES 1600   /* what htb charges for each frame; larger ones are not held back */

/* skb->mark of packets that a fault was drawn for. The lower half is the port that a held packet leaves by. */
#define HR_FAULTS_MARK 0x57e80000u
#define HR_FAULTS_MARK_MASK 0xfffc0000u
#define HR_FAULTS_MARK_KIND 0x00030000u
#define HR_FAULTS_DONE 0x00010000u
#define HR_FAULTS_CHARGE 0x00020000u /* a throw-away copy that empties a leaf of htb */
#define HR_FAULTS_HELD 0x00030000u

/* Ports by their interface numbers in the switch. */
struct hr_faults_pair {
  __u32 source;
  __u32 destination;
};
HR_STATIC_ASSERT(sizeof(struct hr_faults_pair) == 8, "hr_faults_pair is 8 bytes");

/* Shares are of a million. The n-th packet of a link meets the same fate whenever the seed is the same. */
struct hr_faults_link {
  __u64 seed;
  __u32 lost;
  __u32 duplicated;
  __u32 delayed;
  __u16 first_class; /* a delayed packet draws one of these classes */
  __u16 last_class;
  __u64 met; /* packets so far; what follows are counts of packets, too */
  __u64 lost_count;
  __u64 duplicated_count;
  __u64 delayed_count;
  __u64 not_delayed_count; /* that should have been: no leaf was free, or the frame was too large */
};
HR_STATIC_ASSERT(sizeof(struct hr_faults_link) == 64, "hr_faults_link is 64 bytes");
