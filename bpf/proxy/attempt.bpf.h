/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sending a request once more, for any reason: a copy beside the first send, a hedge, a nack's release, a probe, a
 * handover. Each is claimed, sent and settled once, as sent, not needed or failed; budget, masks, attempts, flows,
 * counters and trace are touched nowhere else. The backend travels in skb->mark, the copy's due time and its request's
 * generation in its Ethernet source address, so that two sends of one request that are under way at once share no
 * state. Called by the splitter and the clock.
 */
#pragma once

#include "bpf/proxy/build.bpf.h"
#include "bpf/proxy/choose.bpf.h"
#include "bpf/proxy/flow.bpf.h"
#include "bpf/proxy/impaired.bpf.h"
#include "bpf/proxy/load.bpf.h"
#include "bpf/proxy/trace.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

enum hr_attempt_flags {
  HR_ATTEMPT_COUNTED = 1u << 0, /* one of the attempts that the service allows */
  HR_ATTEMPT_PAID = 1u << 1,    /* a hedge, from the budget; every other send is a failover */
  HR_ATTEMPT_PROBE = 1u << 2,   /* of a down backend */
  HR_ATTEMPT_HINTED = 1u << 3,  /* it goes to the backend that a nack named as the leader */
  HR_ATTEMPT_IDLE = 1u << 4, /* beside the first send, while both backends are idle: paid by answers (HR_DEBT_COPIES) */
  HR_ATTEMPT_OWED = 1u << 5, /* around a backend that is not healthy: paid by its own answer (HR_DEBT_FAILOVERS) */
};

enum hr_outcome { HR_OUTCOME_SENT, HR_OUTCOME_NOT_NEEDED, HR_OUTCOME_FAILED };

struct hr_attempt {
  __u64 word; /* the request's before the claim: while it stands, the request waits and its parked bytes are its own */
  __u64 due_ns;  /* a hedge's, for the fire error; 0 = it was due at no particular time */
  __u32 request; /* index */
  __u32 set;     /* what the claim changed in the request's masks */
  __u32 cleared;
  __u16 backend_id;
  __u8 index; /* HR_NO_BACKEND: no attempt now, for `reason` */
  __u8 kind;  /* enum hr_trace_kind */
  __u8 flags; /* enum hr_attempt_flags */
  __u8 reason;
  __u8 probe;     /* a down backend to be probed beside it; HR_NO_BACKEND */
  __u8 config_id; /* of the configuration that it is decided by */
  __u8 pad[4];
};

/* An attempt that is still to be claimed, for a request that was pending when its word was read. */
HR_INLINE struct hr_attempt hr_attempt_of(__u32 request, __u64 word, __u32 config_id, __u32 kind) {
  struct hr_attempt attempt = {.word = word,
                               .request = request,
                               .index = HR_NO_BACKEND,
                               .kind = kind,
                               .probe = HR_NO_BACKEND,
                               .config_id = config_id};

  return attempt;
}

/* ---- Settle ------------------------------------------------------------------------------------------------------ */

/*
 * The one end of a claim. Sent: it is counted, and its backend's silence counts from now on. Not needed (an answer
 * came in between) or failed (the kernel would not build or send it): everything that was claimed is given back, but
 * what an older attempt had set stays. Returns 0 when it was sent.
 */
HR_GLOBAL int hr_settle(struct hr_attempt *attempt, __u32 outcome) {
  struct hr_request *request;
  struct hr_stats *service_stats;
  __u32 service_id, reason;

  if (!attempt) return -1;
  request = hr_request_at(attempt->request);
  if (!request) return -1;
  service_id = request->key.service;
  service_stats = hr_stats_of(service_id);
  if (outcome == HR_OUTCOME_SENT) {
    __u64 now_ns = hr_now_ns();

    hr_count(service_stats, attempt->flags & HR_ATTEMPT_PAID   ? HR_HEDGES
                            : attempt->flags & HR_ATTEMPT_IDLE ? HR_IDLE_COPIES
                                                               : HR_FAILOVER_SENDS);
    hr_count(service_stats, HR_EXTRA_SENDS);
    if (attempt->flags & HR_ATTEMPT_PROBE) hr_count(service_stats, HR_PROBES);
    if (attempt->flags & HR_ATTEMPT_HINTED) hr_count(service_stats, HR_HINTED);
    if (attempt->kind == HR_TRACE_HANDOVER) hr_count(service_stats, HR_HANDED_OVER);
    hr_note_send(attempt->config_id, attempt->backend_id, request->client, now_ns);
    if (HR_WORD_GENERATION(READ_ONCE(request->word)) == HR_WORD_GENERATION(attempt->word)) {
      /* A copy at once goes where there is room: it is no load that would keep others from going there. */
      if (!(attempt->flags & HR_ATTEMPT_IDLE)) hr_flight_begin(request, attempt->index, attempt->backend_id);
      if (!(attempt->flags & HR_ATTEMPT_PROBE) && (!request->handed_to || (request->handed_to & HR_HANDED_AS_HEDGE))) {
        request->handed_to = (attempt->index + 1) | HR_HANDED_AS_HEDGE;
        request->handed_tick = HR_HANDED_TICK(now_ns);
      }
    }
    hr_trace_note(attempt->request, attempt->config_id, attempt->kind, HR_REASON_NONE, attempt->index,
                  (attempt->flags & HR_ATTEMPT_PAID   ? 0
                   : attempt->flags & HR_ATTEMPT_IDLE ? HR_TRACE_IDLE
                                                      : HR_TRACE_FAILOVER) |
                      (attempt->flags & HR_ATTEMPT_HINTED ? HR_TRACE_HINTED : 0));
    return 0;
  }
  if (attempt->flags & HR_ATTEMPT_PAID) hr_budget_refund(service_id, request->client);
  if (attempt->flags & HR_ATTEMPT_IDLE) hr_debt_pay(service_id, request->client, HR_DEBT_COPIES, 1);
  if (attempt->flags & HR_ATTEMPT_OWED) hr_debt_pay(service_id, request->client, HR_DEBT_FAILOVERS, HR_FAILOVER_PARTS);
  /* Unless the request has ended since, and its entry serves another one by now. */
  if (HR_WORD_GENERATION(READ_ONCE(request->word)) == HR_WORD_GENERATION(attempt->word)) {
    if (attempt->flags & HR_ATTEMPT_COUNTED) __sync_fetch_and_sub(&request->attempts, 1);
    __sync_fetch_and_and(&request->masks, ~attempt->set);
    if (attempt->cleared) __sync_fetch_and_or(&request->masks, attempt->cleared);
  }
  if (outcome != HR_OUTCOME_FAILED) return -1;
  reason = attempt->kind == HR_TRACE_RELEASE ? HR_REASON_RELEASE_FAILED : HR_REASON_HEDGE_FAILED;
  hr_reason(service_stats, reason);
  hr_trace_note(attempt->request, attempt->config_id, HR_TRACE_NO_HEDGE, reason, attempt->index, 0);
  return -1;
}

/* ---- Claim ------------------------------------------------------------------------------------------------------- */

/*
 * Notes the attempt in the request before it is sent, so that its answer finds everything in place. Like the claims
 * below a global function: verified once, with a stack of its own.
 */
HR_GLOBAL int hr_note_attempt(struct hr_attempt *attempt, __u32 index, __u64 now_ns) {
  struct hr_request *request = attempt ? hr_request_at(attempt->request) : 0;
  struct hr_service_config *config;
  __u32 service_id, bit, first, masks, before;

  if (!request) return 0;
  service_id = request->key.service;
  config = hr_config_of(attempt->config_id);
  if (!config) return 0;
  attempt->index = index;
  attempt->backend_id = hr_backend_id(config, index);
  bit = 1u << (index & (HR_MAX_BACKENDS_PER_SERVICE - 1));
  first = request->first & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  masks = HR_MASKS_SENT(bit);
  if (!(attempt->flags & (HR_ATTEMPT_PAID | HR_ATTEMPT_IDLE))) masks |= HR_MASKS_FAILOVER(bit);
  if (attempt->flags & HR_ATTEMPT_PROBE) masks |= HR_MASKS_NOT_AWAITED(bit);
  if (attempt->cleared) __sync_fetch_and_and(&request->masks, ~attempt->cleared);
  before = __sync_fetch_and_or(&request->masks, masks);
  attempt->set = masks & ~before;
  /* An answer's time counts from here, where only one other backend was asked. */
  if (!(HR_SENT_MASK(before) & ~(1u << first)) && index != first)
    request->fire_ns = attempt->due_ns ? attempt->due_ns : now_ns;
  hr_flow_note(&request->key.client, request->key.client_port_be, IPPROTO_UDP, HR_FLOW_REPLY, attempt->backend_id,
               service_id, HR_FLOW_PLAIN | HR_FLOW_BY(HR_REQUEST_WAY(request->flags)), request->client, now_ns);
  return 0;
}

/* Pays for what a choice (packed) puts beside a send. 1: it was paid for. hr_claim_beside() is the only caller. */
HR_GLOBAL int hr_pay_beside(struct hr_attempt *attempt, __u32 packed, __u64 now_ns) {
  struct hr_choice choice = hr_unpack_choice(packed);
  struct hr_request *request = attempt ? hr_request_at(attempt->request) : 0;
  struct hr_service_config *config;

  if (!request || choice.second >= HR_MAX_BACKENDS_PER_SERVICE) return 0;
  if (!attempt->word) attempt->word = READ_ONCE(request->word); /* the splitter's, which has just been published */
  config = hr_config_of(attempt->config_id);
  /* A first send may have been steered since (hr_steer_owed). */
  if (!config || choice.second == request->first || hr_owing(config, request) >> choice.second & 1) return 0;
  if (choice.probe) {
    attempt->flags = HR_ATTEMPT_PROBE;
    if (choice.why != HR_CHOSE_PROBE &&
        !hr_take_retry(config, hr_backend_id(config, choice.second), /*untested=*/1, now_ns))
      return 0;
  } else {
    /* A copy at once was paid for when its place was chosen. */
    if (choice.why != HR_CHOSE_IDLE && !hr_debt_owe(request->key.service, request->client, HR_DEBT_FAILOVERS)) return 0;
    attempt->flags = HR_ATTEMPT_COUNTED | (choice.why == HR_CHOSE_IDLE ? HR_ATTEMPT_IDLE : HR_ATTEMPT_OWED);
    if (__sync_val_compare_and_swap(&request->attempts, 1, 2) != 1) {
      if (choice.why == HR_CHOSE_IDLE)
        hr_debt_pay(request->key.service, request->client, HR_DEBT_COPIES, 1);
      else
        hr_debt_pay(request->key.service, request->client, HR_DEBT_FAILOVERS, HR_FAILOVER_PARTS);
      return 0;
    }
  }
  return 1;
}

/*
 * Claims what a choice (packed) puts beside a send: a copy at once, which is one of the attempts, or a probe. A probe
 * by turns (HR_CHOSE_PROBE) is always due. A claim leaves `index` at HR_NO_BACKEND where there is nothing to send.
 * Inline: a frame between the splitter's and hr_note_attempt()'s is beyond the 512 bytes of a chain, as clang 19
 * compiles them.
 */
HR_INLINE void hr_claim_beside(struct hr_attempt *attempt, __u32 packed, __u64 now_ns) {
  if (hr_pay_beside(attempt, packed, now_ns)) hr_note_attempt(attempt, hr_unpack_choice(packed).second, now_ns);
}

/*
 * Claims the next attempt of a pending request, for the clock or for a nack. It is a failover, free of the
 * budget, when every backend asked so far has sent a nack or is silent, or the first one fails at what others answer
 * (impaired.bpf.h); otherwise a hedge, paid for. An attempt from a
 * down backend to one that is not healthy either is paid for too, because without a healthy backend load must not
 * double for longer than suspicion lasts. One that is down gets no hedge of a backend that lives, unless it is to be
 * tried again. A failover around a silent backend is owed until its answer is of use, and
 * one more than may be owed is paid for like a hedge. The claim is a compare-and-swap on `attempts`, so that the clock
 * and a nack's release never make the same attempt twice. The masks are set before it: a program that finds the attempt
 * taken finds in the masks where it goes (hr_judge_nack). In a dry run it is claimed, paid and counted, and nothing is
 * sent.
 *
 * A backend's pushback holds for hedges, and for a request whose nack carried it. It does not hold for other nacks or
 * for silence, because these decide which backend can answer, not how soon.
 */
HR_GLOBAL int hr_claim_next(struct hr_attempt *attempt, __u64 now_ns) {
  struct hr_request *request = attempt ? hr_request_at(attempt->request) : 0;
  struct hr_service_config *config;
  struct hr_service_policy *policy;
  struct hr_choice choice;
  __u32 service_id, attempts, masks, health, target;
  int nacked;

  if (!request) return 0;
  service_id = request->key.service;
  config = hr_config_of(attempt->config_id);
  policy = hr_policy_of(service_id);
  if (!config || !policy) return 0;
  attempts = READ_ONCE(request->attempts);
  masks = READ_ONCE(request->masks);
  nacked = !(HR_SENT_MASK(masks) & ~HR_NOT_AWAITED_MASK(masks));
  attempt->reason = HR_REASON_NO_TARGET;
  if (attempts >= config->attempts) return 0;
  choice = hr_unpack_choice(hr_choose_next(attempt->config_id, attempt->request, HR_SENT_MASK(masks), now_ns));
  target = hr_open_hint(request, HR_SENT_MASK(masks));
  if (target < HR_MAX_BACKENDS_PER_SERVICE && (nacked || !hr_is_drained(policy, target)) &&
      !(hr_unrouted(policy, now_ns) >> target & 1))
    attempt->flags = HR_ATTEMPT_HINTED;
  else
    target = choice.first;
  if (target >= HR_MAX_BACKENDS_PER_SERVICE) return 0;
  health = hr_health_of(attempt->config_id, hr_backend_id(config, request->first), request->client, now_ns);
  if (!nacked && health == HR_HEALTHY && choice.why != HR_CHOSE_LAST_RESORT &&
      hr_leaves_some(hr_backend_id(config, request->first)))
    health = HR_SUSPECT;
  if (!nacked && (health == HR_HEALTHY || (health != HR_SUSPECT && choice.why == HR_CHOSE_LAST_RESORT)))
    attempt->flags |= HR_ATTEMPT_PAID;
  else if (!nacked && !hr_is_dry(policy) && hr_debt_owe(service_id, request->client, HR_DEBT_FAILOVERS))
    attempt->flags |= HR_ATTEMPT_OWED;
  else if (!nacked && !hr_is_dry(policy)) {
    hr_reason(hr_stats_of(service_id), HR_REASON_FAILOVERS_OWED);
    attempt->flags |= HR_ATTEMPT_PAID;
  }
  if (attempt->flags == HR_ATTEMPT_PAID && choice.why == HR_CHOSE_LAST_RESORT && health != HR_DOWN &&
      hr_health_of(attempt->config_id, hr_backend_id(config, target), request->client, now_ns) == HR_DOWN &&
      !hr_take_retry(config, hr_backend_id(config, target), /*untested=*/0, now_ns))
    return 0;
  if ((attempt->flags & HR_ATTEMPT_PAID) && hr_is_drained(policy, target)) {
    attempt->reason = HR_REASON_DRAINED;
    return 0;
  }
  if (health == HR_HEALTHY && (!nacked || request->put_off) && hr_held_back_ns(service_id, request->sent_ns, now_ns)) {
    attempt->reason = HR_REASON_PUSHBACK;
    return 0;
  }
  if ((attempt->flags & HR_ATTEMPT_PAID) && !hr_budget_pay(attempt->config_id, request->client)) {
    attempt->reason = HR_REASON_NO_BUDGET;
    return 0;
  }
  attempt->reason = HR_REASON_NONE;
  if (hr_is_dry(policy)) {
    if (__sync_val_compare_and_swap(&request->attempts, attempts, attempts + 1) == attempts)
      hr_count(hr_stats_of(service_id), attempt->flags & HR_ATTEMPT_PAID ? HR_WOULD_HEDGE : HR_WOULD_FAIL_OVER);
    else if (attempt->flags & HR_ATTEMPT_PAID)
      hr_budget_refund(service_id, request->client);
    return 0;
  }
  hr_note_attempt(attempt, target, now_ns);
  /* Another CPU was faster: a handover, whose copy is enough, or this very attempt. */
  if (!(attempt->set & HR_MASKS_SENT(1u << (target & (HR_MAX_BACKENDS_PER_SERVICE - 1)))) ||
      __sync_val_compare_and_swap(&request->attempts, attempts, attempts + 1) != attempts) {
    hr_settle(attempt, HR_OUTCOME_NOT_NEEDED);
    attempt->index = HR_NO_BACKEND;
    return 0;
  }
  attempt->flags |= HR_ATTEMPT_COUNTED;
  if (choice.probe && choice.second != target) attempt->probe = choice.second;
  return 0;
}

/* ---- Send -------------------------------------------------------------------------------------------------------- */

/*
 * Sends a copy, which bears the tag, to the clock link's inner end, where a clone can be routed; its mark names the
 * backend. The neighbour entry sets both addresses when the clone leaves.
 */
HR_INLINE int hr_clone_to_uplink(struct __sk_buff *skb, const struct hr_attempt *attempt) {
  struct hr_link_note note = {.due = HR_NOTE_DUE(attempt->due_ns), .generation = HR_WORD_GENERATION(attempt->word)};

  if (bpf_skb_store_bytes(skb, ETH_ALEN, &note, ETH_ALEN, 0)) return -1;
  skb->mark = HR_MARK_OF_COPY(attempt->due_ns ? HR_MARK_HEDGE : HR_MARK_SEND, attempt->index, attempt->request);
  return bpf_clone_redirect(skb, load_config.clock_in_ifindex, BPF_F_INGRESS) ? -1 : 0;
}

/*
 * Does the request still wait? Then the bytes read so far were its own, because they are given back only after its word
 * has changed. A full barrier.
 */
HR_INLINE int hr_is_still_wanted(struct hr_request *request, const struct hr_attempt *attempt) {
  return __sync_fetch_and_add(&request->word, 0) == attempt->word;
}

/* Makes the carrier the attempt's copy and sends a clone of it. Returns 0 when it was sent. Global: verified once. */
HR_GLOBAL int hr_send_attempt(struct __sk_buff *skb, struct hr_attempt *attempt) {
  struct hr_request *request;
  int failed;

  if (!attempt) return -1;
  request = hr_request_at(attempt->request);
  if (!request) return -1;
  failed = hr_build(skb, attempt->request, attempt->backend_id);
  if (!hr_is_still_wanted(request, attempt)) return hr_settle(attempt, HR_OUTCOME_NOT_NEEDED);
  return hr_settle(attempt, failed || hr_clone_to_uplink(skb, attempt) ? HR_OUTCOME_FAILED : HR_OUTCOME_SENT);
}

/* Sends the probe that an attempt asks for, if it is still due. A global function: rare, and with a stack of its own.
 */
HR_GLOBAL int hr_send_probe_beside(struct __sk_buff *skb, struct hr_attempt *beside, __u64 now_ns) {
  struct hr_attempt probe;

  if (!beside) return 0;
  probe = hr_attempt_of(beside->request, beside->word, beside->config_id, HR_TRACE_COPY);
  hr_claim_beside(&probe, HR_PACKED_CHOICE(HR_NO_BACKEND, beside->probe, HR_CHOSE_STANDBY, 1), now_ns);
  if (probe.index != HR_NO_BACKEND) hr_send_attempt(skb, &probe);
  return 0;
}

HR_INLINE void hr_send_probe(struct __sk_buff *skb, struct hr_attempt *beside, __u64 now_ns) {
  if (beside->probe != HR_NO_BACKEND) hr_send_probe_beside(skb, beside, now_ns);
}
