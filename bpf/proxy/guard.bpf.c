// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * GUARD: TC ingress and egress of every interface that is no uplink and none of the proxy's own: containers' and
 * tunnels' ends, bridges. Nothing comes in there in a VIP's name, and no local socket, which may bind any address
 * (IP_FREEBIND), sends in one to what is behind it. What the proxy answers is forwarded from its own interface, and the
 * kernel's own errors about packets to a VIP are told by no interface of their own.
 */
#include "bpf/proxy/forged.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

SEC("tc")
int hr_guard(struct __sk_buff *skb) {
  if (skb->ingress_ifindex && skb->ingress_ifindex != skb->ifindex) return TC_ACT_UNSPEC;
  /* A bridge's port: what is for this host, or routed by it, comes once more by the bridge. The rest is others'. */
  if (skb->ingress_ifindex && skb->pkt_type == PACKET_OTHERHOST) return TC_ACT_UNSPEC;
  if (!hr_bears_vip(skb, skb->ingress_ifindex != 0) || hr_has_tag(skb)) return TC_ACT_UNSPEC;
  hr_host_reason(HR_REASON_FORGED_VIP);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
