/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The source of a packet, or of a connection that looks for a new listener. Called by the programs of steer.bpf.c.
 */
#pragma once

#include "bpf/steer/bucket.h"
#include "bpf/steer/maps.bpf.h"

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stddef.h>

#define HR_AF_INET 2 /* <linux/socket.h> has no families, and the C library's header is not for the target bpf */

/* The seed, and what of it the verifier can decide: the map is frozen before the programs are verified. */
const volatile struct hr_steer_config steer_config = {};

/* Both return the family, and 0 for what has no address that can be read. An IPv4 packet on a socket of [::] is IPv4
 * here. */
HR_INLINE __u32 hr_steer_packet_address(struct sk_reuseport_md *ctx, struct hr_address *address) {
  address->halves[0] = address->halves[1] = 0;
  if (ctx->eth_protocol == bpf_htons(ETH_P_IP)) {
    return bpf_skb_load_bytes_relative(ctx, offsetof(struct iphdr, saddr), address, 4, BPF_HDR_START_NET) ? 0 : 4;
  }
  if (ctx->eth_protocol == bpf_htons(ETH_P_IPV6)) {
    return bpf_skb_load_bytes_relative(ctx, offsetof(struct ipv6hdr, saddr), address, 16, BPF_HDR_START_NET) ? 0 : 6;
  }
  return 0;
}

/* Here is no packet that could be relied on. A listener on [::] has IPv4 connections as ::ffff:0:0/96. */
HR_INLINE __u32 hr_steer_connection_address(struct bpf_sock *connection, struct hr_address *address) {
  address->halves[0] = address->halves[1] = 0;
  if (connection->family == HR_AF_INET) {
    address->words[0] = connection->dst_ip4;
    return 4;
  }
  address->words[0] = connection->dst_ip6[0];
  address->words[1] = connection->dst_ip6[1];
  address->words[2] = connection->dst_ip6[2];
  address->words[3] = connection->dst_ip6[3];
  if (address->halves[0] || address->words[2] != bpf_htonl(0xffff)) return 6;
  address->words[0] = address->words[3];
  address->words[1] = 0;
  address->halves[1] = 0;
  return 4;
}

/* False: the address has no device. */
HR_INLINE int hr_steer_device_of(struct sk_reuseport_md *ctx, int is_udp, __u32 family,
                                 const struct hr_address *address, struct hr_steer_source *source) {
  const __u32 field_bytes = steer_config.field_bytes;
  struct hr_steer_network key = {.prefix_bits = 32 + (family == 4 ? 32 : 128),
                                 .family = family,
                                 .words = {address->halves[0], address->halves[1]}};
  struct hr_steer_device *device = bpf_map_lookup_elem(&steer_devices, &key);

  if (!device) return 0;
  if (is_udp && device->is_gateway && field_bytes && field_bytes <= sizeof(source->words)) {
    source->kind = HR_STEER_FIELD;
    source->words[0] = source->words[1] = 0;
    /* The data begins at the UDP header. */
    if (!bpf_skb_load_bytes(ctx, sizeof(struct udphdr) + steer_config.field_offset, source->words, field_bytes))
      return 1;
  }
  hr_steer_device_source(device, source);
  return 1;
}

/* False: unreadable. `migrating`: the connection that looks for a new listener, or NULL. */
HR_INLINE int hr_steer_source_of(struct sk_reuseport_md *ctx, int is_udp, struct bpf_sock *migrating,
                                 struct hr_steer_source *source) {
  struct hr_steer_config cut = {.ipv6_prefix = steer_config.ipv6_prefix};
  struct hr_address address;
  const __u32 family =
      migrating ? hr_steer_connection_address(migrating, &address) : hr_steer_packet_address(ctx, &address);

  if (!family) return 0;
  if (steer_config.has_devices && hr_steer_device_of(ctx, is_udp, family, &address, source)) return 1;
  hr_steer_address(&cut, family, address.halves, source);
  return 1;
}

HR_INLINE int hr_steer_flow_of(struct sk_reuseport_md *ctx, struct hr_steer_flow *flow) {
  struct hr_address address;

  flow->family = hr_steer_packet_address(ctx, &address);
  flow->words[0] = address.halves[0];
  flow->words[1] = address.halves[1];
  return flow->family && !bpf_skb_load_bytes(ctx, offsetof(struct udphdr, source), &flow->port, sizeof(__be16));
}

/* Whether the datagram is a session's first one, by the protocol's patterns. */
HR_INLINE int hr_steer_opens(struct sk_reuseport_md *ctx) {
  const __u64 *start = ctx->data + sizeof(struct udphdr);
  __u64 words[2];
  int opens = 0;
  __u32 i;

  if ((void *)(start + 2) <= ctx->data_end) { /* each datagram passes here: a call costs more */
    words[0] = start[0];
    words[1] = start[1];
  } else if (bpf_skb_load_bytes(ctx, sizeof(struct udphdr), words, sizeof(words))) {
    return 0;
  }
#pragma unroll
  for (i = 0; i < HR_STEER_OPENERS; i++) {
    const volatile struct hr_steer_opener *opener = &steer_config.opener[i];

    opens |= i < steer_config.openers && (words[0] & opener->mask[0]) == opener->value[0] &&
             (words[1] & opener->mask[1]) == opener->value[1];
  }
  return opens;
}

HR_INLINE __u32 hr_steer_bucket_of(const struct hr_steer_source *source) {
  struct hr_steer_config seeded = {.seed = {.k0 = steer_config.seed.k0, .k1 = steer_config.seed.k1}};

  return hr_steer_bucket(&seeded, source);
}
