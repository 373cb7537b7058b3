/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Saying that the leader resigns: the datagrams' bytes, sealed as the process would seal them, and their way
 * out. The clock packet lends its skb: it becomes the datagram, is cloned into the inner end of the clock's own
 * link, and is sent from there with bpf_redirect_neigh (a clone cannot be), which finds route and neighbour as
 * for any local sender.
 */
#pragma once

#include "bpf/net/checksum.bpf.h"
#include "bpf/node/state.bpf.h"
#include "bpf/node/watch/watch_maps.bpf.h"

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

const volatile struct hr_watch_config watch_config __weak = {};

/* The process's standing as the clock needs it, read in one critical section. */
struct hr_watch_standing {
  __u64 incarnation;
  __u64 term;
  __u64 lease_until_ns;
  __u32 role;
  __u32 config_epoch;
};

/* The datagram in hand, and its parts' sum. Per CPU: the clock is not interrupted by itself. */
struct hr_watch_scratch {
  union {
    struct {
      struct hr_peer_header header;
      struct hr_peer_resign resign;
    } peer;
    struct hr_announcement announcement;
  } payload;
  __u32 bytes;
  __u32 reserved;
};
HR_STATIC_ASSERT(sizeof(((struct hr_watch_scratch *)0)->payload) == 112, "payload");

HR_PER_CPU(watch_scratch, 1, struct hr_watch_scratch);

#define HR_RESIGN_BYTES (HR_PEER_HEADER_BYTES + sizeof(struct hr_peer_resign))

HR_INLINE struct hr_watch_scratch *hr_the_scratch(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&watch_scratch, &zero);
}

/* The process's list if it is of this term and whole. */
HR_INLINE void hr_fill_successors(struct hr_peer_resign *resign, __u64 term) {
  __u32 zero = 0;
  struct hr_watch_plan *plan = bpf_map_lookup_elem(&node_plan, &zero);
  __u64 version;
  int whole;

  if (!plan) return;
  version = READ_ONCE(plan->version);
  whole = !(version & 1) && READ_ONCE(plan->term) == term;
  for (__u32 i = 0; i < HR_PEER_SUCCESSORS; ++i) resign->successors[i] = whole ? READ_ONCE(plan->successors[i]) : 0;
  if (READ_ONCE(plan->version) == version) return;
  for (__u32 i = 0; i < HR_PEER_SUCCESSORS; ++i) resign->successors[i] = 0;
}

/* The same bytes for every peer, and one number: each of them keeps its own book of the numbers it has seen. */
HR_INLINE int hr_make_resign(const struct hr_watch_standing *standing, int stalled) {
  __u32 zero = 0;
  struct hr_node_numbers *drawn = bpf_map_lookup_elem(&numbers, &zero);
  struct hr_node_key *seals = hr_node_key_of(HR_NODE_KEY_SEALS);
  struct hr_watch_scratch *out = hr_the_scratch();
  struct hr_siphash_key key;
  struct hr_peer_header *header;
  struct hr_peer_resign *resign;

  if (!drawn || !seals || !out) return -1;
  key = seals->key;
  header = &out->payload.peer.header;
  resign = &out->payload.peer.resign;
  header->magic = HR_PEER_MAGIC;
  header->version = HR_PEER_VERSION;
  header->kind = HR_PEER_RESIGN;
  header->bytes = HR_RESIGN_BYTES;
  header->tag = 0;
  header->cluster_id = watch_config.cluster_id;
  header->from_incarnation = standing->incarnation;
  header->packet_number = __sync_fetch_and_add(&drawn->packet_number, 1) + 1;
  header->from = watch_config.self;
  header->to = 0;
  header->term = standing->term;
  header->config_epoch = standing->config_epoch;
  header->key_id = seals->id;
  resign->incarnation = standing->incarnation;
  resign->leader = watch_config.self;
  resign->stalled = stalled;
  __builtin_memset(resign->successors, 0, sizeof(resign->successors));
  if (!stalled) hr_fill_successors(resign, standing->term);
  out->bytes = HR_RESIGN_BYTES;
  header->tag = hr_siphash_bounded(&key, header, HR_RESIGN_BYTES, HR_RESIGN_BYTES, HR_SIPHASH_TAG_WORD);
  return 0;
}

HR_INLINE int hr_make_announcement(const struct hr_watch_standing *standing, __u64 sequence,
                                   const struct hr_watch_target *target) {
  struct hr_watch_scratch *out = hr_the_scratch();
  struct hr_announcement *announcement;

  if (!out) return -1;
  announcement = &out->payload.announcement;
  __builtin_memset(announcement, 0, sizeof(*announcement));
  announcement->magic = HR_ANNOUNCEMENT_MAGIC;
  announcement->version = HR_ANNOUNCEMENT_VERSION;
  announcement->state = HR_ANNOUNCEMENT_RESIGNING;
  announcement->bytes = HR_ANNOUNCEMENT_BYTES;
  announcement->cluster_id = watch_config.cluster_id;
  announcement->cluster_epoch = watch_config.cluster_epoch;
  announcement->term = standing->term;
  announcement->sequence = sequence;
  announcement->leader_address.halves[0] = watch_config.leader_address.halves[0];
  announcement->leader_address.halves[1] = watch_config.leader_address.halves[1];
  announcement->leader_port_be = watch_config.leader_port_be;
  out->bytes = HR_ANNOUNCEMENT_BYTES;
  announcement->tag =
      hr_siphash_bounded(&target->key, announcement, HR_ANNOUNCEMENT_BYTES, HR_ANNOUNCEMENT_BYTES, HR_SIPHASH_TAG_WORD);
  return 0;
}

HR_INLINE __u16 hr_sum_udp(const struct hr_watch_scratch *out, const struct hr_watch_target *target, struct udphdr *udp,
                           int ipv4) {
  __be32 *payload = (__be32 *)&out->payload;
  __s64 sum;

  if (out->bytes == HR_RESIGN_BYTES)
    sum = bpf_csum_diff(0, 0, payload, HR_RESIGN_BYTES, 0);
  else
    sum = bpf_csum_diff(0, 0, payload, HR_ANNOUNCEMENT_BYTES, 0);
  sum = bpf_csum_diff(0, 0, (__be32 *)udp, sizeof(*udp), sum);
  sum = hr_sum_pseudo_header(sum, &target->source, &target->address, ipv4, sizeof(*udp) + out->bytes);
  return hr_fold_udp(sum);
}

HR_INLINE int hr_store_ip4(struct __sk_buff *skb, const struct hr_watch_target *target, __u32 l4_bytes) {
  struct iphdr header = {.version = 4,
                         .ihl = 5,
                         .tot_len = bpf_htons(sizeof(header) + l4_bytes),
                         .frag_off = bpf_htons(0x4000), /* whole, and to stay so */
                         .ttl = 64,
                         .protocol = IPPROTO_UDP,
                         .saddr = target->source.words[3],
                         .daddr = target->address.words[3]};

  header.check = hr_fold(bpf_csum_diff(0, 0, (__be32 *)&header, sizeof(header), 0));
  return bpf_skb_store_bytes(skb, ETH_HLEN, &header, sizeof(header), 0);
}

HR_INLINE int hr_store_ip6(struct __sk_buff *skb, const struct hr_watch_target *target, __u32 l4_bytes) {
  struct ipv6hdr header = {.version = 6, .payload_len = bpf_htons(l4_bytes), .nexthdr = IPPROTO_UDP, .hop_limit = 64};

  __builtin_memcpy(&header.saddr, target->source.words, sizeof(header.saddr));
  __builtin_memcpy(&header.daddr, target->address.words, sizeof(header.daddr));
  return bpf_skb_store_bytes(skb, ETH_HLEN, &header, sizeof(header), 0);
}

/* Gives the skb the datagram's bytes. 0, or -1 where the kernel refuses. */
HR_INLINE int hr_build_datagram(struct __sk_buff *skb, const struct hr_watch_target *target) {
  const int ipv4 = !target->address.halves[0] && !(target->address.words[2] ^ bpf_htonl(0xffff)); /* ::ffff:0:0/96 */
  const __u32 l4_offset = ETH_HLEN + (ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
  const struct hr_watch_scratch *out = hr_the_scratch();
  struct ethhdr ethernet = {.h_proto = bpf_htons(ipv4 ? ETH_P_IP : ETH_P_IPV6)};
  struct udphdr udp = {.source = target->source_port_be, .dest = target->port_be};
  __u32 l4_bytes;

  if (!out) return -1;
  l4_bytes = sizeof(udp) + (out->bytes == HR_RESIGN_BYTES ? HR_RESIGN_BYTES : HR_ANNOUNCEMENT_BYTES);
  udp.len = bpf_htons(l4_bytes);
  udp.check = hr_sum_udp(out, target, &udp, ipv4);
  if (bpf_skb_change_tail(skb, l4_offset + l4_bytes, 0)) return -1;
  if (bpf_skb_store_bytes(skb, 0, &ethernet, sizeof(ethernet), 0)) return -1;
  if (ipv4 ? hr_store_ip4(skb, target, l4_bytes) : hr_store_ip6(skb, target, l4_bytes)) return -1;
  if (bpf_skb_store_bytes(skb, l4_offset, &udp, sizeof(udp), 0)) return -1;
  if (out->bytes == HR_RESIGN_BYTES)
    return bpf_skb_store_bytes(skb, l4_offset + sizeof(udp), &out->payload, HR_RESIGN_BYTES, 0) ? -1 : 0;
  return bpf_skb_store_bytes(skb, l4_offset + sizeof(udp), &out->payload, HR_ANNOUNCEMENT_BYTES, 0) ? -1 : 0;
}

/* Global: verified once. 1 = on its way, 0 = there is no such target, -1 = refused. */
HR_GLOBAL int hr_tell(struct __sk_buff *skb, __u32 index) {
  struct hr_watch_target *target = bpf_map_lookup_elem(&node_targets, &index);

  if (!target || !READ_ONCE(target->ifindex)) return 0;
  if (hr_build_datagram(skb, target)) return -1;
  skb->mark = HR_WATCH_MARK_SEND | HR_WATCH_MARK_VALUE(index);
  return bpf_clone_redirect(skb, watch_config.clock_in_ifindex, BPF_F_INGRESS) ? -1 : 1;
}
