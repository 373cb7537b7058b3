/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The answer to the datagram in hand, sent back over the interface it came by (XDP_TX): a new frame in the place of
 * the old, with addresses swapped, a packet number of its own, tag, and whole checksums, since nothing completes them
 * later, with one exception (hr_node_udp_checksum). No answer is longer than its question, so the frame only ever
 * shrinks.
 */
#pragma once

#include "bpf/net/checksum.bpf.h"
#include "bpf/node/parse.bpf.h"

#define HR_NODE_TTL 64

/*
 * Of UDP: pseudo header, header, and the whole answer (what is behind its end is zero).
 *
 * Generic XDP sends the packet in which the datagram came, and that packet may still say CHECKSUM_PARTIAL: between
 * virtual machines of one host virtio-net passes checksums on that no device has completed. The device completes ours,
 * so it must find the pseudo header's sum in the field, as it stands in the datagram's. A whole checksum has the same
 * value once in 65,536 datagrams; such an answer is lost as on the network. Native XDP never sends the packet itself
 * (Linux 6.1, 6.12).
 */
HR_INLINE void hr_node_udp_checksum(struct hr_node_scratch *in, struct udphdr *udp, void *addresses,
                                    __u32 address_bytes, __be16 asked_bytes, __u16 asked_check) {
  __s64 pseudo = bpf_csum_diff(NULL, 0, addresses, address_bytes, bpf_htons(IPPROTO_UDP));
  __u32 zero = 0;
  const struct hr_node_hook *hook = bpf_map_lookup_elem(&xdp_hook, &zero);
  __s64 sum;

  if (hook && hook->generic && asked_check == (__u16)~hr_fold(pseudo + asked_bytes)) {
    udp->check = ~hr_fold(pseudo + udp->len);
    return;
  }
  udp->check = 0;
  sum = bpf_csum_diff(NULL, 0, (void *)udp, sizeof(*udp), pseudo + udp->len);
  sum = bpf_csum_diff(NULL, 0, (void *)&in->answer, sizeof(in->answer), sum);
  udp->check = hr_fold_udp(sum);
}

HR_INLINE void hr_node_head_udp(struct hr_node_scratch *in, const struct udphdr *asked, __u32 bytes) {
  struct udphdr *udp = (void *)in->head + HR_NODE_HEAD_BYTES - sizeof(*udp);

  udp->source = asked->dest;
  udp->dest = asked->source;
  udp->len = bpf_htons(bytes + sizeof(*udp));
}

HR_INLINE void hr_node_head_ethernet(void *head, const struct ethhdr *asked) {
  struct ethhdr *ethernet = head;

  __builtin_memcpy(ethernet->h_dest, asked->h_source, ETH_ALEN);
  __builtin_memcpy(ethernet->h_source, asked->h_dest, ETH_ALEN);
  ethernet->h_proto = asked->h_proto;
}

/* Where the frame begins within `head`; -1: the frame in hand has changed under us. */
HR_INLINE int hr_node_head_ipv4(struct xdp_md *ctx, struct hr_node_scratch *in, __u32 bytes) {
  void *data = (void *)(long)ctx->data;
  struct iphdr *asked = data + ETH_HLEN;
  struct udphdr *udp = (void *)in->head + HR_NODE_HEAD_BYTES - sizeof(*udp);
  struct iphdr *ip = (void *)udp - sizeof(*ip);
  struct udphdr *asked_udp = data + HR_NODE_UDP4_OFFSET;

  if ((void *)(asked_udp + 1) > (void *)(long)ctx->data_end) return -1;
  hr_node_head_ethernet((void *)ip - ETH_HLEN, data);
  hr_node_head_udp(in, asked_udp, bytes);
  *(__u8 *)ip = HR_NODE_IPV4_PLAIN;
  ip->tos = 0;
  ip->tot_len = bpf_htons(bytes + sizeof(*udp) + sizeof(*ip));
  ip->id = 0; /* RFC 6864: means nothing with "do not fragment" */
  ip->frag_off = bpf_htons(0x4000);
  ip->ttl = HR_NODE_TTL;
  ip->protocol = IPPROTO_UDP;
  ip->check = 0;
  ip->saddr = asked->daddr;
  ip->daddr = asked->saddr;
  ip->check = hr_fold(bpf_csum_diff(NULL, 0, (void *)ip, sizeof(*ip), 0));
  hr_node_udp_checksum(in, udp, &ip->saddr, 8, asked_udp->len, asked_udp->check);
  return HR_NODE_HEAD_BYTES - HR_NODE_UDP4_OFFSET - (int)sizeof(*udp);
}

HR_INLINE int hr_node_head_ipv6(struct xdp_md *ctx, struct hr_node_scratch *in, __u32 bytes) {
  void *data = (void *)(long)ctx->data;
  struct ipv6hdr *asked = data + ETH_HLEN;
  struct udphdr *udp = (void *)in->head + HR_NODE_HEAD_BYTES - sizeof(*udp);
  struct ipv6hdr *ip = (void *)udp - sizeof(*ip);
  struct udphdr *asked_udp = data + HR_NODE_UDP6_OFFSET;

  if ((void *)(asked_udp + 1) > (void *)(long)ctx->data_end) return -1;
  hr_node_head_ethernet((void *)ip - ETH_HLEN, data);
  hr_node_head_udp(in, asked_udp, bytes);
  *(__be32 *)ip = bpf_htonl(0x60000000);
  ip->payload_len = bpf_htons(bytes + sizeof(*udp));
  ip->nexthdr = IPPROTO_UDP;
  ip->hop_limit = HR_NODE_TTL;
  __builtin_memcpy(&ip->saddr, &asked->daddr, 16);
  __builtin_memcpy(&ip->daddr, &asked->saddr, 16);
  hr_node_udp_checksum(in, udp, &ip->saddr, 32, asked_udp->len, asked_udp->check);
  return HR_NODE_HEAD_BYTES - HR_NODE_UDP6_OFFSET - (int)sizeof(*udp);
}

/* Header and tag around the body that was decided on. */
HR_INLINE int hr_node_seal(struct hr_node_scratch *in, __u32 bytes) {
  struct hr_peer_header *header = &in->answer.header;
  __u32 zero = 0;
  struct hr_node_numbers *drawn = bpf_map_lookup_elem(&numbers, &zero);
  struct hr_node_key *seals = hr_node_key_of(HR_NODE_KEY_SEALS);
  struct hr_siphash_key key;

  if (!drawn || !seals || !in->spoken.incarnation) return 0;
  key = seals->key;
  header->magic = HR_PEER_MAGIC;
  header->version = HR_PEER_VERSION;
  header->kind = hr_node_answer_kind(in->kind);
  header->bytes = bytes;
  header->tag = 0;
  header->cluster_id = node_config.cluster_id;
  header->from_incarnation = in->spoken.incarnation;
  header->packet_number = __sync_fetch_and_add(&drawn->packet_number, 1) + 1;
  header->from = node_config.self;
  header->to = in->taken.from;
  header->term = in->spoken.term;
  header->config_epoch = in->spoken.config_epoch;
  header->key_id = seals->id;
  header->tag = hr_siphash_bounded(&key, &in->answer, bytes, sizeof(in->answer), HR_SIPHASH_TAG_WORD);
  return 1;
}

/*
 * The XDP action. Where it fails before the frame is touched, the process gets the datagram, and answers it: whatever
 * was decided may be decided twice. The rest of the answer's body was set to zero before the decision.
 */
HR_GLOBAL int hr_node_send_answer(struct xdp_md *ctx, struct hr_node_scratch *in) {
  __u32 bytes, answer_bytes;
  int begin;

  if (!in) return XDP_PASS;
  bytes = hr_node_answer_bytes(in->kind);
  if (!hr_node_seal(in, bytes)) return XDP_PASS;
  begin = in->ipv6 ? hr_node_head_ipv6(ctx, in, bytes) : hr_node_head_ipv4(ctx, in, bytes);
  if (begin < 0) return XDP_PASS;
  answer_bytes = HR_NODE_HEAD_BYTES - begin + bytes;
  if (answer_bytes > in->frame_bytes || bpf_xdp_adjust_tail(ctx, (int)(answer_bytes - in->frame_bytes)))
    return XDP_PASS;
  if (begin == HR_NODE_HEAD_BYTES - HR_NODE_UDP4_OFFSET - 8)
    return bpf_xdp_store_bytes(ctx, 0, in->head + HR_NODE_HEAD_BYTES - HR_NODE_UDP4_OFFSET - 8, answer_bytes) ? XDP_DROP
                                                                                                              : XDP_TX;
  return bpf_xdp_store_bytes(ctx, 0, in->head + HR_NODE_HEAD_BYTES - HR_NODE_UDP6_OFFSET - 8, answer_bytes) ? XDP_DROP
                                                                                                            : XDP_TX;
}
