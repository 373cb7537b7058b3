/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a host says about a port that nothing listens on, said for a VIP's ports without a service: a reset to TCP (RFC
 * 9293 section 3.10.7.1), port unreachable to UDP (RFC 1122 section 4.1.3.1, RFC 4443 section 3.1). And what it says
 * where no route leads to any backend. The client's own packet becomes the answer, cut to the headers that an answer
 * has. Called by the splitter, after the check of who may use the VIP.
 *
 * Every checksum is complete. Where the packet's state says that a device is still to finish it (CHECKSUM_PARTIAL, what
 * a socket of this host or of a container sends), the answer goes back to where it came from, and such a receiver
 * checks nothing.
 */
#pragma once

#include "bpf/net/checksum.bpf.h"
#include "bpf/proxy/icmp.bpf.h"
#include "bpf/proxy/scoreboard.bpf.h"

#include <linux/tcp.h>

#define HR_REFUSAL_TTL 64
#define HR_REFUSAL_QUOTES_BYTES 8 /* of layer 4, RFC 792: the ports, by which the receiver finds the socket */

/*
 * ICMP errors are limited as the kernel limits its own for the whole host: net.ipv4.icmp_msgs_per_sec and
 * icmp_msgs_burst as they are by default. `unreachables_ns` runs ahead of the clock by the time that the answers so far
 * have used up.
 */
#define HR_UNREACHABLES_INTERVAL_NS 1000000ull
#define HR_UNREACHABLES_BURST_NS (50 * HR_UNREACHABLES_INTERVAL_NS)

HR_INLINE int hr_may_send_unreachable(void) {
  struct hr_wheel *wheel = hr_the_wheel();
  __u64 now_ns = hr_now_ns();
  __u64 used_ns;

  if (!wheel) return 0;
  used_ns = READ_ONCE(wheel->unreachables_ns);
  if (used_ns < now_ns) used_ns = now_ns;
  if (used_ns > now_ns + HR_UNREACHABLES_BURST_NS) return 0;
  /* Two CPUs that read the same send one more than they should. */
  WRITE_ONCE(wheel->unreachables_ns, used_ns + HR_UNREACHABLES_INTERVAL_NS);
  return 1;
}

/* The pseudo header's sum (RFC 9293 section 3.1, RFC 4443 section 2.3) of an answer from the VIP. */
HR_INLINE __s64 hr_sum_answer(__s64 sum, struct hr_packet *packet, __u32 protocol, __u32 l4_bytes) {
  __be32 tail[2] = {bpf_htonl(l4_bytes), bpf_htonl(protocol)};

  sum = bpf_csum_diff(0, 0, (__be32 *)packet->source.words, sizeof(packet->source), sum);
  sum = bpf_csum_diff(0, 0, (__be32 *)packet->destination.words, sizeof(packet->destination), sum);
  /* The prefix ::ffff:0:0/96 of two IPv4 addresses adds 2 * 0xffff, which is nothing. */
  return bpf_csum_diff(0, 0, tail, sizeof(tail), sum);
}

/* Cuts the packet to an IP header from the VIP to the client, and `l4_bytes` that are still to be written. */
HR_INLINE int hr_begin_refusal(struct __sk_buff *skb, const struct hr_packet *packet, __u8 protocol, __u32 l4_bytes) {
  if (packet->version == 4) {
    struct iphdr header = {.version = 4,
                           .ihl = 5,
                           .ttl = HR_REFUSAL_TTL,
                           .protocol = protocol,
                           .tot_len = bpf_htons(sizeof(header) + l4_bytes),
                           .saddr = packet->destination.words[3],
                           .daddr = packet->source.words[3]};

    header.check = hr_fold(bpf_csum_diff(0, 0, (__be32 *)&header, sizeof(header), 0));
    if (bpf_skb_change_tail(skb, ETH_HLEN + sizeof(header) + l4_bytes, 0)) return -1;
    return bpf_skb_store_bytes(skb, ETH_HLEN, &header, sizeof(header), BPF_F_INVALIDATE_HASH) ? -1 : 0;
  } else {
    struct ipv6hdr header = {
        .version = 6, .nexthdr = protocol, .hop_limit = HR_REFUSAL_TTL, .payload_len = bpf_htons(l4_bytes)};

    __builtin_memcpy(&header.saddr, &packet->destination, sizeof(header.saddr));
    __builtin_memcpy(&header.daddr, &packet->source, sizeof(header.daddr));
    if (bpf_skb_change_tail(skb, ETH_HLEN + sizeof(header) + l4_bytes, 0)) return -1;
    return bpf_skb_store_bytes(skb, ETH_HLEN, &header, sizeof(header), BPF_F_INVALIDATE_HASH) ? -1 : 0;
  }
}

/* Global functions: rare, and each has a stack of its own. -1: no answer, and the packet may be half changed. */
HR_GLOBAL int hr_make_reset(struct __sk_buff *skb, struct hr_packet *packet) {
  struct tcphdr asked, reset = {};
  __u32 payload_bytes;

  if (!packet || bpf_skb_load_bytes(skb, packet->l4_offset, &asked, sizeof(asked)) || asked.rst) return -1;
  reset.source = asked.dest;
  reset.dest = asked.source;
  reset.doff = sizeof(reset) / 4;
  reset.rst = 1;
  if (asked.ack) {
    reset.seq = asked.ack_seq;
  } else {
    payload_bytes = packet->l3_bytes - (packet->l4_offset - packet->l3_offset) - asked.doff * 4;
    reset.ack = 1;
    reset.ack_seq = bpf_htonl(bpf_ntohl(asked.seq) + asked.syn + asked.fin + payload_bytes);
  }
  reset.check = hr_fold(
      bpf_csum_diff(0, 0, (__be32 *)&reset, sizeof(reset), hr_sum_answer(0, packet, IPPROTO_TCP, sizeof(reset))));
  if (hr_begin_refusal(skb, packet, IPPROTO_TCP, sizeof(reset))) return -1;
  return bpf_skb_store_bytes(skb, packet->l4_offset, &reset, sizeof(reset), 0) ? -1 : 0;
}

struct hr_unreachable4 {
  struct hr_icmp_header icmp;
  __u8 quoted[HR_IPV4_HEADER_BYTES + HR_REFUSAL_QUOTES_BYTES];
};

HR_GLOBAL int hr_make_unreachable4(struct __sk_buff *skb, struct hr_packet *packet, __u32 code) {
  struct hr_unreachable4 error = {.icmp = {.type = HR_ICMP4_UNREACHABLE, .code = code}};

  if (!packet || bpf_skb_load_bytes(skb, packet->l3_offset, error.quoted, sizeof(error.quoted))) return -1;
  error.icmp.checksum = hr_fold(bpf_csum_diff(0, 0, (__be32 *)&error, sizeof(error), 0));
  if (hr_begin_refusal(skb, packet, IPPROTO_ICMP, sizeof(error))) return -1;
  return bpf_skb_store_bytes(skb, packet->l4_offset, &error, sizeof(error), 0) ? -1 : 0;
}

struct hr_unreachable6 {
  struct hr_icmp_header icmp;
  __u8 quoted[HR_IPV6_HEADER_BYTES + HR_REFUSAL_QUOTES_BYTES];
};

HR_GLOBAL int hr_make_unreachable6(struct __sk_buff *skb, struct hr_packet *packet, __u32 code) {
  struct hr_unreachable6 error = {.icmp = {.type = HR_ICMP6_UNREACHABLE, .code = code}};

  if (!packet || bpf_skb_load_bytes(skb, packet->l3_offset, error.quoted, sizeof(error.quoted))) return -1;
  error.icmp.checksum = hr_fold(
      bpf_csum_diff(0, 0, (__be32 *)&error, sizeof(error), hr_sum_answer(0, packet, HR_IPPROTO_ICMPV6, sizeof(error))));
  if (hr_begin_refusal(skb, packet, HR_IPPROTO_ICMPV6, sizeof(error))) return -1;
  return bpf_skb_store_bytes(skb, packet->l4_offset, &error, sizeof(error), 0) ? -1 : 0;
}

/* Makes a packet the ICMP error about itself. -1: it gets none. */
HR_INLINE int hr_make_unreachable(struct __sk_buff *skb, struct hr_packet *packet, __u32 code4, __u32 code6) {
  if (packet->fragment == HR_LATER_FRAGMENT || !packet->plain || !hr_may_send_unreachable()) return -1;
  return packet->version == 4 ? hr_make_unreachable4(skb, packet, code4) : hr_make_unreachable6(skb, packet, code6);
}

/*
 * Makes a packet that the host has no route for the answer to itself. A datagram gets ENETUNREACH, as from a socket
 * that sends without a route; not by ICMP's code 0, which a connected socket hears only with IP_RECVERR. Of ICMPv6's
 * codes such a socket hears only "prohibited" and "port unreachable", and clients take the latter for what it is here:
 * try elsewhere. What opens a connection is reset: its socket is still locked by the sender then, and the kernel drops
 * an ICMP error for a locked one. A connection that stands lives on, as by any route that goes.
 */
HR_INLINE int hr_make_no_route(struct __sk_buff *skb, struct hr_packet *packet, int opens) {
  if (opens && packet->fragment == HR_WHOLE && packet->plain) return hr_make_reset(skb, packet);
  return hr_make_unreachable(skb, packet, HR_ICMP4_NET_UNKNOWN, HR_ICMP6_PORT_UNREACHABLE);
}

/* Makes a packet to no service the answer to itself. -1: it gets none. */
HR_INLINE int hr_make_refusal(struct __sk_buff *skb, struct hr_packet *packet) {
  if (packet->fragment != HR_WHOLE || !packet->plain) return -1;
  if (packet->protocol == IPPROTO_TCP) return hr_make_reset(skb, packet);
  return hr_make_unreachable(skb, packet, HR_ICMP4_PORT_UNREACHABLE, HR_ICMP6_PORT_UNREACHABLE);
}
