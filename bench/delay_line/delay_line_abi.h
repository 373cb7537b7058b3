/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What delay_line.bpf.c and delay_line_main.cc share. Addresses and ports are in network order. */
#pragma once

#include <linux/types.h>

/*
 * The line's qdisc is 1: . netem holds every packet back. fq keeps to the departure time that each packet gets. A leaf
 * of htb lets a packet of any size pass and then none for the delay, so a charger goes first and the clone behind it
 * waits; then the leaf needs as long again before the next may use it.
 */
enum hr_line_qdisc { HR_LINE_NETEM = 0, HR_LINE_FQ = 1, HR_LINE_HTB = 2 };
#define HR_LINE_HANDLE 0x00010000u
#define HR_LINE_LEAVES 1024
#define HR_LINE_LEAF_BASE 16

#define HR_LINE_REQUESTS (1 << 17)
#define HR_LINE_FIRE_ERRORS (1 << 17)

struct hr_line_config {
  __u64 delay_ns;
  __u32 uplink_ifindex;
  __u32 line_ifindex; /* the end that carries the qdisc */
  __u32 qdisc;        /* enum hr_line_qdisc */
  __u32 id_mask_be;   /* of a payload's first 4 bytes: what pairs an answer with its request */
  __u32 primary_be;
  __u32 standby_be;
  __u16 port_be; /* of both */
  __u16 pad[3];
};

struct hr_line_counters {
  __u64 requests;
  __u64 line_full; /* requests without a clone: the qdisc took no more, or every htb leaf is in use */
  __u64 hedges;
  __u64 hedges_failed;
  __u64 won_by_hedge;
  __u64 losers_dropped;
};
