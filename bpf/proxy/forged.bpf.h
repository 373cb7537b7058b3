/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Does a packet speak in a VIP's name? A VIP is an address that no host has, and the kernel's own check of sources
 * (rp_filter) is off on many hosts and missing in IPv6. A client would take such a packet for its answer, or an ICMP
 * error that quotes a packet to a VIP for the service's refusal. Read from the packet itself and not from what
 * hr_parse() made of it: what the parser refuses may be delivered all the same. Called by the reply program for what is
 * not the proxy's, and by the guard, which stands on the other interfaces.
 */
#pragma once

#include "bpf/proxy/icmp.bpf.h"
#include "bpf/proxy/maps.bpf.h"

#define HR_VLAN_ID 0x0fff  /* of the tag control information, IEEE 802.1Q */
#define HR_PRIORITY_TAGS 4 /* tags of VLAN 0 that are read over, as the kernel does with any number */
#define HR_CHAIN 8         /* IPv6 extension headers that are read over */
#define HR_HEAD_BYTES 256
#define HR_ICMP4_REDIRECT 5
#define HR_ICMP6_INFORMATIONAL 128 /* RFC 4443 section 2.1: the types below are errors */
#define HR_NEXT_HEADER_ROUTING 43
#define HR_NEXT_HEADER_AUTHENTICATION 51

/* Counted from layer 3, which some interfaces (tun, WireGuard) begin with. The helper reads the linear part alone. */
HR_INLINE int hr_load_l3(struct __sk_buff *skb, __u32 offset, void *to, __u32 bytes) {
  if (!bpf_skb_load_bytes_relative(skb, offset, to, bytes, BPF_HDR_START_NET)) return 0;
  return bpf_skb_pull_data(skb, skb->len < HR_HEAD_BYTES ? skb->len : HR_HEAD_BYTES) ||
         bpf_skb_load_bytes_relative(skb, offset, to, bytes, BPF_HDR_START_NET);
}

/* Is it an ICMP error, at `offset`, about a packet to a VIP? In fragments no error comes, and its quotation could hide.
 */
HR_INLINE int hr_quotes_vip(struct __sk_buff *skb, __u32 offset, __u32 version, int fragment) {
  struct hr_address address = {};
  __be32 ipv4;
  __u8 type;

  if (hr_load_l3(skb, offset, &type, sizeof(type))) return 0;
  if (version == 4 ? (type < HR_ICMP4_UNREACHABLE || type > HR_ICMP4_PARAMETER_PROBLEM || type == 8 ||
                      (type > HR_ICMP4_REDIRECT && type < HR_ICMP4_TIME_EXCEEDED))
                   : type >= HR_ICMP6_INFORMATIONAL)
    return 0;
  if (fragment) return 1;
  offset += sizeof(struct hr_icmp_header);
  if (version == 4) {
    if (hr_load_l3(skb, offset + 16, &ipv4, sizeof(ipv4))) return 0;
    hr_map_ipv4(&address, ipv4);
  } else if (hr_load_l3(skb, offset + 24, &address, sizeof(address))) {
    return 0;
  }
  return bpf_map_lookup_elem(&vip_addresses, &address) != 0;
}

HR_INLINE int hr_bears_vip4(struct __sk_buff *skb, __u32 offset, int quotes) {
  struct hr_address address = {};
  struct iphdr header;

  if (hr_load_l3(skb, offset, &header, sizeof(header))) return 0;
  hr_map_ipv4(&address, header.saddr);
  if (bpf_map_lookup_elem(&vip_addresses, &address)) return 1;
  if (!quotes || header.protocol != IPPROTO_ICMP || header.frag_off & bpf_htons(HR_IPV4_FRAGMENT_OFFSET)) return 0;
  return hr_quotes_vip(skb, offset + header.ihl * 4, 4, header.frag_off & bpf_htons(HR_IPV4_MORE_FRAGMENTS));
}

HR_INLINE int hr_bears_vip6(struct __sk_buff *skb, __u32 offset, int quotes) {
  struct hr_ipv6_fragment_header extension; /* the others begin alike */
  struct hr_address address;
  __u8 next;
  int fragment = 0;

  if (hr_load_l3(skb, offset + 8, &address, sizeof(address))) return 0;
  if (bpf_map_lookup_elem(&vip_addresses, &address)) return 1;
  if (!quotes || hr_load_l3(skb, offset + HR_IPV6_NEXT_HEADER, &next, sizeof(next))) return 0;
  offset += HR_IPV6_HEADER_BYTES;
  for (__u32 i = 0; i < HR_CHAIN; i++) {
    if (next == HR_IPPROTO_ICMPV6) return hr_quotes_vip(skb, offset, 6, fragment);
    if (next != HR_NEXT_HEADER_HOP_BY_HOP && next != HR_NEXT_HEADER_DESTINATION && next != HR_NEXT_HEADER_ROUTING &&
        next != HR_NEXT_HEADER_FRAGMENT && next != HR_NEXT_HEADER_AUTHENTICATION)
      return 0;
    if (hr_load_l3(skb, offset, &extension, sizeof(extension))) return 0;
    if (next == HR_NEXT_HEADER_FRAGMENT) {
      if (extension.offset_flags & bpf_htons(HR_IPV6_FRAGMENT_OFFSET)) return 0;
      fragment |= extension.offset_flags & bpf_htons(HR_IPV6_MORE_FRAGMENTS);
      extension.reserved = 0;
    }
    offset += next == HR_NEXT_HEADER_AUTHENTICATION ? (extension.reserved + 2) * 4 : (extension.reserved + 1) * 8;
    next = extension.next_header;
  }
  return 1; /* no host sends so long a chain */
}

/* `quotes`: an ICMP error that quotes a packet to a VIP counts, too. */
HR_GLOBAL int hr_bears_vip(struct __sk_buff *skb, int quotes) {
  struct {
    __be16 control, protocol;
  } tag;
  __u32 offset = 0, protocol = skb->protocol;

  if (skb->vlan_present && (skb->vlan_tci & HR_VLAN_ID)) return 0; /* not this interface's */
  for (__u32 i = 0; i < HR_PRIORITY_TAGS; i++) {
    if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD)) break;
    if (hr_load_l3(skb, offset, &tag, sizeof(tag)) || tag.control & bpf_htons(HR_VLAN_ID)) return 0;
    protocol = tag.protocol;
    offset += sizeof(tag);
  }
  if (protocol == bpf_htons(ETH_P_IP)) return hr_bears_vip4(skb, offset, quotes);
  if (protocol == bpf_htons(ETH_P_IPV6)) return hr_bears_vip6(skb, offset, quotes);
  return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}
