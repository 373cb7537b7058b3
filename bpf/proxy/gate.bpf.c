// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * GATE: TC egress of the proxy's own links, where any process of the host can send that binds to the device. Only the
 * proxy's own packets pass, so that nobody else's fill the clock's queueing discipline or reach its program. On the
 * clock's near end these bear the load's tag (hr_load_config.clock_tag). On the far ends of both links nothing of the
 * proxy's ever leaves.
 *
 * With fq the gate also gives the clock packet its departure time: skb->priority says how long it is to wait. A
 * redirect clears an skb's time stamp, so only here, just before the queueing discipline, can it be set. Everything
 * else leaves at once.
 */
#include "bpf/proxy/wheel.bpf.h"

#include <linux/pkt_cls.h>

HR_INLINE int hr_turn_away(void) {
  hr_host_reason(HR_REASON_FOREIGN_ON_LINK);
  return TC_ACT_SHOT;
}

SEC("tc")
int hr_gate(struct __sk_buff *skb) {
  __u32 kind = HR_MARK_KIND(skb->mark);

  if ((kind != HR_MARK_LAP && kind != HR_MARK_RELEASE && kind != HR_MARK_SEGMENT_IN && kind != HR_MARK_SEGMENT_OUT) ||
      !hr_has_tag(skb))
    return hr_turn_away();
  /* fq lets a packet pass whose time has come, in CLOCK_MONOTONIC as this is. */
  if (load_config.clock_kind == HR_CLOCK_FQ && kind == HR_MARK_LAP) skb->tstamp = bpf_ktime_get_ns() + skb->priority;
  return TC_ACT_UNSPEC;
}

SEC("tc")
int hr_closed_gate(struct __sk_buff *skb) {
  (void)skb;
  return hr_turn_away();
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
