/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Changing one address and port of a packet in place and keeping every checksum right, whatever state the skb's
 * checksum is in (none, partial, complete), for IPv4 and IPv6, UDP and TCP, whole packets and fragments. Callers:
 * the splitter (destination: VIP -> backend) and the reply program (source: backend -> VIP).
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/stats.bpf.h"

/*
 * For bpf_l4_csum_replace: an IPv6 address change leaves the sum over the whole packet as it was, since nothing in
 * the IPv6 header makes up for it but the layer 4 checksum does. Added in 6.16 and stable kernels of its time; older
 * ones refuse the bit with -EINVAL.
 */
#define HR_F_IPV6 (1ull << 7)

enum hr_side { HR_SOURCE, HR_DESTINATION };

#define HR_OTHER_SIDE(side) ((side) == HR_SOURCE ? HR_DESTINATION : HR_SOURCE)

HR_INLINE __u32 hr_l4_checksum_offset(const struct hr_packet *packet) {
  return packet->l4_offset + (packet->protocol == IPPROTO_TCP ? 16 : 6);
}

/* UDP over IPv4: a checksum of 0 means "none" and stays 0; a sum that comes out as 0 becomes 0xffff (RFC 768). */
HR_INLINE __u64 hr_l4_checksum_flags(const struct hr_packet *packet) {
  return packet->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

HR_INLINE int hr_replace_ipv4(struct __sk_buff *skb, const struct hr_packet *packet, enum hr_side side, __be32 from,
                              __be32 to, int has_l4) {
  __u32 field = side == HR_SOURCE ? 12 : 16;

  if (has_l4 && bpf_l4_csum_replace(skb, hr_l4_checksum_offset(packet), from, to,
                                    BPF_F_PSEUDO_HDR | hr_l4_checksum_flags(packet) | sizeof(to)))
    return -1;
  if (bpf_l3_csum_replace(skb, packet->l3_offset + 10, from, to, sizeof(to))) return -1;
  return bpf_skb_store_bytes(skb, packet->l3_offset + field, &to, sizeof(to), 0) ? -1 : 0;
}

HR_INLINE int hr_replace_ipv6(struct __sk_buff *skb, const struct hr_packet *packet, enum hr_side side,
                              struct hr_address *from, struct hr_address *to, int has_l4) {
  __u32 field = side == HR_SOURCE ? 8 : 24;

  __s64 difference = bpf_csum_diff(from->words, sizeof(*from), to->words, sizeof(*to), 0);

  if (!has_l4) {
    /* A later fragment: nothing in it makes up for the address but CHECKSUM_COMPLETE's sum (else: refused, rightly). */
    bpf_csum_update(skb, difference);
  } else {
    __u64 flags = BPF_F_PSEUDO_HDR | hr_l4_checksum_flags(packet);
    __u32 offset = hr_l4_checksum_offset(packet);

    if (bpf_l4_csum_replace(skb, offset, 0, difference, flags | HR_F_IPV6)) {
      if (bpf_l4_csum_replace(skb, offset, 0, difference, flags)) return -1;
      /* An older kernel changed CHECKSUM_COMPLETE as for IPv4; undo it. Refused, rightly, in any other state. */
      bpf_csum_update(skb, difference);
    }
  }
  return bpf_skb_store_bytes(skb, packet->l3_offset + field, to, sizeof(*to), 0) ? -1 : 0;
}

/*
 * Puts `address`:`port_be` in place of one side and notes it in `packet`. A later fragment has no layer 4: only its
 * address changes. -1: the kernel refused, and the packet may be half changed; the caller drops it, counted.
 */
HR_INLINE int hr_rewrite(struct __sk_buff *skb, struct hr_packet *packet, enum hr_side side, struct hr_address *address,
                         __u16 port_be) {
  struct hr_address *old = side == HR_SOURCE ? &packet->source : &packet->destination;
  __u16 *old_port_be = side == HR_SOURCE ? &packet->source_port_be : &packet->destination_port_be;
  int has_l4 = packet->fragment != HR_LATER_FRAGMENT;

  if (packet->version == 4) {
    if (hr_replace_ipv4(skb, packet, side, old->words[3], address->words[3], has_l4)) return -1;
  } else {
    if (hr_replace_ipv6(skb, packet, side, old, address, has_l4)) return -1;
  }
  if (has_l4 && *old_port_be != port_be) {
    if (bpf_l4_csum_replace(skb, hr_l4_checksum_offset(packet), *old_port_be, port_be,
                            hr_l4_checksum_flags(packet) | sizeof(port_be)))
      return -1;
    if (bpf_skb_store_bytes(skb, packet->l4_offset + (side == HR_SOURCE ? 0 : 2), &port_be, sizeof(port_be), 0))
      return -1;
  }
  *old = *address;
  *old_port_be = port_be;
  return 0;
}

/* Global functions: verified once. */
HR_GLOBAL int hr_rewrite_source(struct __sk_buff *skb, struct hr_packet *packet, struct hr_address *address,
                                __u32 port_be) {
  return packet && address ? hr_rewrite(skb, packet, HR_SOURCE, address, port_be) : -1;
}

HR_GLOBAL int hr_rewrite_destination(struct __sk_buff *skb, struct hr_packet *packet, struct hr_address *address,
                                     __u32 port_be) {
  return packet && address ? hr_rewrite(skb, packet, HR_DESTINATION, address, port_be) : -1;
}

/*
 * Gives a packet to the proxy interface as if it had come in there, so that strict reverse-path filtering holds.
 * The MAC must be the interface's own: the redirect classifies the frame anew, and a foreign one is "other host".
 */
HR_INLINE int hr_give_to_client(struct __sk_buff *skb) {
  __u8 mac[6];

  for (__u32 i = 0; i < sizeof(mac); i++) mac[i] = load_config.proxy_mac[i];
  if (bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0)) return -1;
  return bpf_redirect(load_config.proxy_ifindex, BPF_F_INGRESS);
}
