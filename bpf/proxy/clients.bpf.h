/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * May this packet use a VIP? A VIP serves its host: what a socket here sends passes, and what netfilter gave an IPv4
 * address of this host (MASQUERADE, SNAT), as a container's packets behind Docker's bridge (docs/adr/0056). Else what
 * this host forwards, for a container, a virtual machine or another host, passes from the networks that the service
 * lists, and so does what a child of an uplink sends. The kernel tells what is forwarded: ingress_ifindex (skb_iif) is
 * 0 unless the packet has come in from an interface; way.bpf.h tells children. Called by the splitter, for each packet.
 */
#pragma once

#include "bpf/proxy/stats.bpf.h"
#include "bpf/proxy/way.bpf.h"

/* 1: the source is in one of the service's networks, which are of its VIP's family. */
HR_GLOBAL int hr_lists_client(const struct hr_service_config *config, const struct hr_address *source) {
  if (!config || !source) return 0;
  for (__u32 i = 0; i < HR_MAX_CLIENT_NETWORKS && i < config->client_networks; ++i) {
    const struct hr_network *network = &config->clients[i];

    if ((source->halves[0] & network->mask.halves[0]) == network->address.halves[0] &&
        (source->halves[1] & network->mask.halves[1]) == network->address.halves[1])
      return 1;
  }
  return 0;
}

/*
 * Has this host hidden the sender behind an address of its own? No IPv4 packet comes in with one (Linux drops it as
 * martian), so one that goes out with one was given it here. An IPv6 neighbour could forge it, and spend this host's
 * shares.
 */
HR_INLINE int hr_is_hidden_by_host(const struct hr_packet *packet) {
  return packet->version == 4 && packet->way != HR_WAY_STRANGER && hr_has_own_source(packet);
}

/* 0: dropped, and counted as the service's. */
HR_INLINE int hr_may_use_vip(const struct __sk_buff *skb, const struct hr_packet *packet,
                             const struct hr_service_config *config, __u32 service_id) {
  struct hr_address source;

  if (!skb->ingress_ifindex && packet->way != HR_WAY_STRANGER) return 1;
  /* From the clock's link only what the splitter has seen before comes (segment.bpf.h). */
  if (skb->ingress_ifindex == load_config.clock_in_ifindex || hr_is_hidden_by_host(packet)) return 1;
  source = packet->source;
  if (config && hr_lists_client(config, &source)) return 1;
  hr_reason(hr_stats_of(service_id), HR_REASON_NOT_A_CLIENT);
  return 0;
}
