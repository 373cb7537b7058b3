/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Making a packet of a parked copy: which attempt, to whom, and the bytes with their complete, correct checksum, in
 * a carrier skb that is not CHECKSUM_PARTIAL. Called by the clock program, for what is due and for released nacks.
 */
#ifndef HEDGEROW_BPF_LIB_RESCUE_BPF_H_
#define HEDGEROW_BPF_LIB_RESCUE_BPF_H_

#include "bpf/lib/flow.bpf.h"
#include "bpf/lib/steer.bpf.h"
#include "bpf/lib/trace.bpf.h"
#include "bpf/lib/track.bpf.h"
#include "bpf/lib/wheel.bpf.h"

/* bpf_csum_diff takes at most 512 bytes at a time before kernel 6.13 (its scratch buffer). */
#define HR_CHECKSUM_CHUNK 512
#define HR_CHECKSUM_CHUNKS 3
/* A spent nack may carry CHECKSUM_COMPLETE, which then has to follow what is written over it. */
#define HR_STORE BPF_F_RECOMPUTE_CSUM

/* Sum over the parked layer 4, which is zero-padded to 4 bytes. */
HR_INLINE __s64 hr_sum_l4(struct hr_parked *parked, __u32 l4_bytes) {
  __u32 left = (l4_bytes + 3) & ~3u;
  __s64 sum = 0;

#pragma unroll
  for (__u32 i = 0; i < HR_CHECKSUM_CHUNKS; i++) {
    __u64 chunk = left < HR_CHECKSUM_CHUNK ? left : HR_CHECKSUM_CHUNK;

    asm volatile("" : "+r"(chunk));
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

HR_INLINE __u16 hr_fold(__u64 sum) {
  sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + ((sum >> 32) & 0xffff);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return ~sum;
}

/* The UDP checksum (RFC 768, RFC 8200 section 8.1) of the parked packet with another destination and port. */
HR_INLINE __u16 hr_udp_checksum(__s64 sum, struct udphdr *from, struct udphdr *to, const struct hr_address *source,
                                const struct hr_address *destination, int version, __u32 l4_bytes) {
  __be32 tail[2] = {bpf_htonl(l4_bytes), bpf_htonl(IPPROTO_UDP)};
  __u16 checksum;

  sum = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), sum);
  if (version == 4) {
    sum = bpf_csum_diff(0, 0, (__be32 *)&source->words[3], 4, sum);
    sum = bpf_csum_diff(0, 0, (__be32 *)&destination->words[3], 4, sum);
  } else {
    sum = bpf_csum_diff(0, 0, (__be32 *)source->words, 16, sum);
    sum = bpf_csum_diff(0, 0, (__be32 *)destination->words, 16, sum);
  }
  sum = bpf_csum_diff(0, 0, tail, sizeof(tail), sum);
  checksum = hr_fold(sum);
  return checksum ? checksum : 0xffff;
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

/*
 * Makes the carrier the parked packet, addressed to `backend`. A global function, so that the verifier walks it once;
 * everything is looked up again by index. 0 when done; the carrier's bytes are undefined otherwise.
 */
__weak __attribute__((noinline)) int hr_build(struct __sk_buff *skb, __u32 request_index, __u32 backend_id) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);
  struct hr_address destination;
  struct hr_parked *parked;
  struct udphdr from, to;
  __u32 slot, l3_bytes;
  __u64 l4_bytes;
  __s64 sum;

  if (!request || !backend) return -1;
  slot = request->parked;
  parked = slot ? bpf_map_lookup_elem(&pool, &slot) : 0;
  if (!parked) return -1;
  destination = backend->address;
  l3_bytes = request->l3_header_bytes == HR_IPV6_HEADER_BYTES ? HR_IPV6_HEADER_BYTES : HR_IPV4_HEADER_BYTES;
  l4_bytes = request->parked_bytes - l3_bytes;
  asm volatile("" : "+r"(l4_bytes));
  if (l4_bytes < sizeof(struct udphdr) || l4_bytes > HR_PARKED_L4_BYTES - 8) return -1;
  sum = hr_sum_l4(parked, l4_bytes);
  if (sum < 0) return -1;
  __builtin_memcpy(&from, parked->l4, sizeof(from));
  to = from;
  to.dest = backend->port_be;
  to.check = 0;
  to.check = hr_udp_checksum(sum, &from, &to, &request->key.client, &destination,
                             l3_bytes == HR_IPV6_HEADER_BYTES ? 6 : 4, l4_bytes);

  if (bpf_skb_change_tail(skb, ETH_HLEN + l3_bytes + l4_bytes, 0)) return -1;
  if (l3_bytes == HR_IPV4_HEADER_BYTES) {
    if (hr_store_ipv4(skb, parked, destination.words[3])) return -1;
  } else {
    if (hr_store_ipv6(skb, parked, &destination)) return -1;
  }
  return bpf_skb_store_bytes(skb, ETH_HLEN + l3_bytes, parked->l4, l4_bytes, HR_STORE) ||
         bpf_skb_store_bytes(skb, ETH_HLEN + l3_bytes, &to, sizeof(to), HR_STORE);
}

struct hr_attempt {
  __u32 backend_id;
  __u8 index;    /* HR_NO_BACKEND: no attempt now, for `reason` */
  __u8 failover; /* unbudgeted */
  __u8 reason;
  __u8 hinted; /* it goes where a nack said that the leader is */
};

/*
 * Who gets the next attempt, if no nack named it: the leader, not asked yet and not silent, else a standby not asked yet. A
 * leader that is drained, or slower than the one who is preferred to it, is a standby like others.
 */
HR_INLINE __u32 hr_next_target(const struct hr_service *service, __u32 service_id, __u32 sent_mask, __u64 now_ns) {
  __u32 leader = hr_leader_of(service_id);

  if (!(sent_mask & (1u << leader)) && !hr_is_drained(service, leader) && !service->preferred &&
      hr_health_of(service_id, hr_backend_id(service, leader), now_ns) == HR_HEALTHY)
    return leader;
  return hr_pick_standby(service_id, sent_mask);
}

/*
 * Claims the next attempt of a pending request. It is a failover, free of the budget, when everyone asked so far has
 * refused or is silent, and the next is not down; otherwise a hedge, paid for: with every backend down nothing is gained by
 * asking two, and the doubling ends as each becomes DOWN. The claim is a compare-and-swap on `attempts`, so that the clock
 * and a nack's release never make the same attempt twice. In a dry run it is claimed, paid and counted, and goes to nobody.
 *
 * What a backend has said about hedging holds for hedges, and for what was refused with these words. Not for other refusals,
 * nor for silence: those are about who can answer, not about how soon.
 */
HR_INLINE struct hr_attempt hr_claim_attempt(struct hr_request *request, const struct hr_service *service,
                                             __u32 service_id, int refused, __u64 now_ns) {
  struct hr_attempt attempt = {.index = HR_NO_BACKEND, .reason = HR_REASON_NO_TARGET};
  __u32 attempts = *(volatile __u32 *)&request->attempts;
  __u32 sent_mask = HR_SENT(*(volatile __u32 *)&request->marks);
  __u64 open_ns = 0;
  int silent;
  __u32 target;

  if (attempts >= service->attempts) return attempt;
  target = hr_open_hint(request, sent_mask);
  attempt.hinted = target < HR_MAX_BACKENDS_PER_SERVICE;
  if (!attempt.hinted) target = hr_next_target(service, service_id, sent_mask, now_ns);
  if (target >= HR_MAX_BACKENDS_PER_SERVICE) return attempt;
  silent = hr_health_of(service_id, hr_backend_id(service, request->first), now_ns) != HR_HEALTHY;
  attempt.failover = refused || (silent && hr_health_of(service_id, hr_backend_id(service, target), now_ns) != HR_DOWN);
  if (!attempt.failover && hr_is_drained(service, target)) {
    attempt.reason = HR_REASON_DRAINED;
    return attempt;
  }
  if (!silent && (!refused || request->put_off) &&
      hr_held_back(service_id, request->sent_ns, now_ns, &open_ns)) {
    attempt.reason = HR_REASON_PUSHBACK;
    return attempt;
  }
  if (!attempt.failover && !hr_budget_pay(service_id)) {
    attempt.reason = HR_REASON_NO_BUDGET;
    return attempt;
  }
  if (__sync_val_compare_and_swap(&request->attempts, attempts, attempts + 1) != attempts) {
    if (!attempt.failover) hr_budget_refund(service_id);
    attempt.reason = HR_REASON_NONE; /* somebody else is making it */
    return attempt;
  }
  attempt.reason = HR_REASON_NONE;
  if (hr_is_dry(service)) {
    hr_count(hr_stats_of(service_id), attempt.failover ? HR_WOULD_FAIL_OVER : HR_WOULD_HEDGE);
    return attempt;
  }
  attempt.index = target;
  attempt.backend_id = hr_backend_id(service, target);
  return attempt;
}

/* Notes an attempt before it is sent, so that its answer finds everything in place. */
HR_INLINE void hr_note_attempt(struct hr_request *request, const struct hr_attempt *attempt,
                               const struct hr_service *service, __u32 service_id, __u64 now_ns) {
  __u32 bit = 1u << (attempt->index & (HR_MAX_BACKENDS_PER_SERVICE - 1));

  __sync_fetch_and_or(&request->marks, HR_MARKS_SENT(bit) | (attempt->failover ? HR_MARKS_FAILOVER(bit) : 0));
  /* Either may be the loser. */
  hr_flow_note(&request->key.client, request->key.client_port_be, IPPROTO_UDP, HR_FLOW_REPLY, attempt->backend_id,
               service_id, HR_FLOW_HEDGED, now_ns);
  hr_flow_note(&request->key.client, request->key.client_port_be, IPPROTO_UDP, HR_FLOW_REPLY,
               hr_backend_id(service, request->first), service_id, HR_FLOW_HEDGED, now_ns);
}

/* For the tracer: what was made of an attempt. */
HR_INLINE void hr_trace_attempt(__u32 request, const struct hr_attempt *attempt, __u32 kind) {
  hr_trace_note(request, kind, HR_REASON_NONE, attempt->index,
                (attempt->failover ? HR_TRACE_FAILOVER : 0) | (attempt->hinted ? HR_TRACE_HINTED : 0));
}

/* It is on its way. */
HR_INLINE void hr_count_attempt(const struct hr_attempt *attempt, struct hr_stats *service_stats, __u64 now_ns) {
  hr_count(service_stats, attempt->failover ? HR_FAILOVER_SENDS : HR_HEDGES);
  hr_count(service_stats, HR_EXTRA_SENDS);
  if (attempt->hinted) hr_count(service_stats, HR_HINTED);
  hr_note_send(attempt->backend_id, now_ns);
}

/* The kernel would not build or send it: the attempt is open again, and nobody waits for that backend. */
HR_INLINE void hr_undo_attempt(struct hr_request *request, const struct hr_attempt *attempt, __u32 service_id,
                               struct hr_stats *service_stats, __u32 reason) {
  __u32 bit = 1u << (attempt->index & (HR_MAX_BACKENDS_PER_SERVICE - 1));

  __sync_fetch_and_and(&request->marks, ~(HR_MARKS_SENT(bit) | HR_MARKS_FAILOVER(bit)));
  __sync_fetch_and_sub(&request->attempts, 1);
  if (!attempt->failover) hr_budget_refund(service_id);
  hr_reason(service_stats, reason);
}

#endif /* HEDGEROW_BPF_LIB_RESCUE_BPF_H_ */
