// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * SINK: TC ingress of the proxy interface's peer. A packet that reaches this end was sent to a VIP but is for no service. It
 * is dropped here and counted, because the stack would route it to the VIP again.
 */
#include "bpf/proxy/stats.bpf.h"

#include <linux/pkt_cls.h>

SEC("tc")
int hr_sink(struct __sk_buff *skb) {
  (void)skb;
  hr_host_reason(HR_REASON_SINK);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
