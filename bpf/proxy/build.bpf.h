/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Making a packet of a parked copy: the bytes with their complete checksum, in a carrier skb that is not
 * CHECKSUM_PARTIAL. A copy is as right as what the client sent: a damaged request must not become a valid one. Called
 * where an attempt is sent (attempt.bpf.h).
 */
#pragma once

#include "bpf/net/checksum.bpf.h"
#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

/* bpf_csum_diff takes at most 512 bytes at a time before kernel 6.13 (its scratch buffer). */
#define HR_CHECKSUM_CHUNK 512
#define HR_CHECKSUM_CHUNKS 3
/* A consumed nack may carry CHECKSUM_COMPLETE, which then has to follow what is written over it. */
#define HR_STORE BPF_F_RECOMPUTE_CSUM

/* Sum over the parked layer 4, which is zero-padded to 4 bytes. */
HR_INLINE __s64 hr_sum_l4(struct hr_parked *parked, __u32 l4_bytes) {
  __u32 left = (l4_bytes + 3) & ~3u;
  __s64 sum = 0;

#pragma unroll
  for (__u32 i = 0; i < HR_CHECKSUM_CHUNKS; i++) {
    __u64 chunk = left < HR_CHECKSUM_CHUNK ? left : HR_CHECKSUM_CHUNK;

    HR_KEEP_BOUND(chunk);
    if (chunk > HR_CHECKSUM_CHUNK) return -1;
    if (i == HR_CHECKSUM_CHUNKS - 1 && chunk > HR_PARKED_L4_BYTES - (HR_CHECKSUM_CHUNKS - 1) * HR_CHECKSUM_CHUNK)
      return -1;
    if (!chunk) break;
    sum = bpf_csum_diff(0, 0, (__be32 *)(parked->l4 + i * HR_CHECKSUM_CHUNK), chunk, sum);
    if (sum < 0) return sum;
    left -= chunk;
  }
  return sum;
}

/* The UDP checksum of the parked packet, of which layer 4 sums to `sum`, with another destination and port. */
HR_INLINE __u16 hr_udp_checksum(__s64 sum, struct udphdr *from, struct udphdr *to, const struct hr_address *source,
                                const struct hr_address *destination, int version, __u32 l4_bytes) {
  sum = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), sum);
  return hr_fold_udp(hr_sum_pseudo_header(sum, source, destination, version == 4, l4_bytes));
}

/*
 * The same where the client's packet has a complete checksum: that one, with what changes taken out and put in (RFC
 * 1624), so that it is wrong where the client's was. 0: the packet has none yet (CHECKSUM_PARTIAL: the sum of its
 * pseudo header stands for it), or has none at all.
 */
HR_INLINE __u16 hr_followed_checksum(struct hr_parked *parked, struct udphdr *from, struct udphdr *to,
                                     const struct hr_address *source, const struct hr_address *destination, int version,
                                     __u32 l4_bytes) {
  struct hr_address vip = {};
  __s64 sum;

  if (!from->check) return 0;
  if (version == 4)
    __builtin_memcpy(&vip.words[3], parked->l3 + HR_PARKED_L3_BYTES - 4, 4);
  else
    __builtin_memcpy(&vip, parked->l3 + HR_PARKED_L3_BYTES - 16, 16);
  if (from->check == (__u16)~hr_fold(hr_sum_pseudo_header(0, source, &vip, version == 4, l4_bytes))) return 0;
  sum = (__u16)~from->check;
  from->check = 0;
  sum = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), sum);
  if (version == 4)
    sum = bpf_csum_diff((__be32 *)&vip.words[3], 4, (__be32 *)&destination->words[3], 4, sum);
  else
    sum = bpf_csum_diff((__be32 *)vip.words, 16, (__be32 *)destination->words, 16, sum);
  return hr_fold_udp(sum);
}

HR_INLINE int hr_store_ipv4(struct __sk_buff *skb, struct hr_parked *parked, __be32 destination) {
  struct iphdr header;
  __u16 protocol = bpf_htons(ETH_P_IP);

  __builtin_memcpy(&header, parked->l3 + HR_PARKED_L3_BYTES - sizeof(header), sizeof(header));
  header.daddr = destination;
  header.check = 0;
  header.check = hr_fold(bpf_csum_diff(0, 0, (__be32 *)&header, sizeof(header), 0));
  return bpf_skb_store_bytes(skb, 12, &protocol, 2, HR_STORE) ||
         bpf_skb_store_bytes(skb, ETH_HLEN, &header, sizeof(header), HR_STORE);
}

HR_INLINE int hr_store_ipv6(struct __sk_buff *skb, struct hr_parked *parked, const struct hr_address *destination) {
  __u16 protocol = bpf_htons(ETH_P_IPV6);

  return bpf_skb_store_bytes(skb, 12, &protocol, 2, HR_STORE) ||
         bpf_skb_store_bytes(skb, ETH_HLEN, parked->l3, HR_IPV6_HEADER_BYTES, HR_STORE) ||
         bpf_skb_store_bytes(skb, ETH_HLEN + 24, destination, 16, HR_STORE);
}

/* What pads a short frame: at most this much is behind a UDP header that follows an IPv4 header without options. */
#define HR_PADDING_BYTES (HR_IPV6_HEADER_BYTES - HR_IPV4_HEADER_BYTES - sizeof(struct udphdr))

/*
 * Gives the carrier its length. The kernel makes no packet shorter than up to where layer 4 began in it: a carrier that
 * was an IPv6 packet keeps padding behind a short IPv4 one, as Ethernet has it.
 */
HR_INLINE int hr_set_bytes(struct __sk_buff *skb, __u32 bytes) {
  static const __u8 padding[HR_PADDING_BYTES];

  if (!bpf_skb_change_tail(skb, bytes, 0)) return 0;
  return bytes >= ETH_HLEN + HR_IPV6_HEADER_BYTES || bpf_skb_change_tail(skb, ETH_HLEN + HR_IPV6_HEADER_BYTES, 0) ||
         bpf_skb_store_bytes(skb, ETH_HLEN + HR_IPV6_HEADER_BYTES - HR_PADDING_BYTES, padding, HR_PADDING_BYTES,
                             HR_STORE);
}

/*
 * Makes the carrier the parked packet, addressed to `backend`. A global function, so that the verifier walks it once;
 * everything is looked up again by index. 0 when done; the carrier's bytes are undefined otherwise.
 */
HR_GLOBAL int hr_build(struct __sk_buff *skb, __u32 request_index, __u32 backend_id) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);
  struct hr_address destination;
  struct hr_parked *parked;
  struct udphdr from, to;
  __u32 slot, l3_bytes;
  __u64 l4_bytes;
  __s64 sum;
  int version;

  if (!request || !backend) return -1;
  slot = request->parked;
  parked = slot ? bpf_map_lookup_elem(&pool, &slot) : 0;
  if (!parked) return -1;
  destination = backend->address;
  l3_bytes = hr_l3_header_bytes(request);
  l4_bytes = request->parked_bytes - l3_bytes;
  HR_KEEP_BOUND(l4_bytes);
  if (l4_bytes < sizeof(struct udphdr) || l4_bytes > HR_PARKED_L4_BYTES - 8) return -1;
  version = l3_bytes == HR_IPV6_HEADER_BYTES ? 6 : 4;
  __builtin_memcpy(&from, parked->l4, sizeof(from));
  to = from;
  to.dest = backend->port_be;
  to.check = 0;
  to.check = hr_followed_checksum(parked, &from, &to, &request->key.client, &destination, version, l4_bytes);
  if (!to.check) {
    sum = hr_sum_l4(parked, l4_bytes);
    if (sum < 0) return -1;
    to.check = hr_udp_checksum(sum, &from, &to, &request->key.client, &destination, version, l4_bytes);
  }
  if (hr_set_bytes(skb, ETH_HLEN + l3_bytes + l4_bytes)) return -1;
  if (l3_bytes == HR_IPV4_HEADER_BYTES) {
    if (hr_store_ipv4(skb, parked, destination.words[3])) return -1;
  } else {
    if (hr_store_ipv6(skb, parked, &destination)) return -1;
  }
  return bpf_skb_store_bytes(skb, ETH_HLEN + l3_bytes, parked->l4, l4_bytes, HR_STORE) ||
         bpf_skb_store_bytes(skb, ETH_HLEN + l3_bytes, &to, sizeof(to), HR_STORE);
}
