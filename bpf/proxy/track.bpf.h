/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The life of a tracked request on the splitter's side: take a request and a pool slot, copy the bytes, claim the
 * key in the scoreboard (also from an older request), and put it into the wheel. Everything taken is given back on
 * every path that does not publish. Also the allocators, which the clock uses to give back.
 */
#pragma once

#include "bpf/proxy/choose.bpf.h"
#include "bpf/proxy/flow.bpf.h"
#include "bpf/proxy/free_list.bpf.h"
#include "bpf/proxy/load.bpf.h"
#include "bpf/proxy/operation.bpf.h"
#include "bpf/proxy/profile.bpf.h"
#include "bpf/proxy/scoreboard.bpf.h"
#include "bpf/proxy/share.bpf.h"
#include "bpf/proxy/trace.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

/* Frees a request whose copy is given back: a reference of this generation is void from here on. */
HR_INLINE void hr_free_request(struct hr_request *request, __u32 index) {
  if (request->counted) hr_hold(request->key.service, request->client, -HR_HELD_REQUEST);
  WRITE_ONCE(request->word, HR_WORD(HR_WORD_GENERATION(request->word) + 1, HR_NO_BACKEND, 0, HR_STATE_FREE));
  hr_give_index_back(HR_FREE_REQUESTS, index);
}

/* Counts a new request and its copy at its service and client. A global function: rare. */
HR_GLOBAL int hr_hold_counted(__u32 index) {
  struct hr_request *request = hr_request_at(index);

  if (!request) return 0;
  request->counted = 1;
  return hr_hold(request->key.service, request->client, HR_HELD_REQUEST + (request->parked ? HR_HELD_COPY : 0));
}

/* Copies a plain, whole UDP packet. Layer 4 is zero-padded: to 4 bytes for checksums, to 8 for comparisons. */
HR_INLINE int hr_copy_packet(struct __sk_buff *skb, const struct hr_packet *packet, struct hr_parked *parked) {
  __u64 l3_bytes = packet->l3_bytes;
  __u64 l4_bytes = l3_bytes - (packet->l4_offset - packet->l3_offset);
  __u8 *bytes = (__u8 *)parked;

  HR_KEEP_BOUND(l3_bytes);
  if (l3_bytes < HR_IPV4_HEADER_BYTES + sizeof(struct udphdr) || l3_bytes > HR_PARKED_BYTES) return -1;
  if (packet->version == 4) {
    if (bpf_skb_load_bytes(skb, packet->l3_offset, bytes + HR_PARKED_L3_BYTES - HR_IPV4_HEADER_BYTES, l3_bytes))
      return -1;
  } else {
    if (bpf_skb_load_bytes(skb, packet->l3_offset, bytes, l3_bytes)) return -1;
  }
  HR_KEEP_BOUND(l4_bytes);
  if (l4_bytes > HR_PARKED_L4_BYTES - 8) return -1;
  __builtin_memset(parked->l4 + l4_bytes, 0, 8);
  return 0;
}

/* A client's packet to a service, as the splitter's functions pass it on. Their stack holds it: all of them are inline.
 */
struct hr_split {
  struct __sk_buff *skb;
  struct hr_packet *packet;
  const struct hr_service_config *config;
  const struct hr_service_policy *policy;
  struct hr_stats *service_stats;
  __u64 now_ns;
  __u32 config_id;
  __u32 client; /* index into `clients` */
  struct hr_choice choice;
};

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

  HR_KEEP_BOUND(offset);
  if (offset > HR_PARKED_L4_BYTES - 8) return 1;
  if (*(__u64 *)(compare->a->l4 + offset) == *(__u64 *)(compare->b->l4 + offset)) return 0;
  compare->different = 1;
  return 1;
}

/*
 * Word by word over the zero-padded copies, behind the UDP header (whose checksum depends on the state the skb was
 * in). A function of its own to the verifier, which would otherwise walk it once per path of its caller.
 */
HR_GLOBAL int hr_same_payload(__u32 a, __u32 b, __u32 l4_bytes) {
  struct hr_compare compare = {};

  if (l4_bytes < sizeof(struct udphdr) || l4_bytes > HR_PARKED_L4_BYTES) return 0;
  compare.a = bpf_map_lookup_elem(&pool, &a);
  compare.b = bpf_map_lookup_elem(&pool, &b);
  if (!compare.a || !compare.b) return 0;
  bpf_loop((l4_bytes - sizeof(struct udphdr) + 7) / 8, hr_compare_step, &compare, 0);
  return !compare.different;
}

HR_INLINE int hr_is_retransmission(const struct hr_request *old, const struct hr_request *fresh) {
  if (old->parked_bytes != fresh->parked_bytes || ((old->flags ^ fresh->flags) & HR_REQUEST_IPV6) || !old->parked)
    return 0;
  return hr_same_payload(old->parked, fresh->parked, fresh->parked_bytes - hr_l3_header_bytes(fresh));
}

/*
 * The replies that are outstanding for the request after `old` under its key: those before, and one of each backend
 * that was sent `old` and has not answered. After the suspicion timeout what came of a backend was the reply to `old`,
 * and the one before is lost.
 */
HR_INLINE __u32 hr_outstanding_after(const struct hr_request *old, const struct hr_service_config *config,
                                     __u64 now_ns) {
  __u32 masks = READ_ONCE(old->masks), before = READ_ONCE(old->outstanding);
  __u32 own = HR_SENT_MASK(masks) & ~HR_ANSWERED_MASK(masks);
  __u32 one = HR_OUTSTANDING_NOW(before), two = HR_OUTSTANDING_TWO(before), since = HR_OUTSTANDING_SINCE(before);
  __u64 lapse_ns = config->deadline_ns + config->retention_ns;
  __u64 ticks = (HR_OUTSTANDING_TICK(now_ns) - since) & 0xff;

  if (now_ns > old->sent_ns + lapse_ns) return 0;
  if (ticks << HR_OUTSTANDING_TICK_SHIFT > lapse_ns + (1ull << HR_OUTSTANDING_TICK_SHIFT)) one = two = 0;
  if (now_ns > old->sent_ns + hr_silence_limit_ns(config, hr_backend_id(config, old->first)))
    own &= ~HR_OUTSTANDING_CAME(before);
  if (own) since = HR_OUTSTANDING_TICK(old->sent_ns);
  two |= one & own;
  one |= own;
  return one ? HR_OUTSTANDING(one, two, since) : 0;
}

/*
 * A request takes its key over from `old_index`, which is detached next, with the replies that are outstanding. 1: its
 * first send should go to a backend that owes the key nothing. A global function: rare.
 */
HR_GLOBAL int hr_inherit(__u32 config_id, __u32 old_index, __u32 index, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_request *old = hr_request_at(old_index);
  struct hr_request *request = hr_request_at(index);

  if (!config || !old || !request) return 0;
  request->flags |= HR_REQUEST_KEY_REUSED;
  request->outstanding = hr_outstanding_after(old, config, now_ns);
  request->set = old->set;
  return (hr_owing(config, request) & HR_SENT_MASK(request->masks)) != 0;
}

/*
 * Steers a first send away from a backend that owes its key a reply, to one that is healthy and owes none: of the
 * other, an older reply could pass for this request's, or this request's be dropped in place of one that was lost.
 * Before the request is pending. Not what goes around a backend that is down, nor a test of the hedge. A global
 * function: it has a stack of its own.
 */
HR_GLOBAL int hr_steer_owed(__u32 config_id, __u32 index, __u64 now_ns) {
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  struct hr_request *request = hr_request_at(index);
  struct hr_choice choice;

  if (!policy || !request || request->masks >> 8 || hr_is_dry(policy)) return 0;
  choice = hr_unpack_choice(
      hr_choose_now(config_id, HR_OUTSTANDING_NOW(request->outstanding), HR_EXPLORE_NEVER, request->client, now_ns));
  if (!hr_choice_is_fair(&choice) || hr_is_drained(policy, choice.first)) return 0;
  request->first = choice.first;
  request->in_flight = 1u << choice.first;
  request->masks = HR_MASKS_SENT(1u << choice.first);
  return 0;
}

/*
 * The key is in use. While the older request waits, it keeps the key: the same payload is the client's retransmission,
 * and what differs is forwarded once, untracked, as nothing but its answer tells it from the older one. A request that
 * waits no more leaves its key: it is detached by compare-and-swap, so that the clock, which removes a request from
 * the scoreboard only after its own compare-and-swap to REMOVING, never removes the newer one's entry.
 */
HR_INLINE __u32 hr_take_key_over(const struct hr_split *split, struct hr_request *fresh, __u64 reference, __u64 known) {
  struct hr_request *old = hr_request_at(HR_REFERENCE_REQUEST(known));
  __u64 word;
  int owed;

  if (!old) return HR_REASON_KEY_BUSY;
  word = READ_ONCE(old->word);
  if (HR_WORD_GENERATION(word) != HR_REFERENCE_GENERATION(known) || (word & HR_WORD_DETACHED))
    return HR_REASON_KEY_BUSY;
  if (HR_WORD_STATE(word) == HR_STATE_REMOVING || HR_WORD_STATE(word) == HR_STATE_CLAIMING ||
      HR_WORD_STATE(word) == HR_STATE_FREE)
    return HR_REASON_KEY_BUSY;
  if (HR_WORD_STATE(word) == HR_STATE_PENDING) {
    int again = hr_is_retransmission(old, fresh);

    /* The old copy may have been freed and filled anew while it was read, but not while its word stands. A full
     * barrier. */
    if (__sync_fetch_and_add(&old->word, 0) != word || !again) return HR_REASON_KEY_BUSY;
    /* The retransmission goes to the backend that is chosen now, which may answer too. */
    __sync_fetch_and_and(&old->masks, ~HR_MASKS_NOT_AWAITED(1u << (fresh->first & (HR_MAX_BACKENDS_PER_SERVICE - 1))));
    __sync_fetch_and_or(&old->masks, HR_MASKS_SENT(1u << fresh->first));
    return HR_REASON_RETRANSMISSION;
  }
  /* Before the swap, behind which the clock may free the older one, and its entry serve another. */
  owed = hr_inherit(split->config_id, HR_REFERENCE_REQUEST(known), HR_REFERENCE_REQUEST(reference), split->now_ns);
  if (__sync_val_compare_and_swap(&old->word, word, word | HR_WORD_DETACHED) != word) return HR_REASON_KEY_BUSY;
  hr_flights_end(split->config_id, HR_REFERENCE_REQUEST(known), 0); /* no reply finds it any more */
  if (owed) hr_steer_owed(split->config_id, HR_REFERENCE_REQUEST(reference), split->now_ns);
  return hr_swap_in_set(fresh->set, known, reference) ? HR_REASON_KEY_BUSY : HR_REASON_NONE;
}

/* Claims the key; the reason why not, otherwise. Two CPUs that claim one key at once may both have to give way. */
HR_INLINE __u32 hr_claim_key(const struct hr_split *split, struct hr_wheel *wheel, struct hr_request *request,
                             __u64 hash, __u64 reference) {
  __u64 other = hr_scoreboard_insert(wheel, request, hash, reference);

  if (!other) return HR_REASON_NONE;
  if (other == HR_SCOREBOARD_FULL) return HR_REASON_SCOREBOARD_FULL;
  return hr_take_key_over(split, request, reference, other);
}

HR_INLINE void hr_fill_request(const struct hr_split *split, struct hr_request *request) {
  const struct hr_packet *packet = split->packet;
  const struct hr_choice *choice = &split->choice;

  request->key.client = packet->source;
  request->key.client_port_be = packet->source_port_be;
  request->key.service = HR_CONFIG_SERVICE(split->config_id);
  request->key.pad = 0;
  __builtin_memset(request->key.correlation, 0, sizeof(request->key.correlation)); /* by_socket writes none */
  request->client = split->client;
  request->counted = 0;
  request->sent_ns = split->now_ns;
  request->due_ns = split->now_ns + READ_ONCE(split->policy->delay_ns);
  request->fire_ns = 0;
  request->done_ns = 0;
  request->armed = 0;
  request->parked_bytes = packet->l3_bytes;
  request->mark = split->skb->mark;
  request->flags = (hr_choice_is_measured(choice) ? HR_REQUEST_FIRST_HEALTHY : 0) | HR_REQUEST_BY(packet->way) |
                   (packet->version == 4 ? 0 : HR_REQUEST_IPV6);
  request->first = choice->first;
  request->rechecks = 0;
  request->in_flight = choice->why == HR_CHOSE_TEST ? 0 : 1u << choice->first; /* counted by hr_flight_begin_first() */
  request->masks = HR_MASKS_SENT(1u << choice->first);
  if (hr_choice_goes_around(choice)) request->masks |= HR_MASKS_FAILOVER(1u << choice->first);
  if (choice->why == HR_CHOSE_TEST)
    request->masks |= HR_MASKS_NOT_AWAITED(1u << choice->first); /* so the next attempt is free */
  request->attempts = 1;
  request->outstanding = 0;
  request->hint = 0;
  request->handed_to = 0;
  request->sent_again = 0;
  request->put_off = 0;
  request->trace = packet->trace;
  request->trace_emitted = 0;
}

/* Why this packet cannot be tracked, from what is known before anything is taken. */
HR_INLINE __u32 hr_untrackable(const struct hr_split *split) {
  const struct hr_packet *packet = split->packet;

  if (READ_ONCE(split->policy->switches) & HR_SWITCH_BYPASS) return HR_REASON_BYPASS;
  if (split->config->attempts < 2 || !hr_has_standby(split->config)) return HR_REASON_NOT_HEDGED;
  if (packet->fragment != HR_WHOLE) return HR_REASON_FRAGMENT;
  if (split->skb->gso_size) return HR_REASON_GSO;
  if (!packet->plain) return HR_REASON_IP_OPTIONS;
  if (packet->l3_bytes > HR_PARKED_BYTES) return HR_REASON_TOO_BIG;
  if (packet->l4_offset - packet->l3_offset + sizeof(struct udphdr) + packet->payload_bytes != packet->l3_bytes)
    return HR_REASON_TRAILING_BYTES;
  return HR_REASON_NONE;
}

/* Unattended: no daemon has lived for the unattended timeout, so nothing new is hedged. Traffic flows on. */
HR_INLINE int hr_is_unattended(const struct hr_wheel *wheel, __u64 now_ns) {
  __u64 until_ns = READ_ONCE(wheel->hedge_until_ns);

  return until_ns && now_ns > until_ns;
}

/* Fills and publishes a request whose index and slot are taken; the reason why not, otherwise. */
HR_INLINE __u32 hr_publish_request(const struct hr_split *split, struct hr_wheel *wheel, struct hr_request *request,
                                   __u32 index) {
  const struct hr_profile *profile = &split->config->profile;
  const struct hr_packet *packet = split->packet;
  __u32 slot = request->parked;
  struct hr_parked *parked = bpf_map_lookup_elem(&pool, &slot);
  __u32 generation = HR_WORD_GENERATION(request->word);
  __u64 hash, reference;
  __u32 reason;

  if (!parked || hr_copy_packet(split->skb, packet, parked)) return HR_REASON_COPY_FAILED;
  if (profile->request_correlation.pairing >= HR_PAIR_PATH) {
    struct hr_payload payload = hr_payload_of(packet);

    if (hr_locate(split->skb, split->config_id, payload.offset, payload.bytes, 0) ||
        hr_take_located(request->key.correlation))
      return HR_REASON_UNKNOWN_OPERATION;
  } else if (hr_parked_correlation(parked, packet->payload_bytes, &profile->request_correlation,
                                   request->key.correlation)) {
    return HR_REASON_UNKNOWN_OPERATION;
  }
  if (!hr_parked_is_request(parked, packet->payload_bytes, profile)) return HR_REASON_UNKNOWN_OPERATION;
  reason = hr_judge_operation(profile, split->config_id, slot, packet->payload_bytes);
  if (reason) return reason;
  hash = hr_key_hash(&request->key);
  request->tag = hr_hash_tag(hash);
  reference = HR_REFERENCE(generation, request->tag, index);
  /* Other splitters find it from here on, but no program changes it before it is PENDING: it can still be withdrawn. */
  WRITE_ONCE(request->word, HR_WORD(generation, HR_NO_BACKEND, 0, HR_STATE_CLAIMING));
  reason = hr_claim_key(split, wheel, request, hash, reference);
  if (reason) return reason;
  if (hr_push_due(wheel, request, index, split->now_ns)) {
    hr_scoreboard_remove(wheel, request->set, reference);
    return HR_REASON_WHEEL_CONTENDED;
  }
  WRITE_ONCE(request->word,
             HR_WORD(generation, HR_NO_BACKEND, 0, HR_STATE_PENDING)); /* behind the push's full barrier */
  return HR_REASON_NONE;
}

/* Tracks a request: afterwards a reply finds it and the clock will look at it. */
HR_INLINE struct hr_tracking hr_track(struct hr_split *split) {
  struct hr_tracking tracking = {.request = 0, .reason = hr_untrackable(split)};
  struct hr_wheel *wheel = hr_the_wheel();
  struct hr_request *request;
  __u64 held;
  __u32 slot;

  if (tracking.reason || !wheel) return tracking;
  if (hr_is_unattended(wheel, split->now_ns)) {
    tracking.reason = HR_REASON_NO_DAEMON;
    return tracking;
  }
  held = READ_ONCE(wheel->held);
  if (hr_is_beyond(held, 2)) tracking.reason = hr_share_reason(split->config_id, split->client, held);
  if (tracking.reason) return tracking;
  tracking.request = hr_take_index(HR_FREE_REQUESTS);
  request = hr_request_at(tracking.request);
  if (!request) {
    tracking.request = 0;
    tracking.reason = HR_REASON_REQUESTS_FULL;
    return tracking;
  }
  slot = hr_take_index(HR_FREE_PARKED);
  request->parked = slot;
  hr_fill_request(split, request);
  if (hr_is_beyond(READ_ONCE(wheel->held), 4)) hr_hold_counted(tracking.request);
  tracking.reason = slot ? hr_publish_request(split, wheel, request, tracking.request) : HR_REASON_POOL_FULL;
  if (tracking.reason) {
    hr_give_copy_back(tracking.request);
    hr_free_request(request, tracking.request);
    tracking.request = 0;
    return tracking;
  }
  split->choice.first = request->first; /* as steered */
  hr_clock_wake(split->skb, wheel, split->now_ns);
  return tracking;
}
