/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From bytes to a packet description, once, for every program. Contract: hr_parse() reads an IPv4 or IPv6 packet at
 * `l3_offset` and returns 0 with every field set, or -1 for what is not IP, is cut short, or lies about its length
 * (the caller passes such a packet on untouched). Ports and identification stay in network order (`_be`); lengths
 * and offsets are in host order, offsets counted from skb->data. A later fragment has no ports.
 */
#pragma once

#include "bpf/abi/base_abi.h"

#include <linux/bpf.h>
/* The order of these matters: the helpers need the types. */
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#define HR_IPV4_MORE_FRAGMENTS 0x2000
#define HR_IPV4_FRAGMENT_OFFSET 0x1fff
#define HR_IPV6_MORE_FRAGMENTS 0x0001
#define HR_IPV6_FRAGMENT_OFFSET 0xfff8
#define HR_NEXT_HEADER_HOP_BY_HOP 0
#define HR_NEXT_HEADER_FRAGMENT 44
#define HR_NEXT_HEADER_DESTINATION 60
#define HR_IPV6_EXTENSIONS 4 /* headers in front of layer 4 that are read over; what has more is no UDP to us */
#define HR_IPPROTO_ICMPV6 58
#define HR_IPV4_HEADER_BYTES 20
#define HR_IPV6_HEADER_BYTES 40
#define HR_IPV6_NEXT_HEADER 6 /* its offset */

enum hr_fragment_kind {
  HR_WHOLE = 0,
  HR_FIRST_FRAGMENT = 1,
  HR_LATER_FRAGMENT = 2,
};

struct hr_packet {
  struct hr_address source;
  struct hr_address destination;
  __u16 source_port_be;
  __u16 destination_port_be;
  __u16 l3_offset;
  __u16 l4_offset;
  __u16 l3_bytes;      /* the whole layer 3 packet */
  __u16 payload_bytes; /* UDP: what this packet holds of the payload. A last fragment: the bytes of layer 4 in all */
  __u8 version;        /* 4 or 6 */
  __u8 protocol;
  __u8 fragment; /* enum hr_fragment_kind */
  __u8 plain;    /* no IPv4 options, no IPv6 extension headers */
  __u32 fragment_id;
  __u16 trace; /* the tracer that asked for such a request; set by hr_trace_match() */
  __u16 way;   /* enum hr_way; set by the splitter */
};

struct hr_ipv6_fragment_header {
  __u8 next_header;
  __u8 reserved;
  __be16 offset_flags;
  __be32 id;
};

HR_INLINE void hr_map_ipv4(struct hr_address *address, __be32 ipv4) {
  address->words[0] = 0;
  address->words[1] = 0;
  address->words[2] = bpf_htonl(0xffff);
  address->words[3] = ipv4;
}

HR_INLINE int hr_same_address(const struct hr_address *a, const struct hr_address *b) {
  return a->halves[0] == b->halves[0] && a->halves[1] == b->halves[1];
}

/*
 * Of layer 3, from its header's own field. 0 there stands for more than 65,535 bytes that GRO merged, or that TCP
 * leaves to the device to segment (BIG TCP: IPv6 since Linux 5.19, IPv4 since 6.3). Only headers are read and changed
 * of such a packet.
 */
HR_INLINE __u16 hr_l3_bytes(const struct __sk_buff *skb, __be16 length_be, __u16 more) {
  return !length_be && skb->gso_size ? 0xffff : bpf_ntohs(length_be) + more;
}

/* What a later fragment says of its datagram: the last one tells how many bytes of layer 4 there are in all, the others
 * 0. */
HR_INLINE void hr_note_end(struct hr_packet *packet, __u16 offset, int more) {
  if (!more) packet->payload_bytes = offset + packet->l3_bytes - (packet->l4_offset - packet->l3_offset);
}

HR_INLINE int hr_parse_ipv4(struct __sk_buff *skb, struct hr_packet *packet) {
  struct iphdr header;
  __u32 header_bytes;
  __u16 fragment_bits;

  if (bpf_skb_load_bytes(skb, packet->l3_offset, &header, sizeof(header))) return -1;
  header_bytes = header.ihl * 4;
  packet->l3_bytes = hr_l3_bytes(skb, header.tot_len, 0);
  if (header.version != 4 || header_bytes < HR_IPV4_HEADER_BYTES || packet->l3_bytes < header_bytes) return -1;
  packet->version = 4;
  packet->protocol = header.protocol;
  packet->l4_offset = packet->l3_offset + header_bytes;
  packet->plain = header_bytes == HR_IPV4_HEADER_BYTES;
  packet->fragment_id = header.id;
  hr_map_ipv4(&packet->source, header.saddr);
  hr_map_ipv4(&packet->destination, header.daddr);
  fragment_bits = bpf_ntohs(header.frag_off);
  if (fragment_bits & HR_IPV4_FRAGMENT_OFFSET) {
    packet->fragment = HR_LATER_FRAGMENT;
    hr_note_end(packet, (fragment_bits & HR_IPV4_FRAGMENT_OFFSET) * 8, fragment_bits & HR_IPV4_MORE_FRAGMENTS);
  } else if (fragment_bits & HR_IPV4_MORE_FRAGMENTS)
    packet->fragment = HR_FIRST_FRAGMENT;
  else
    packet->fragment = HR_WHOLE;
  return 0;
}

/*
 * One IPv6 extension header, if there is one: hop-by-hop and destination options change nothing for us, a fragment
 * header does. A routing header's destination is not the last, and an authentication header would not survive another
 * address: what carries one stays untouched. 1 = read over, 0 = layer 4 begins here.
 */
HR_INLINE int hr_parse_extension(struct __sk_buff *skb, struct hr_packet *packet) {
  struct hr_ipv6_fragment_header
      header; /* options begin alike: next header, and length in units of 8 bytes but the first */
  __u16 offset_flags;

  if (packet->protocol != HR_NEXT_HEADER_HOP_BY_HOP && packet->protocol != HR_NEXT_HEADER_DESTINATION &&
      packet->protocol != HR_NEXT_HEADER_FRAGMENT)
    return 0;
  if (bpf_skb_load_bytes(skb, packet->l4_offset, &header, sizeof(header))) return -1;
  packet->plain = 0;
  packet->l4_offset += sizeof(header);
  if (packet->protocol == HR_NEXT_HEADER_FRAGMENT) {
    packet->fragment_id = header.id;
    offset_flags = bpf_ntohs(header.offset_flags);
    if (offset_flags & HR_IPV6_FRAGMENT_OFFSET) {
      packet->fragment = HR_LATER_FRAGMENT;
      hr_note_end(packet, offset_flags & HR_IPV6_FRAGMENT_OFFSET, offset_flags & HR_IPV6_MORE_FRAGMENTS);
    } else if (offset_flags & HR_IPV6_MORE_FRAGMENTS)
      packet->fragment = HR_FIRST_FRAGMENT;
  } else {
    packet->l4_offset += header.reserved * 8;
  }
  packet->protocol = header.next_header;
  return packet->fragment != HR_LATER_FRAGMENT;
}

HR_INLINE int hr_parse_ipv6(struct __sk_buff *skb, struct hr_packet *packet) {
  struct ipv6hdr header;

  if (bpf_skb_load_bytes(skb, packet->l3_offset, &header, sizeof(header))) return -1;
  if (header.version != 6) return -1;
  packet->version = 6;
  packet->protocol = header.nexthdr;
  packet->l3_bytes = hr_l3_bytes(skb, header.payload_len, HR_IPV6_HEADER_BYTES);
  packet->l4_offset = packet->l3_offset + HR_IPV6_HEADER_BYTES;
  packet->plain = 1;
  packet->fragment = HR_WHOLE;
  packet->fragment_id = 0;
  __builtin_memcpy(&packet->source, &header.saddr, 16);
  __builtin_memcpy(&packet->destination, &header.daddr, 16);
  for (__u32 i = 0; i < HR_IPV6_EXTENSIONS; i++) {
    int more = hr_parse_extension(skb, packet);

    if (more < 0) return -1;
    if (!more) break;
  }
  return 0;
}

/* Ports and payload length; UDP and TCP put the ports in the same place. */
HR_INLINE int hr_parse_ports(struct __sk_buff *skb, struct hr_packet *packet) {
  __u32 l4_bytes = packet->l3_bytes - (packet->l4_offset - packet->l3_offset);
  struct udphdr header;
  __u32 udp_bytes;

  if (packet->l3_bytes < packet->l4_offset - packet->l3_offset + sizeof(header)) return -1;
  if (bpf_skb_load_bytes(skb, packet->l4_offset, &header, sizeof(header))) return -1;
  packet->source_port_be = header.source;
  packet->destination_port_be = header.dest;
  if (packet->protocol != IPPROTO_UDP) return 0;
  udp_bytes = bpf_ntohs(header.len);
  if (udp_bytes < sizeof(header)) return -1;
  if (packet->fragment == HR_WHOLE && udp_bytes > l4_bytes) return -1;
  packet->payload_bytes = (udp_bytes < l4_bytes ? udp_bytes : l4_bytes) - sizeof(header);
  return 0;
}

HR_INLINE int hr_parse_l3(struct __sk_buff *skb, __u32 l3_offset, __u32 version, struct hr_packet *packet) {
  packet->l3_offset = l3_offset;
  packet->source_port_be = 0;
  packet->destination_port_be = 0;
  packet->payload_bytes = 0;
  return version == 4 ? hr_parse_ipv4(skb, packet) : hr_parse_ipv6(skb, packet);
}

/* A global function, like hr_parse_quoted: verified once. The packet must be zeroed (6.1 asks for initialised memory).
 */
HR_GLOBAL int hr_parse(struct __sk_buff *skb, struct hr_packet *packet) {
  if (!packet) return -1;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    if (hr_parse_l3(skb, ETH_HLEN, 4, packet)) return -1;
  } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
    if (hr_parse_l3(skb, ETH_HLEN, 6, packet)) return -1;
  } else {
    return -1;
  }
  if (!skb->gso_size && packet->l3_bytes + ETH_HLEN > skb->len) return -1;
  if (packet->fragment == HR_LATER_FRAGMENT) return 0;
  if (packet->protocol != IPPROTO_UDP && packet->protocol != IPPROTO_TCP) return 0;
  return hr_parse_ports(skb, packet);
}

/*
 * The packet quoted by an ICMP error: headers and as much payload as its sender cared to quote (RFC 792 promises 8
 * bytes of layer 4, Linux quotes up to 548). payload_bytes is what is really there.
 */
HR_GLOBAL int hr_parse_quoted(struct __sk_buff *skb, __u32 l3_offset, __u32 version, struct hr_packet *quoted) {
  struct udphdr header;
  __u32 payload_offset;

  if (!quoted) return -1;
  if (hr_parse_l3(skb, l3_offset, version, quoted)) return -1;
  if (quoted->fragment == HR_LATER_FRAGMENT) return -1;
  if (quoted->protocol != IPPROTO_UDP && quoted->protocol != IPPROTO_TCP) return -1;
  if (bpf_skb_load_bytes(skb, quoted->l4_offset, &header, sizeof(header))) return -1;
  quoted->source_port_be = header.source;
  quoted->destination_port_be = header.dest;
  payload_offset = quoted->l4_offset + sizeof(header);
  quoted->payload_bytes = skb->len > payload_offset ? skb->len - payload_offset : 0;
  return 0;
}
