/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about packets that went out in a VIP's name. Such an error quotes the packet as the uplink saw it
 * (client -> backend); to the client it must look as if it were about client -> VIP. And one about an answer quotes
 * VIP -> client; to the backend it must be about backend -> client. Every byte that is changed in the quotation is
 * taken out of and put into the ICMP checksum. Called by the reply program and the sink.
 */
#pragma once

#include "bpf/proxy/rewrite.bpf.h"

#define HR_ICMP_CHECKSUM 2 /* offset of the checksum in both versions' header */
#define HR_ICMP4_UNREACHABLE 3
#define HR_ICMP4_TIME_EXCEEDED 11
#define HR_ICMP4_PARAMETER_PROBLEM 12
#define HR_ICMP4_PORT_UNREACHABLE 3
#define HR_ICMP4_FRAGMENTATION_NEEDED 4
#define HR_ICMP4_NET_UNKNOWN 6
#define HR_ICMP6_LAST_ERROR 4 /* RFC 4443: 1 unreachable, 2 too big, 3 time exceeded, 4 parameter problem */
#define HR_ICMP6_UNREACHABLE 1
#define HR_ICMP6_PORT_UNREACHABLE 4

struct hr_icmp_header {
  __u8 type;
  __u8 code;
  __u16 checksum;
  __u32 rest;
};

struct hr_icmp_error {
  struct hr_packet quoted;
  __u8 unreachable; /* the packet was not delivered, and neither will its like be */
  __u8 stays;       /* keeps its source: else an error of the backend itself comes from the VIP */
};

/*
 * "Unreachable" of every code says that the backend does not get what is sent to it: no process, no host, no network,
 * or a firewall or policy between (RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1, RFC 4443 section 3.1).
 * But code 4 of IPv4 is about this packet's size, and like "too big", "time exceeded" and "parameter problem" its
 * sender's own matter.
 */
HR_INLINE int hr_is_unreachable(__u32 version, const __u8 *type_code) {
  if (version == 4) return type_code[0] == HR_ICMP4_UNREACHABLE && type_code[1] != HR_ICMP4_FRAGMENTATION_NEEDED;
  return type_code[0] == HR_ICMP6_UNREACHABLE;
}

/* 0 when `packet` is an ICMP error that quotes UDP or TCP. */
HR_INLINE int hr_parse_icmp_error(struct __sk_buff *skb, const struct hr_packet *packet, struct hr_icmp_error *error) {
  __u8 type_code[2];

  if (packet->fragment != HR_WHOLE) return -1;
  if (bpf_skb_load_bytes(skb, packet->l4_offset, type_code, sizeof(type_code))) return -1;
  if (packet->version == 4) {
    if (type_code[0] != HR_ICMP4_UNREACHABLE && type_code[0] != HR_ICMP4_TIME_EXCEEDED &&
        type_code[0] != HR_ICMP4_PARAMETER_PROBLEM)
      return -1;
  } else {
    if (type_code[0] == 0 || type_code[0] > HR_ICMP6_LAST_ERROR) return -1;
  }
  error->unreachable = hr_is_unreachable(packet->version, type_code);
  return hr_parse_quoted(skb, packet->l4_offset + sizeof(struct hr_icmp_header), packet->version, &error->quoted);
}

/* Replaces two bytes of the quotation. */
HR_INLINE int hr_requote(struct __sk_buff *skb, __u32 checksum_offset, __u32 offset, __u16 from, __u16 to) {
  return bpf_l4_csum_replace(skb, checksum_offset, from, to, sizeof(to)) ||
         bpf_skb_store_bytes(skb, offset, &to, sizeof(to), 0);
}

/* `side`: of the quoted packet. The error itself goes the other way, so there it is the other side's address. */
HR_INLINE int hr_translate_icmp4(struct __sk_buff *skb, struct hr_packet *packet, struct hr_icmp_error *error,
                                 enum hr_side side, struct hr_address *address) {
  struct hr_packet *quoted = &error->quoted;
  __u32 icmp_checksum = packet->l4_offset + HR_ICMP_CHECKSUM;
  __be32 from = side == HR_SOURCE ? quoted->source.words[3] : quoted->destination.words[3];
  __be32 to = address->words[3];
  __u16 old_check, new_check;

  /* The quoted header's own checksum follows its address; both changes go through the ICMP checksum. */
  if (bpf_skb_load_bytes(skb, quoted->l3_offset + 10, &old_check, sizeof(old_check))) return -1;
  if (bpf_l3_csum_replace(skb, quoted->l3_offset + 10, from, to, sizeof(to))) return -1;
  if (bpf_skb_load_bytes(skb, quoted->l3_offset + 10, &new_check, sizeof(new_check))) return -1;
  if (bpf_l4_csum_replace(skb, icmp_checksum, old_check, new_check, sizeof(new_check))) return -1;
  if (bpf_l4_csum_replace(skb, icmp_checksum, from, to, sizeof(to))) return -1;
  if (bpf_skb_store_bytes(skb, quoted->l3_offset + (side == HR_SOURCE ? 12 : 16), &to, sizeof(to), 0)) return -1;
  if (error->stays) return 0;
  return hr_replace_ipv4(skb, packet, HR_OTHER_SIDE(side), from, to, 0);
}

HR_INLINE int hr_translate_icmp6(struct __sk_buff *skb, struct hr_packet *packet, struct hr_icmp_error *error,
                                 enum hr_side side, struct hr_address *address) {
  struct hr_packet *quoted = &error->quoted;
  __u32 icmp_checksum = packet->l4_offset + HR_ICMP_CHECKSUM;
  struct hr_address *from = side == HR_SOURCE ? &quoted->source : &quoted->destination;
  __s64 difference = bpf_csum_diff(from->words, sizeof(*from), address->words, sizeof(*address), 0);

  if (bpf_l4_csum_replace(skb, icmp_checksum, 0, difference, 0)) return -1;
  if (bpf_skb_store_bytes(skb, quoted->l3_offset + (side == HR_SOURCE ? 8 : 24), address, sizeof(*address), 0))
    return -1;
  if (error->stays) return 0;
  /* The addresses are part of ICMPv6's pseudo-header (RFC 4443 section 2.3). */
  if (bpf_l4_csum_replace(skb, icmp_checksum, 0, difference, BPF_F_PSEUDO_HDR | HR_F_IPV6)) {
    if (bpf_l4_csum_replace(skb, icmp_checksum, 0, difference, BPF_F_PSEUDO_HDR)) return -1;
    bpf_csum_update(skb, difference);
  }
  return bpf_skb_store_bytes(skb, packet->l3_offset + (side == HR_SOURCE ? 24 : 8), address, sizeof(*address), 0) ? -1
                                                                                                                  : 0;
}

/* Makes the error one about client -> VIP (HR_DESTINATION), or about backend -> client (HR_SOURCE). */
HR_INLINE int hr_translate_icmp(struct __sk_buff *skb, struct hr_packet *packet, struct hr_icmp_error *error,
                                enum hr_side side, struct hr_address *address, __u16 port_be) {
  struct hr_packet *quoted = &error->quoted;
  __u16 from_be = side == HR_SOURCE ? quoted->source_port_be : quoted->destination_port_be;

  if (from_be != port_be && hr_requote(skb, packet->l4_offset + HR_ICMP_CHECKSUM,
                                       quoted->l4_offset + (side == HR_SOURCE ? 0 : 2), from_be, port_be))
    return -1;
  return packet->version == 4 ? hr_translate_icmp4(skb, packet, error, side, address)
                              : hr_translate_icmp6(skb, packet, error, side, address);
}
