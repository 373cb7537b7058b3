// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * TC egress of a node's interface: a datagram for several peers, sent once. The process sends it, under a mark with the
 * mask of members, to one of their addresses; each member gets a copy with its own address, port and MAC, the last one
 * the packet itself. Bytes under the tag are the same for all. The mark is cleared before the first copy, which comes
 * by here again. Checksums are updated, not made anew: the helpers know whether a device is still to finish them.
 */
#include "bpf/node/parse.bpf.h"

#include <linux/pkt_cls.h>
#include <stddef.h>

#define HR_NODE_UDP_CHECK offsetof(struct udphdr, check)
#define HR_NODE_PSEUDO (BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0)

HR_INLINE int hr_node_set_port(struct __sk_buff *skb, __u32 udp_offset, __u32 field, __be16 port_be) {
  __be16 old;

  if (bpf_skb_load_bytes(skb, udp_offset + field, &old, sizeof(old))) return -1;
  if (bpf_l4_csum_replace(skb, udp_offset + HR_NODE_UDP_CHECK, old, port_be, BPF_F_MARK_MANGLED_0 | sizeof(old)))
    return -1;
  return bpf_skb_store_bytes(skb, udp_offset + field, &port_be, sizeof(port_be), 0) ? -1 : 0;
}

HR_INLINE int hr_node_set_ipv4(struct __sk_buff *skb, __be32 address) {
  const __u32 at = ETH_HLEN + offsetof(struct iphdr, daddr);
  __be32 old;

  if (bpf_skb_load_bytes(skb, at, &old, sizeof(old))) return -1;
  if (bpf_l4_csum_replace(skb, HR_NODE_UDP4_OFFSET + HR_NODE_UDP_CHECK, old, address, HR_NODE_PSEUDO | sizeof(old)))
    return -1;
  if (bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old, address, sizeof(old))) return -1;
  return bpf_skb_store_bytes(skb, at, &address, sizeof(address), 0) ? -1 : 0;
}

HR_INLINE int hr_node_set_ipv6(struct __sk_buff *skb, struct hr_address *address) {
  const __u32 at = ETH_HLEN + offsetof(struct ipv6hdr, daddr);
  struct hr_address old;
  __s64 difference;

  if (bpf_skb_load_bytes(skb, at, &old, sizeof(old))) return -1;
  difference = bpf_csum_diff((void *)&old, sizeof(old), (void *)address, sizeof(*address), 0);
  if (difference < 0) return -1;
  if (bpf_l4_csum_replace(skb, HR_NODE_UDP6_OFFSET + HR_NODE_UDP_CHECK, 0, (__u64)difference, HR_NODE_PSEUDO))
    return -1;
  return bpf_skb_store_bytes(skb, at, address, sizeof(*address), 0) ? -1 : 0;
}

HR_INLINE int hr_node_is_ipv4(const struct hr_address *address) {
  return !address->halves[0] && address->words[2] == bpf_htonl(0xffff);
}

/* The packet becomes the member's. The number of the interface it leaves by; -1: it cannot. */
HR_GLOBAL int hr_node_address_to(struct __sk_buff *skb, __u32 slot) {
  struct hr_node_peer *peer = bpf_map_lookup_elem(&members, &slot);
  const int ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
  const __u32 udp_offset = ipv4 ? HR_NODE_UDP4_OFFSET : HR_NODE_UDP6_OFFSET;
  struct hr_address address;
  __u8 mac[12];

  if (!peer || !peer->node || !(peer->flags & HR_NODE_PEER_MAC)) return -1;
  address = peer->address;
  if (hr_node_is_ipv4(&address) != ipv4) return -1;
  __builtin_memcpy(mac, peer->mac, sizeof(mac));
  if (ipv4 ? hr_node_set_ipv4(skb, address.words[3]) : hr_node_set_ipv6(skb, &address)) return -1;
  if (hr_node_set_port(skb, udp_offset, offsetof(struct udphdr, source), node_config.port_be)) return -1;
  if (hr_node_set_port(skb, udp_offset, offsetof(struct udphdr, dest), peer->port_be)) return -1;
  if (bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0)) return -1;
  return peer->ifindex;
}

/* Only a whole datagram over plain IP: the process sends no other under this mark. */
HR_INLINE int hr_node_is_plain_udp(struct __sk_buff *skb) {
  struct {
    __u8 version_ihl, tos;
    __be16 bytes, id, fragment;
    __u8 ttl, protocol;
  } ip;

  if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip))) return 0;
  if (skb->protocol == bpf_htons(ETH_P_IP))
    return ip.version_ihl == HR_NODE_IPV4_PLAIN && ip.protocol == IPPROTO_UDP &&
           !(ip.fragment & bpf_htons(HR_NODE_IPV4_FRAGMENT));
  /* The next header of IPv6 stands where IPv4 has the low byte of its fragment field. */
  return skb->protocol == bpf_htons(ETH_P_IPV6) && ((__u8 *)&ip.fragment)[0] == IPPROTO_UDP;
}

HR_INLINE void hr_node_copied(int failed) {
  hr_node_count(failed ? HR_NODE_EVENT_BROADCAST_FAILED : HR_NODE_EVENT_BROADCAST_COPIES);
}

/* The number of the last member of the mask: it gets the packet itself. */
HR_INLINE __u32 hr_node_last(__u32 mask) {
  __u32 last = 0;

  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i)
    if (mask & (1u << i)) last = i;
  return last;
}

SEC("tc")
int hr_node_broadcast(struct __sk_buff *skb) {
  const __u32 mark = skb->mark;
  const __u32 mask = HR_NODE_MARK_MEMBERS(mark);
  __u32 last;
  int ifindex;

  if ((mark & 0xff000000u) != HR_NODE_MARK_BROADCAST) return TC_ACT_UNSPEC;
  skb->mark = 0;
  if (!mask || !hr_node_is_plain_udp(skb)) {
    hr_node_copied(1);
    return TC_ACT_UNSPEC;
  }
  hr_node_count(HR_NODE_EVENT_BROADCAST);
  last = hr_node_last(mask);
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) {
    if (i == last || !(mask & (1u << i))) continue;
    ifindex = hr_node_address_to(skb, i);
    hr_node_copied(ifindex < 0 || bpf_clone_redirect(skb, ifindex, 0));
  }
  ifindex = hr_node_address_to(skb, last);
  hr_node_copied(ifindex < 0);
  /* Half addressed, it would reach one member twice or none. */
  if (ifindex < 0) return TC_ACT_SHOT;
  return ifindex == (int)skb->ifindex ? TC_ACT_UNSPEC : bpf_redirect(ifindex, 0);
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
