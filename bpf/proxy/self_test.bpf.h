/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The proxy's test of its own way (docs/adr/0047): the daemon sends a datagram to a VIP and has to get it back. It
 * passes all that a request and its answer pass on this host but the wire: firewall rules on the way out, the splitter,
 * the programs in front of the reply program on the uplink, that program, and firewall rules on the way in. Two
 * counters say how far it came.
 */
#pragma once

#include "bpf/proxy/choose.bpf.h"
#include "bpf/proxy/rewrite.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#include <linux/pkt_cls.h>

/* Is this datagram to a VIP the daemon's test? Decided by the tag, which only root can read. */
HR_INLINE int hr_is_self_test(struct __sk_buff *skb, const struct hr_packet *packet) {
  __u64 tag;

  return packet->payload_bytes == sizeof(struct hr_self_test) && packet->fragment == HR_WHOLE &&
         !bpf_skb_load_bytes(skb, packet->l4_offset + sizeof(struct udphdr), &tag, sizeof(tag)) &&
         tag == load_config.self_test_tag;
}

/* The splitter's part: back as from a backend, at the ingress of its uplink. A global function: rare. */
HR_GLOBAL int hr_turn_self_test(struct __sk_buff *skb, struct hr_packet *packet, __u32 config_id) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_backend *backend;
  struct hr_address address;
  __u64 number = 0;
  __u32 place, backend_id, ports;

  if (!packet || !config ||
      bpf_skb_load_bytes(skb, packet->l4_offset + sizeof(struct udphdr) + sizeof(__u64), &number, sizeof(number)))
    return TC_ACT_SHOT;
  place = number & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  if (!(config->present & (1u << place))) place = hr_leader_of(HR_CONFIG_SERVICE(config_id));
  backend_id = hr_backend_id(config, place);
  backend = bpf_map_lookup_elem(&backends, &backend_id);
  if (!backend) return TC_ACT_SHOT;
  hr_count(hr_stats_of(HR_CONFIG_SERVICE(config_id)), HR_SELF_TESTS);
  address = backend->address;
  if (hr_rewrite_destination(skb, packet, &address, backend->port_be)) return TC_ACT_SHOT;
  /* Both ends change places, which changes no sum. */
  ports = packet->destination_port_be | (__u32)packet->source_port_be << 16;
  if (packet->version == 4) {
    if (bpf_skb_store_bytes(skb, packet->l3_offset + 12, &packet->destination.words[3], 4, 0) ||
        bpf_skb_store_bytes(skb, packet->l3_offset + 16, &packet->source.words[3], 4, 0))
      return TC_ACT_SHOT;
  } else if (bpf_skb_store_bytes(skb, packet->l3_offset + 8, &packet->destination, 16, 0) ||
             bpf_skb_store_bytes(skb, packet->l3_offset + 24, &packet->source, 16, 0)) {
    return TC_ACT_SHOT;
  }
  if (bpf_skb_store_bytes(skb, packet->l4_offset, &ports, sizeof(ports), 0) || hr_put_tag(skb)) return TC_ACT_SHOT;
  return bpf_redirect(backend->uplink_ifindex, BPF_F_INGRESS);
}
