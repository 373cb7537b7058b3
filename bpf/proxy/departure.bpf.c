// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * DEPARTURE: TC egress of the clock's link where its queueing discipline is fq. skb->priority says how long the clock
 * packet is to wait; a redirect clears an skb's time stamp, so only here, just before the queueing discipline, can it be
 * turned into the departure time that fq keeps to. Everything else leaves at once.
 */
#include "bpf/proxy/maps.bpf.h"

#include <linux/pkt_cls.h>

SEC("tc")
int hr_departure(struct __sk_buff *skb) {
  /* fq lets a packet pass whose time has come, in CLOCK_MONOTONIC as this is. */
  if (HR_MARK_KIND(skb->mark) == HR_MARK_LAP) skb->tstamp = bpf_ktime_get_ns() + skb->priority;
  return TC_ACT_UNSPEC;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
