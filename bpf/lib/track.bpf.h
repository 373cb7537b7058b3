/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The life of a tracked request on the splitter's side: take a request and a pool slot, copy the bytes, claim the
 * key in the scoreboard (also from an older request), and put it into the wheel. Everything taken is given back on
 * every path that does not publish. Also the allocators, which the clock uses to give back.
 */
#ifndef HEDGEROW_BPF_LIB_TRACK_BPF_H_
#define HEDGEROW_BPF_LIB_TRACK_BPF_H_

#include "bpf/lib/flow.bpf.h"
#include "bpf/lib/profile.bpf.h"
#include "bpf/lib/steer.bpf.h"
#include "bpf/lib/wheel.bpf.h"

/* An index from a free list, or one never used before; 0 when all are taken. */
HR_INLINE __u32 hr_take(void *free_list, __u32 *made, __u32 limit) {
  __u32 index;

  if (bpf_map_pop_elem(free_list, &index) == 0) return index;
  if (*(volatile __u32 *)made >= limit) return 0;
  index = __sync_fetch_and_add(made, 1) + 1;
  return index <= limit ? index : 0;
}

HR_INLINE void hr_free_parked(struct hr_request *request) {
  __u32 parked = request->parked;

  if (!parked) return;
  request->parked = 0;
  bpf_map_push_elem(&free_parked, &parked, BPF_ANY);
}

/* Ends a request's life: a reference of this generation is void from here on. */
HR_INLINE void hr_free_request(struct hr_wheel *wheel, struct hr_request *request, __u32 index) {
  __u32 generation = HR_WORD_GENERATION(request->word) + 1;

  hr_free_parked(request);
  *(volatile __u64 *)&request->word = HR_WORD(generation, HR_NO_BACKEND, 0, HR_STATE_FREE);
  __sync_fetch_and_sub(&wheel->nodes, 1);
  bpf_map_push_elem(&free_requests, &index, BPF_ANY);
}

/* Copies a plain, whole UDP packet. Layer 4 is zero-padded: to 4 bytes for checksums, to 8 for comparisons. */
HR_INLINE int hr_copy_packet(struct __sk_buff *skb, const struct hr_packet *packet, struct hr_parked *parked) {
  __u64 l4_bytes = packet->l3_bytes - (packet->l4_offset - packet->l3_offset);
  __u32 l4_offset = packet->l4_offset;

  if (packet->version == 4) {
    if (bpf_skb_load_bytes(skb, packet->l3_offset, parked->l3, HR_IPV4_HEADER_BYTES)) return -1;
  } else {
    if (bpf_skb_load_bytes(skb, packet->l3_offset, parked->l3, HR_IPV6_HEADER_BYTES)) return -1;
  }
  asm volatile("" : "+r"(l4_bytes));
  if (l4_bytes < sizeof(struct udphdr) || l4_bytes > HR_PARKED_L4_BYTES - 8) return -1;
  if (bpf_skb_load_bytes(skb, l4_offset, parked->l4, l4_bytes)) return -1;
  __builtin_memset(parked->l4 + l4_bytes, 0, 8);
  return 0;
}

struct hr_tracking {
  __u32 request; /* index; 0 = untracked, for `reason` */
  __u32 reason;
};

/* Do two parked copies hold the same UDP payload? Only asked when a key is used again. */
struct hr_compare {
  struct hr_parked *a;
  struct hr_parked *b;
  __u32 different;
};
static long hr_compare_step(__u32 step, struct hr_compare *compare) {
  __u64 offset = sizeof(struct udphdr) + (__u64)step * 8;

  asm volatile("" : "+r"(offset));
  if (offset > HR_PARKED_L4_BYTES - 8) return 1;
  if (*(__u64 *)(compare->a->l4 + offset) == *(__u64 *)(compare->b->l4 + offset)) return 0;
  compare->different = 1;
  return 1;
}

/*
 * Word by word over the zero-padded copies, behind the UDP header (whose checksum depends on the state the skb was
 * in). A function of its own to the verifier, which would otherwise walk it once per path of its caller.
 */
__weak __attribute__((noinline)) int hr_same_payload(__u32 a, __u32 b, __u32 l4_bytes) {
  struct hr_compare compare = {};

  if (l4_bytes < sizeof(struct udphdr) || l4_bytes > HR_PARKED_L4_BYTES) return 0;
  compare.a = bpf_map_lookup_elem(&pool, &a);
  compare.b = bpf_map_lookup_elem(&pool, &b);
  if (!compare.a || !compare.b) return 0;
  bpf_loop((l4_bytes - sizeof(struct udphdr) + 7) / 8, hr_compare_step, &compare, 0);
  return !compare.different;
}

HR_INLINE int hr_is_retransmission(struct hr_request *old, struct hr_request *fresh) {
  struct hr_parked *parked;
  __u32 slot = fresh->parked;

  if (old->parked_bytes != fresh->parked_bytes || !old->parked) return 0;
  parked = bpf_map_lookup_elem(&pool, &slot);
  if (!parked) return 0;
  return hr_same_payload(old->parked, slot,
                         fresh->parked_bytes - (parked->l3[0] >> 4 == 6 ? HR_IPV6_HEADER_BYTES : HR_IPV4_HEADER_BYTES));
}

/*
 * The key is in use. Still pending with the same payload: the client's retransmission. Otherwise the newer request
 * takes the key over: the old one is detached by compare-and-swap, so that the clock, which removes a request from
 * the scoreboard only after its own compare-and-swap to REMOVING, never removes the newer one's entry.
 */
HR_INLINE __u32 hr_take_key_over(struct hr_wheel *wheel, struct hr_request *fresh, struct hr_request_ref *reference,
                                 struct hr_stats *service_stats, __u64 now_ns) {
  struct hr_request_ref *known = bpf_map_lookup_elem(&scoreboard, &fresh->key);
  struct hr_request *old;
  __u64 word, detached;

  if (!known) return HR_REASON_KEY_BUSY;
  old = hr_request_at(known->request);
  if (!old) return HR_REASON_KEY_BUSY;
  word = *(volatile __u64 *)&old->word;
  if (HR_WORD_GENERATION(word) != known->generation || (word & HR_WORD_DETACHED)) return HR_REASON_KEY_BUSY;
  if (HR_WORD_STATE(word) == HR_STATE_REMOVING || HR_WORD_STATE(word) == HR_STATE_FREE) return HR_REASON_KEY_BUSY;
  detached = word | HR_WORD_DETACHED;
  if (HR_WORD_STATE(word) == HR_STATE_PENDING) {
    if (hr_is_retransmission(old, fresh)) return HR_REASON_RETRANSMISSION;
    detached = HR_WORD(HR_WORD_GENERATION(word), HR_WORD_WINNER(word), HR_WORD_DETACHED, HR_STATE_SUPERSEDED);
    old->done_ns = now_ns;
  }
  if (__sync_val_compare_and_swap(&old->word, word, detached) != word) return HR_REASON_KEY_BUSY;
  if (HR_WORD_STATE(word) == HR_STATE_PENDING) {
    hr_disarm(wheel, old);
    hr_count(service_stats, HR_SUPERSEDED);
  }
  fresh->flags |= HR_REQUEST_KEY_REUSED;
  fresh->owed_mask = (old->sent_mask & ~old->answered_mask) | old->owed_mask;
  return bpf_map_update_elem(&scoreboard, &fresh->key, reference, BPF_EXIST) ? HR_REASON_KEY_BUSY : HR_REASON_NONE;
}

HR_INLINE void hr_fill_request(struct hr_request *request, struct __sk_buff *skb, const struct hr_packet *packet,
                               __u32 service_id, const struct hr_service *service, const struct hr_steer *steer,
                               int first_healthy, __u64 now_ns) {
  request->key.client = packet->source;
  request->key.client_port_be = packet->source_port_be;
  request->key.service = service_id;
  request->key.pad = 0;
  request->sent_ns = now_ns;
  request->due_ns = now_ns + service->delay_ns;
  request->fire_ns = 0;
  request->done_ns = 0;
  request->armed = 0;
  request->parked_bytes = packet->l3_bytes;
  request->mark = skb->mark;
  request->flags = first_healthy ? HR_REQUEST_FIRST_HEALTHY : 0;
  request->first = steer->first;
  request->rechecks = 0;
  request->sent_mask = 1u << steer->first;
  request->attempts = 1;
  if (steer->second != HR_NO_BACKEND) {
    request->sent_mask |= 1u << steer->second;
    request->attempts = 2;
  }
  request->answered_mask = 0;
  request->failover_mask = steer->failover;
  request->owed_mask = 0;
  /* With every attempt spent there is nothing to look at before the deadline. */
  if (request->attempts >= service->attempts) request->due_ns = now_ns + service->deadline_ns;
}

/* Why this packet cannot be tracked, from what is known before anything is taken. */
HR_INLINE __u32 hr_untrackable(struct __sk_buff *skb, const struct hr_packet *packet,
                               const struct hr_service *service) {
  if (service->switches & HR_SWITCH_BYPASS) return HR_REASON_BYPASS;
  if (service->attempts < 2 || service->backend_count < 2) return HR_REASON_NOT_HEDGED;
  if (packet->fragment != HR_WHOLE) return HR_REASON_FRAGMENT;
  if (skb->gso_segs > 1) return HR_REASON_GSO;
  if (!packet->plain) return HR_REASON_IP_OPTIONS;
  if (packet->l3_bytes > HR_PARKED_BYTES) return HR_REASON_TOO_BIG;
  if (!hr_is_request(skb, hr_payload_of(packet), &service->profile)) return HR_REASON_UNKNOWN_OPERATION;
  return HR_REASON_NONE;
}

/* Tracks a request: afterwards a reply finds it and the clock will look at it. */
HR_INLINE struct hr_tracking hr_track(struct __sk_buff *skb, const struct hr_packet *packet, __u32 service_id,
                                      const struct hr_service *service, const struct hr_steer *steer,
                                      int first_healthy, struct hr_stats *service_stats, __u64 now_ns) {
  struct hr_tracking tracking = {.request = 0, .reason = hr_untrackable(skb, packet, service)};
  struct hr_request_ref reference = {};
  struct hr_wheel *wheel = hr_the_wheel();
  struct hr_request *request;
  struct hr_parked *parked;
  __u32 slot;
  long error;

  if (tracking.reason || !wheel) return tracking;
  reference.request = hr_take(&free_requests, &wheel->requests_made, load_config.max_requests);
  request = hr_request_at(reference.request);
  if (!request) {
    tracking.reason = HR_REASON_REQUESTS_FULL;
    return tracking;
  }
  __sync_fetch_and_add(&wheel->nodes, 1);
  reference.generation = HR_WORD_GENERATION(request->word);
  hr_fill_request(request, skb, packet, service_id, service, steer, first_healthy, now_ns);
  request->parked = 0;
  __builtin_memset(request->key.correlation, 0, HR_CORRELATION_BYTES);
  if (hr_read_correlation(skb, hr_payload_of(packet), &service->profile.request_correlation,
                          request->key.correlation)) {
    tracking.reason = HR_REASON_UNKNOWN_OPERATION;
    goto give_back;
  }
  slot = hr_take(&free_parked, &wheel->pool_made, load_config.max_parked);
  parked = slot ? bpf_map_lookup_elem(&pool, &slot) : 0;
  if (!parked) {
    tracking.reason = HR_REASON_POOL_FULL;
    goto give_back;
  }
  request->parked = slot;
  if (hr_copy_packet(skb, packet, parked)) {
    tracking.reason = HR_REASON_COPY_FAILED;
    goto give_back;
  }
  *(volatile __u64 *)&request->word = HR_WORD(reference.generation, HR_NO_BACKEND, 0, HR_STATE_PENDING);
  error = bpf_map_update_elem(&scoreboard, &request->key, &reference, BPF_NOEXIST);
  if (error == -17 /* EEXIST */) {
    tracking.reason = hr_take_key_over(wheel, request, &reference, service_stats, now_ns);
    if (tracking.reason) goto give_back;
  } else if (error) {
    tracking.reason = HR_REASON_REQUESTS_FULL;
    goto give_back;
  }
  if (hr_push_due(wheel, request, reference.request, now_ns)) {
    bpf_map_delete_elem(&scoreboard, &request->key);
    tracking.reason = HR_REASON_WHEEL_CONTENDED;
    goto give_back;
  }
  tracking.request = reference.request;
  hr_clock_wake(skb, wheel, now_ns);
  return tracking;

give_back:
  hr_free_request(wheel, request, reference.request);
  return tracking;
}

#endif /* HEDGEROW_BPF_LIB_TRACK_BPF_H_ */
