/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Is a frame a datagram to this node's peer port? Contract: hr_node_parse() returns 1 for a whole UDP datagram over
 * plain Ethernet and IPv4 without options or IPv6 without extension headers, to exactly the configured address and
 * port, whose lengths agree; 0 for everything else, which is the network stack's. Everybody's traffic passes here: what
 * is not ours leaves after a few comparisons.
 */
#pragma once

#include "bpf/node/maps.bpf.h"

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#define HR_NODE_IPV4_PLAIN 0x45
#define HR_NODE_IPV4_FRAGMENT 0x3fff /* offset, or more fragments */
#define HR_NODE_UDP4_OFFSET (ETH_HLEN + 20)
#define HR_NODE_UDP6_OFFSET (ETH_HLEN + 40)

struct hr_node_frame {
  struct hr_address source;
  __u32 source_port_be;
  __u32 frame_bytes;
  __u32 payload_offset;
  __u32 bytes; /* of the datagram */
  __u32 ipv6;
};

HR_INLINE void hr_node_map_ipv4(struct hr_address *address, __be32 ipv4) {
  address->words[0] = 0;
  address->words[1] = 0;
  address->words[2] = bpf_htonl(0xffff);
  address->words[3] = ipv4;
}

/* `l4_bytes`: of layer 4, as the IP header says. */
HR_INLINE int hr_node_parse_udp(const struct udphdr *udp, __u32 l4_bytes, __u32 l4_offset,
                                struct hr_node_frame *frame) {
  if (udp->dest != node_config.port_be) return 0;
  if (bpf_ntohs(udp->len) != l4_bytes || l4_bytes < sizeof(*udp)) return 0;
  if (l4_offset + l4_bytes > frame->frame_bytes) return 0;
  frame->source_port_be = udp->source;
  frame->payload_offset = l4_offset + sizeof(*udp);
  frame->bytes = l4_bytes - sizeof(*udp);
  return 1;
}

HR_INLINE int hr_node_parse_ipv4(void *data, void *end, struct hr_node_frame *frame) {
  struct iphdr *ip = data + ETH_HLEN;
  struct udphdr *udp = data + HR_NODE_UDP4_OFFSET;

  if ((void *)(udp + 1) > end) return 0;
  if (*(__u8 *)ip != HR_NODE_IPV4_PLAIN || ip->protocol != IPPROTO_UDP) return 0;
  if (ip->frag_off & bpf_htons(HR_NODE_IPV4_FRAGMENT)) return 0;
  if (ip->daddr != node_config.address.words[3] || node_config.address.words[2] != bpf_htonl(0xffff)) return 0;
  if (node_config.address.halves[0]) return 0;
  hr_node_map_ipv4(&frame->source, ip->saddr);
  frame->ipv6 = 0;
  return hr_node_parse_udp(udp, (__u32)bpf_ntohs(ip->tot_len) - sizeof(*ip), HR_NODE_UDP4_OFFSET, frame);
}

HR_INLINE int hr_node_parse_ipv6(void *data, void *end, struct hr_node_frame *frame) {
  struct ipv6hdr *ip = data + ETH_HLEN;
  struct udphdr *udp = data + HR_NODE_UDP6_OFFSET;
  struct hr_address destination;

  if ((void *)(udp + 1) > end) return 0;
  if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP) return 0;
  __builtin_memcpy(&destination, &ip->daddr, sizeof(destination));
  if (destination.halves[0] != node_config.address.halves[0] || destination.halves[1] != node_config.address.halves[1])
    return 0;
  __builtin_memcpy(&frame->source, &ip->saddr, sizeof(frame->source));
  frame->ipv6 = 1;
  return hr_node_parse_udp(udp, bpf_ntohs(ip->payload_len), HR_NODE_UDP6_OFFSET, frame);
}

HR_INLINE int hr_node_parse(struct xdp_md *ctx, struct hr_node_frame *frame) {
  void *data = (void *)(long)ctx->data;
  void *end = (void *)(long)ctx->data_end;
  struct ethhdr *ethernet = data;

  if ((void *)(ethernet + 1) > end) return 0;
  frame->frame_bytes = (__u32)bpf_xdp_get_buff_len(ctx);
  if (ethernet->h_proto == bpf_htons(ETH_P_IP)) return hr_node_parse_ipv4(data, end, frame);
  if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) return hr_node_parse_ipv6(data, end, frame);
  return 0;
}
