// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * SINK: TC ingress of the proxy interface's peer. A packet that reaches this end was sent to a VIP but is for
 * no service. It is dropped here and counted, because the stack would route it to the VIP again. But an ICMP
 * error of a client's side about what a backend sent in the VIP's name goes to that backend.
 */
#include "bpf/proxy/flow.bpf.h"
#include "bpf/proxy/icmp.bpf.h"
#include "bpf/proxy/time.bpf.h"

#include <linux/pkt_cls.h>

/*
 * A client's socket is closed, or a link behind this host takes smaller packets only: to the backend of the
 * connection or flow, about its own packet, so that it ends, or sends smaller ones. Such an error may come from
 * any router, and is believed as far as it quotes a flow. -1: it is no such error, or nothing is known of its
 * packet.
 */
HR_INLINE int hr_return_error(struct __sk_buff *skb) {
  struct hr_packet packet = {};
  struct hr_icmp_error error = {};
  struct hr_endpoint endpoint = {};
  struct hr_backend *backend;
  struct hr_address address;
  struct hr_flow_key key;
  struct hr_flow *flow;
  __u32 backend_id, *service;

  if (hr_parse(skb, &packet)) return -1;
  if (packet.protocol != (packet.version == 4 ? IPPROTO_ICMP : HR_IPPROTO_ICMPV6)) return -1;
  if (hr_parse_icmp_error(skb, &packet, &error) || !hr_same_address(&packet.destination, &error.quoted.source))
    return -1;
  endpoint.address = error.quoted.source;
  endpoint.port_be = error.quoted.source_port_be;
  service = bpf_map_lookup_elem(&vips, &endpoint);
  if (!service) return -1;
  hr_flow_key_of(&key, &error.quoted.destination, error.quoted.destination_port_be, error.quoted.protocol,
                 HR_FLOW_CONNECTION, *service);
  flow = hr_flow_look_up(&key, hr_now_ns());
  if (!flow) return -1;
  backend_id = flow->id;
  backend = bpf_map_lookup_elem(&backends, &backend_id);
  if (!backend) return -1;
  address = backend->address;
  if (hr_translate_icmp(skb, &packet, &error, HR_SOURCE, &address, backend->port_be)) return -1;
  hr_count(hr_stats_of(*service), HR_ICMP_TRANSLATED);
  return bpf_redirect_neigh(backend->uplink_ifindex, 0, 0, 0);
}

SEC("tc")
int hr_sink(struct __sk_buff *skb) {
  int verdict = hr_return_error(skb);

  if (verdict >= 0) return verdict;
  hr_host_reason(HR_REASON_SINK);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
