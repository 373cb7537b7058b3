/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Will the kernel deliver a received datagram, segment or ICMP error? It asks that when a socket takes it, which is too
 * late for a program that chooses one of several. Called by the reply program, for what names a request or a
 * connection.
 */
#pragma once

#include "bpf/net/checksum.bpf.h"
#include "bpf/net/parse.bpf.h"

enum hr_fate {
  HR_FATE_SURE,
  HR_FATE_REFUSED, /* the kernel drops it */
  HR_FATE_OPEN,    /* it may */
};

#define HR_SUM_WORDS 16  /* summed at once */
#define HR_SUM_CHUNKS 24 /* 1,536 bytes; what is longer, its receiver checks */
#define HR_SUM_BYTES (HR_SUM_WORDS * (__u32)sizeof(__u32))

/*
 * Is the layer 3 header one that the kernel takes? An IPv4 header's sum is checked by every host, and an IPv6 datagram
 * without a checksum is refused (RFC 8200 section 8.1). Which IPv4 options and IPv6 extension headers are taken depends
 * on the host (sysctls, labels): that stays open. A lone fragment header says nothing (RFC 6946).
 */
HR_INLINE int hr_fate_of_header(struct __sk_buff *skb, const struct hr_packet *packet, int has_checksum) {
  __be32 words[HR_IPV4_HEADER_BYTES / sizeof(__be32)];
  __u8 next = 0;

  if (packet->version == 4) {
    if (!packet->plain) return HR_FATE_OPEN;
    if (bpf_skb_load_bytes(skb, packet->l3_offset, words, sizeof(words))) return HR_FATE_REFUSED;
    return hr_fold(bpf_csum_diff(0, 0, words, sizeof(words), 0)) ? HR_FATE_REFUSED : HR_FATE_SURE;
  }
  if (!packet->plain &&
      (packet->l4_offset - packet->l3_offset != HR_IPV6_HEADER_BYTES + sizeof(struct hr_ipv6_fragment_header) ||
       bpf_skb_load_bytes(skb, packet->l3_offset + HR_IPV6_NEXT_HEADER, &next, 1) || next != HR_NEXT_HEADER_FRAGMENT))
    return HR_FATE_OPEN;
  return has_checksum ? HR_FATE_SURE : HR_FATE_REFUSED;
}

/*
 * The checksum counts as right also where it cannot be known here (a fragment, a jumbo datagram), where an IPv4
 * datagram has none, and where the device has checked it. A datagram that never left this machine's memory carries the
 * sum of its pseudo header, which the device of its sender would have completed (CHECKSUM_PARTIAL): it has nothing that
 * could be wrong.
 */
HR_GLOBAL int hr_fate(struct __sk_buff *skb, struct hr_packet *packet) {
  __u32 words[HR_SUM_WORDS], bytes;
  int fate, udp;
  __u16 field = 0;
  __s64 sum = 0;

  if (!packet) return HR_FATE_REFUSED;
  udp = packet->protocol == IPPROTO_UDP;
  if (bpf_skb_load_bytes(skb,
                         packet->l4_offset + (udp                               ? 6
                                              : packet->protocol == IPPROTO_TCP ? 16
                                                                                : 2),
                         &field, sizeof(field)))
    return HR_FATE_REFUSED;
  fate = hr_fate_of_header(skb, packet, field || !udp);
  if (fate != HR_FATE_SURE || (udp && !field) || packet->fragment != HR_WHOLE ||
      bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
    return fate;
  if (!udp) packet->payload_bytes = packet->l3_bytes - (packet->l4_offset - packet->l3_offset) - sizeof(struct udphdr);
  bytes = packet->payload_bytes + sizeof(struct udphdr);
  if (bytes > HR_SUM_CHUNKS * HR_SUM_BYTES) return HR_FATE_SURE;
  if (packet->protocol != IPPROTO_ICMP) { /* which has no pseudo header; there length and protocol are added up */
    sum = hr_sum_pseudo_header(0, &packet->source, &packet->destination, packet->version == 4,
                               bytes + packet->protocol - IPPROTO_UDP);
    if (field == (__u16)~hr_fold(sum)) return HR_FATE_SURE;
  }
  for (__u32 at = 0; at < HR_SUM_CHUNKS * HR_SUM_BYTES; at += HR_SUM_BYTES) {
    /* Read anew in each round, so that all that the verifier knows of one round is `at`. */
    __u64 chunk = READ_ONCE(packet->payload_bytes) + sizeof(struct udphdr);

    if (chunk <= at) break;
    chunk -= at;
    if (chunk > HR_SUM_BYTES) chunk = HR_SUM_BYTES;
    __builtin_memset(words, 0, sizeof(words));
    chunk--; /* one comparison for both bounds, as in hr_read_correlation() */
    HR_KEEP_BOUND(chunk);
    if (chunk >= HR_SUM_BYTES) return HR_FATE_SURE;
    HR_KEEP_BOUND(chunk);
    chunk++;
    if (bpf_skb_load_bytes(skb, READ_ONCE(packet->l4_offset) + at, words, chunk)) return HR_FATE_SURE;
    sum = bpf_csum_diff(0, 0, words, sizeof(words), sum);
  }
  return hr_fold(sum) ? HR_FATE_REFUSED : HR_FATE_SURE;
}
