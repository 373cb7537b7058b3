/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The life of a tracked request on the reply's side: what a datagram from a backend means for the request it names.
 * Every change of state is one compare-and-swap on the request's word, so that two replies on two CPUs, or a reply
 * and the clock, agree on one winner. Called by the reply program only.
 */
#pragma once

#include "bpf/proxy/choose.bpf.h"
#include "bpf/proxy/echo.bpf.h"
#include "bpf/proxy/free_list.bpf.h"
#include "bpf/proxy/impaired.bpf.h"
#include "bpf/proxy/load.bpf.h"
#include "bpf/proxy/profile.bpf.h"
#include "bpf/proxy/scoreboard.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

enum hr_verdict {
  HR_VERDICT_PASS,
  HR_VERDICT_DROP,    /* `reason` says why */
  HR_VERDICT_RELEASE, /* a consumed nack: becomes the request's next attempt */
};

struct hr_answer {
  __u8 verdict;
  __u8 ended; /* this program has ended the request, and gives its copy back */
  __u16 reason;
  __u32 request;
};

/* What an answer is judged with. */
struct hr_reply {
  __u64 reference; /* of the request, as the scoreboard has it */
  struct hr_service_config *config;
  struct hr_backend_state *backend_state;
  struct hr_stats *service_stats;
  struct hr_flow *flow; /* null: no flow */
  __u64 now_ns;
  __u32 config_id;
  __u32 service_id;
  __u32 backend_id;
  __u32 index;    /* of the backend within the service */
  __u8 known;     /* there is a flow, or a socket that is connected to the VIP: the client asked through the proxy */
  __u8 untracked; /* the client has lately sent requests that were forwarded untracked */
  __u8 way;       /* enum hr_way: how the answer goes back */
};

/* A datagram that the client does not get. `request`: 0 where it is of none. */
HR_INLINE struct hr_answer hr_dropped(const struct hr_reply *reply, __u32 request, __u16 reason,
                                      enum hr_counter counter) {
  struct hr_answer answer = {.verdict = HR_VERDICT_DROP, .reason = reason, .request = request};

  hr_count(reply->service_stats, counter);
  return answer;
}

HR_INLINE struct hr_request *hr_find_request(const struct hr_request_key *key, __u64 *reference) {
  struct hr_wheel *wheel = hr_the_wheel();

  if (!wheel) return 0;
  *reference = hr_scoreboard_find(wheel, key, hr_key_hash(key));
  return hr_request_at(HR_REFERENCE_REQUEST(*reference));
}

/* Takes one reply off those to older requests that this backend owes; 0: it owes none. */
HR_INLINE int hr_take_older(struct hr_request *request, __u32 bit) {
  if (!(READ_ONCE(request->outstanding) & bit)) return 0;
  __sync_fetch_and_or(&request->outstanding, bit << 16);
  return __sync_fetch_and_and(&request->outstanding, ~(bit << 8)) & bit << 8 ||
         __sync_fetch_and_and(&request->outstanding, ~bit) & bit;
}

/* Where in its answer a datagram stands: HR_PART_... */
HR_INLINE __u32 hr_part(struct __sk_buff *skb, struct hr_payload payload, const struct hr_reply *reply) {
  return reply->config->profile.numbered ? hr_part_of_answer(skb, reply->config_id, payload.offset, payload.bytes)
                                         : HR_PART_FIRST | HR_PART_LAST;
}

/* Does the request still wait? Then the copy that was compared with was its own (hr_is_still_wanted). A full barrier.
 */
HR_INLINE int hr_still_waits(struct hr_request *request, const struct hr_reply *reply) {
  __u64 word = __sync_fetch_and_add(&request->word, 0);

  return HR_WORD_STATE(word) == HR_STATE_PENDING &&
         HR_WORD_GENERATION(word) == HR_REFERENCE_GENERATION(reply->reference);
}

/*
 * Does this datagram answer another request than this one, which waits? A DNS answer says what it answers, so that is
 * compared always: an answer that only guesses a waiting query's port and id is none. What else is stale answers an
 * older request with the same key, and where no older one can be waiting nothing is compared. Where the datagrams of an
 * answer are numbered, an answer is outstanding until its last one, and a datagram that continues an answer which has
 * not begun belongs to an older one.
 */
HR_INLINE int hr_is_stale(struct __sk_buff *skb, struct hr_payload payload, struct hr_request *request,
                          const struct hr_reply *reply, int is_nack) {
  __u32 bit = 1u << reply->index;
  __u32 part;

  if (reply->config->profile.echo == HR_ECHO_DNS_QUESTION)
    return !hr_echoes_question(skb, payload, request, is_nack) && hr_still_waits(request, reply);
  if (!(request->flags & HR_REQUEST_KEY_REUSED)) return 0;
  if (reply->config->profile.echo == HR_ECHO_BYTES)
    return !hr_echoes_bytes(skb, HR_REFERENCE_REQUEST(reply->reference), reply->config_id, payload.offset,
                            payload.bytes) &&
           hr_still_waits(request, reply);
  part = hr_part(skb, payload, reply);
  if (!(request->outstanding & bit)) return !(part & HR_PART_FIRST);
  if (!(part & HR_PART_LAST)) return 1;
  return hr_take_older(request, bit);
}

/* When this backend was sent the request. */
HR_INLINE __u64 hr_asked_ns(const struct hr_request *request, const struct hr_reply *reply) {
  return reply->index != request->first && request->fire_ns ? request->fire_ns : request->sent_ns;
}

/* `about`: HR_ANSWER_... of this answer. */
HR_INLINE void hr_sample(const struct hr_request *request, const struct hr_reply *reply, __u32 about) {
  __u64 ewma_ns = reply->backend_state->answer_ewma_ns;
  __u64 sent_ns = hr_asked_ns(request, reply);
  __u64 took_ns = reply->now_ns - sent_ns;

  /* The backend lost its earlier copy and answers the handover's, whose send time is not known. */
  if (request->sent_again & (1u << reply->index)) return;
  hr_note_success(reply->config_id, reply->backend_id, HR_REFERENCE_REQUEST(reply->reference), request);
  if (reply->index == request->first) {
    hr_load_note(reply->backend_id, took_ns); /* whatever held it back: a queue that is too long is a pause, too */
    if (!(request->flags & HR_REQUEST_FIRST_HEALTHY)) return;
    hr_record_backend(reply->backend_id, HR_HISTOGRAM_ANSWERS, took_ns);
    if (about & HR_ANSWER_HELD_BACK) hr_record_backend(reply->backend_id, HR_HISTOGRAM_HELD_BACK, took_ns);
  } else {
    __u32 others = HR_SENT_MASK(request->masks) & ~(1u << request->first);

    /* fire_ns belongs to one further attempt only, and another CPU may be making that just now. */
    if ((others & (others - 1)) || reply->now_ns < sent_ns) return;
    hr_load_note(reply->backend_id, took_ns);
  }
  /*
   * Of the answers that a pause held back, only the one that ends the pause counts. Where each request meets a pause of
   * its own, every answer ends one and counts.
   */
  if (about == HR_ANSWER_HELD_BACK) return;
  /* A lost update between two CPUs costs one sample of an average. */
  reply->backend_state->answer_ewma_ns = ewma_ns ? ewma_ns - (ewma_ns >> 3) + (took_ns >> 3) : took_ns;
}

/*
 * Was a copy around the first backend of use? It was, if it was answered within the delay, or if that one has sent
 * nothing since: it has stalled. Otherwise both are slow, and a copy adds to what they have to do. A first send around
 * a down backend owes nothing, and where a nack was in play the winner may be its release (HR_DEBT_RETRIES). A global
 * function: rare.
 */
HR_GLOBAL int hr_was_of_use(__u32 config_id, __u32 index, __u32 winner, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  struct hr_request *request = hr_request_at(index);
  struct hr_backend_state *state;
  __u32 first_id;

  if (!config || !policy || !request || winner == request->first || HR_NOT_AWAITED_MASK(request->masks)) return 0;
  if (now_ns <= request->fire_ns + READ_ONCE(policy->delay_ns)) return 1;
  first_id = hr_backend_id(config, request->first);
  state = bpf_map_lookup_elem(&backend_states, &first_id);
  return state && READ_ONCE(state->last_receive_ns) <= request->fire_ns;
}

HR_INLINE void hr_count_win(const struct hr_request *request, const struct hr_reply *reply) {
  __u32 bit = 1u << reply->index;

  if (HR_FAILOVER_MASK(request->masks) & bit)
    hr_count(reply->service_stats, HR_WON_BY_FAILOVER);
  else if (reply->index == request->first)
    hr_count(reply->service_stats, HR_WON_BY_FIRST);
  else
    hr_count(reply->service_stats, HR_WON_BY_HEDGE);
  hr_debts_earn(
      reply->service_id, request->client, reply->config->attempts,
      (HR_FAILOVER_MASK(request->masks) & bit) &&
          hr_was_of_use(reply->config_id, HR_REFERENCE_REQUEST(reply->reference), reply->index, reply->now_ns),
      HR_NOT_AWAITED_MASK(request->masks) != 0);
  hr_record_service(reply->service_id, HR_HISTOGRAM_LATENCY, reply->now_ns - request->sent_ns);
  hr_count_backend(reply->backend_id, HR_BACKEND_WINS);
}

/* Tries to end PENDING with this backend as the winner. */
HR_INLINE int hr_finish(struct hr_wheel *wheel, struct hr_request *request, __u64 word, const struct hr_reply *reply,
                        __u32 state) {
  request->done_ns = reply->now_ns; /* before the swap: the clock reads it as soon as the state has changed */
  if (__sync_val_compare_and_swap(&request->word, word,
                                  HR_WORD(HR_WORD_GENERATION(word), reply->index, word & HR_WORD_DETACHED, state)) !=
      word)
    return 0;
  if (wheel) hr_disarm(wheel, request);
  return 1;
}

/*
 * A backend that a handover sent the request again may answer twice. Where an answer may have several datagrams, a
 * second answer looks like more of the first.
 */
HR_INLINE int hr_is_second_answer(const struct hr_request *request, __u32 state, const struct hr_reply *reply) {
  return state != HR_STATE_NACKED && reply->config->profile.one_datagram &&
         (request->sent_again & (1u << reply->index));
}

/* A datagram for a request that is no longer pending: the winner's further datagrams pass, the loser's do not. */
HR_INLINE struct hr_answer hr_judge_late(struct hr_request *request, __u64 word, const struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS, .request = HR_REFERENCE_REQUEST(reply->reference)};
  __u32 state = HR_WORD_STATE(word);
  __u32 winner = HR_WORD_WINNER(word);

  if (state == HR_STATE_EXPIRED && winner == HR_NO_BACKEND) {
    __u64 won = HR_WORD(HR_WORD_GENERATION(word), reply->index, word & HR_WORD_DETACHED, HR_STATE_EXPIRED);

    if (__sync_val_compare_and_swap(&request->word, word, won) == word) {
      hr_count(reply->service_stats, HR_LATE_ANSWERS);
      return answer;
    }
    winner = HR_WORD_WINNER(request->word);
  }
  if (state == HR_STATE_ANSWERED || state == HR_STATE_NACKED || state == HR_STATE_EXPIRED) {
    if (winner == reply->index && !hr_is_second_answer(request, state, reply)) return answer;
    return hr_dropped(reply, answer.request, HR_REASON_LOSER, HR_LOSERS_DROPPED);
  }
  answer.request = 0; /* on its way out: as if it were not known */
  return answer;
}

/* Is a choice (packed) a healthy backend? A nack in hand is better than a wait for a dead one. */
HR_INLINE int hr_is_healthy_choice(__u32 packed) {
  return hr_unpack_choice(packed).why != HR_CHOSE_NONE && hr_unpack_choice(packed).why != HR_CHOSE_LAST_RESORT;
}

/*
 * Applies a reply's pushback (config_abi.h) to its service, for a second at most. The reply is the backend's own answer
 * to a request that it was sent. Returns the pushback; 0: none. A global function, because it needs a stack of its own.
 */
HR_GLOBAL __u32 hr_take_pushback(struct __sk_buff *skb, __u32 config_id, __u32 payload_offset, __u32 payload_bytes) {
  __u32 service_id = HR_CONFIG_SERVICE(config_id);
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_payload payload = {.offset = payload_offset, .bytes = payload_bytes};
  __u64 wait_ns = ~0ull;
  __u32 offset, said;

  if (!config || !state) return 0;
  if (config->profile.hint_rule.mask && hr_rule_holds(skb, payload, &config->profile.hint_rule)) return 0;
  offset = config->profile.pushback_offset;
  if (!offset || offset + sizeof(said) > payload_bytes) return 0;
  if (bpf_skb_load_bytes(skb, payload_offset + offset, &said, sizeof(said)) || !said) return 0;
  if (said != HR_PUSHBACK_NEVER) {
    wait_ns = (__u64)said * 1000000;
    if (wait_ns > HR_PUSHBACK_HOLD_NS) wait_ns = HR_PUSHBACK_HOLD_NS;
  }
  /* What another backend asks may be less: the longest wait holds for a second after the last reply that asked for it.
   */
  if (hr_now_ns() >= READ_ONCE(state->pushback_until_ns) || wait_ns >= READ_ONCE(state->pushback_ns)) {
    WRITE_ONCE(state->pushback_ns, wait_ns);
    WRITE_ONCE(state->pushback_until_ns, hr_now_ns() + HR_PUSHBACK_HOLD_NS);
  }
  hr_count(hr_stats_of(service_id), HR_PUSHBACKS);
  return said;
}

/* Will the clock look at this request again, early enough to make the attempt that its nack asked to put off? */
HR_INLINE int hr_will_be_looked_at(const struct hr_request *request, const struct hr_reply *reply, __u32 said) {
  __u64 deadline_ns = request->sent_ns + reply->config->deadline_ns;

  if (said == HR_PUSHBACK_NEVER) return 0;
  return READ_ONCE(request->due_ns) < deadline_ns && request->sent_ns + (__u64)said * 1000000 < deadline_ns;
}

/*
 * Does the announced leader send a nack for an earlier request that its handover passed over? When the lap looked, the
 * nack was still under way, so the leader seemed to hold the request. No other program would ask the leader again, so
 * the lap looks once more: once for each term, like a handover.
 */
HR_INLINE int hr_was_passed_over(const struct hr_request *request, const struct hr_reply *reply) {
  struct hr_leader *leader = bpf_map_lookup_elem(&leaders, &reply->service_id);
  __u64 since_ns;

  if (!leader || leader->view.pinned || leader->view.leader != reply->index) return 0;
  since_ns = leader->view.since_ns;
  if (request->handed_to == reply->index + 1 && (__s16)(request->handed_tick - HR_HANDED_TICK(since_ns)) >= 0) return 0;
  return request->sent_ns < since_ns;
}

/* The backend has refused the request: what its masks were before. */
HR_INLINE __u32 hr_take_nack(struct hr_request *request, const struct hr_reply *reply) {
  __u32 bit = 1u << reply->index;
  __u32 before = __sync_fetch_and_or(&request->masks, HR_MASKS_NOT_AWAITED(bit) | HR_MASKS_ANSWERED(bit));

  hr_flight_end(request, reply->index, reply->backend_id);
  return before;
}

/*
 * A nack is consumed while another backend can still answer: a copy is under way, or an attempt is left for a backend
 * that was not asked and is healthy. A backend that a nack named as the leader counts whatever its health. The last
 * nack goes to the client. Only nacks count here, not answers, because an answer on another CPU that has not yet ended
 * PENDING must not look like one more nack.
 *
 * With a cluster, `leaderless` says that the nack is about leadership: the backend's process is gone, or it does not
 * lead. The next leader gets the request when it is announced (handover.bpf.h), so until the deadline the request is
 * not lost. The other members are asked whatever their health: without a leader they hold requests, which looks like
 * silence.
 *
 * A nack that asks for no hedge (`pushback`) is the last one. After a nack that asks for a later hedge, the clock makes
 * the attempt. In a dry run no attempt replaces the nack, so it is the last one too; and so it is when too many
 * requests are refused (HR_RETRIES_MAX). Nacks about leadership are not counted there: they end with the election.
 */
HR_INLINE struct hr_answer hr_judge_nack(struct hr_wheel *wheel, struct hr_request *request, __u64 word,
                                         const struct hr_reply *reply, __u32 leaderless, __u32 pushback) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS, .request = HR_REFERENCE_REQUEST(reply->reference)};
  __u32 bit = 1u << reply->index;
  __u32 everybody = reply->config->present;
  /* Read before the masks, which a claim sets first: an attempt that is counted here is under way in the masks. */
  __u32 attempts = READ_ONCE(request->attempts);
  __u32 masks = hr_take_nack(request, reply) | HR_MASKS_NOT_AWAITED(bit);
  struct hr_service_policy *policy = hr_policy_of(reply->service_id);
  int dry = policy && hr_is_dry(policy);
  int passed_over = leaderless && !dry && wheel && hr_was_passed_over(request, reply);
  int under_way = HR_SENT_MASK(masks) & ~HR_NOT_AWAITED_MASK(masks);
  int open =
      !under_way && attempts < reply->config->attempts && (HR_SENT_MASK(masks) & everybody) != everybody &&
      (leaderless || hr_open_hint(request, HR_SENT_MASK(masks)) < HR_MAX_BACKENDS_PER_SERVICE ||
       hr_is_healthy_choice(hr_choose_now(reply->config_id, HR_SENT_MASK(masks) | hr_owing_two(reply->config, request),
                                          HR_EXPLORE_NEVER, request->client, reply->now_ns)));
  /* An attempt follows: at once, or when the clock looks. */
  int follows = open && !dry && !passed_over && (!pushback || hr_will_be_looked_at(request, reply, pushback));

  /* The nack's bit in the masks is already set, so the lap sees it. */
  if (passed_over) __sync_fetch_and_or(&wheel->handover, 1ull << (reply->service_id & (HR_MAX_SERVICES - 1)));
  if (follows && !leaderless && reply->backend_state->health != HR_IMPAIRED &&
      !hr_debt_owe(reply->service_id, request->client, HR_DEBT_RETRIES)) {
    hr_reason(reply->service_stats, HR_REASON_NO_RETRY_BUDGET);
    follows = 0;
  }
  if (under_way || passed_over) {
    answer.verdict = HR_VERDICT_DROP;
  } else if (follows && !pushback) {
    answer.verdict = HR_VERDICT_RELEASE;
  } else if (follows) {
    WRITE_ONCE(request->put_off, 1);
    answer.verdict = HR_VERDICT_DROP;
  } else if (leaderless && !dry) {
    answer.verdict = HR_VERDICT_DROP;
  } else {
    if (!hr_finish(wheel, request, word, reply, HR_STATE_NACKED))
      return hr_judge_late(request, READ_ONCE(request->word), reply);
    hr_count(reply->service_stats, HR_NACKED);
    answer.ended = 1;
    if (open && dry) hr_count(reply->service_stats, HR_WOULD_FAIL_OVER);
    return answer;
  }
  answer.reason = HR_REASON_NACK;
  hr_count(reply->service_stats, HR_NACKS_SWALLOWED);
  return answer;
}

/*
 * A nack after the deadline is no answer. It goes to the client only if no other backend can still answer, and an
 * answer that comes after it still reaches the client.
 */
HR_INLINE struct hr_answer hr_judge_late_nack(struct hr_request *request, const struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS, .request = HR_REFERENCE_REQUEST(reply->reference)};
  __u32 bit = 1u << reply->index;
  __u32 masks = hr_take_nack(request, reply);

  if (!(HR_SENT_MASK(masks) & ~HR_NOT_AWAITED_MASK(masks) & ~bit)) return answer;
  return hr_dropped(reply, answer.request, HR_REASON_NACK, HR_NACKS_SWALLOWED);
}

/*
 * While a request waits, another one under its key is forwarded once (HR_REASON_KEY_BUSY). Where an answer is one
 * datagram, a backend owes the tracked request one: where it has sent that and lost, the next one answers a request
 * that was forwarded.
 */
HR_INLINE int hr_owes_one(const struct hr_reply *reply) {
  return reply->config->profile.one_datagram || reply->config->profile.request_correlation.pairing == HR_PAIR_SOCKET;
}
HR_INLINE int hr_is_of_untracked(const struct hr_request *request, __u64 word, const struct hr_reply *reply) {
  return reply->untracked && hr_owes_one(reply) && HR_WORD_STATE(word) != HR_STATE_PENDING &&
         HR_WORD_WINNER(word) != reply->index && HR_ANSWERED_MASK(READ_ONCE(request->masks)) & (1u << reply->index);
}

enum hr_late_verdict { HR_LATE_UNKNOWN, HR_LATE_FIRST, HR_LATE_WINNER, HR_LATE_LOSER };

#define HR_LATE_IS_NACK 0x100u /* of `flags`: it is no answer; low bits are the backend's place, high ones its id */
#define HR_LATE_FRESH 0x10000u /* of the result: this backend's first answer */
#define HR_LATE_BACKEND_SHIFT 16
/* Requests were forwarded under such keys: only a loser's first datagram is its own, and that not for ever. */
#define HR_LATE_UNTRACKED 0x200u

/*
 * What a datagram of a backend is to the request that it names, once that one's place is free again: the first late
 * answer is the client's, the other backends' are losers'. Enum hr_late_verdict, and in the second byte the client's
 * way. A global function: rare, with a stack of its own.
 */
HR_GLOBAL __u32 hr_judge_freed(struct hr_request_key *key, __u32 flags, __u64 now_ns) {
  __u32 place = flags & (HR_MAX_BACKENDS_PER_SERVICE - 1), winner, fresh = 0;
  struct hr_backend_load *load = hr_backend_load_of(flags >> HR_LATE_BACKEND_SHIFT);
  struct hr_request_key copy; /* Linux 6.1 takes no map's key by a pointer that a global function was given */
  struct hr_late *late;
  __u8 bit = 1u << place;

  if (!key) return HR_LATE_UNKNOWN;
  copy = *key;
  late = bpf_map_lookup_elem(&late_requests, &copy);
  if (!late || now_ns > late->freed_ns + HR_LATE_NS || !(late->sent & bit)) return HR_LATE_UNKNOWN;
  winner = READ_ONCE(late->winner);
  if ((flags & HR_LATE_UNTRACKED) && winner != place &&
      ((late->answered & bit) || now_ns > late->freed_ns + HR_FLOW_UDP_NS))
    return HR_LATE_UNKNOWN;
  if (!(flags & HR_LATE_IS_NACK)) {
    winner = __sync_val_compare_and_swap(&late->winner, HR_NO_BACKEND, place);
    if (!(late->answered & bit)) {
      fresh = HR_LATE_FRESH;
      if (load) hr_take_miss_back(load, late->wait, late->failed & bit);
    }
    late->answered |= bit;
  } else if (winner == HR_NO_BACKEND) { /* it goes to the client, and so does an answer that comes after it */
    winner = place;
  }
  return fresh | (__u32)late->way << 8 |
         (winner == HR_NO_BACKEND ? HR_LATE_FIRST
          : winner == place       ? HR_LATE_WINNER
                                  : HR_LATE_LOSER);
}

/* Where answers may have several datagrams, nothing tells a loser's from those of a request that was forwarded. */
HR_INLINE __u32 hr_late(struct hr_request_key *key, const struct hr_reply *reply, __u32 flags) {
  if (reply->untracked && !hr_owes_one(reply)) return HR_LATE_UNKNOWN;
  if (reply->untracked) flags |= HR_LATE_UNTRACKED;
  return hr_judge_freed(key, reply->index | flags | reply->backend_id << HR_LATE_BACKEND_SHIFT, reply->now_ns);
}

/* An answer, or an error, that comes after the request's retention. */
HR_INLINE struct hr_answer hr_answer_late(__u32 late, const struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS};

  if ((late & 0xff) == HR_LATE_FIRST) hr_count(reply->service_stats, HR_LATE_ANSWERS);
  return (late & 0xff) == HR_LATE_LOSER ? hr_dropped(reply, 0, HR_REASON_LATE, HR_LOSERS_DROPPED) : answer;
}

HR_INLINE struct hr_answer hr_judge(struct __sk_buff *skb, struct hr_payload payload, struct hr_request *request,
                                    const struct hr_reply *reply, int is_nack) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS, .request = HR_REFERENCE_REQUEST(reply->reference)};
  __u32 bit = 1u << reply->index;
  struct hr_wheel *wheel = hr_the_wheel();
  __u64 word = READ_ONCE(request->word);
  __u32 before, pushback, about = 0, older;

  if (HR_WORD_GENERATION(word) != HR_REFERENCE_GENERATION(reply->reference)) {
    answer.request = 0; /* freed since it was found */
    return answer;
  }
  if (!(HR_SENT_MASK(request->masks) & bit) || hr_is_of_untracked(request, word, reply)) {
    if (reply->untracked) { /* an untracked request with the same key went there */
      answer.request = 0;
      return answer;
    }
    /*
     * Nothing was sent there: forged, or meant for an older request with this key. It decides nothing. If it was
     * outstanding, it is so no longer, and its sender is not silent.
     */
    if (hr_part(skb, payload, reply) & HR_PART_LAST && hr_take_older(request, bit))
      hr_note_life(reply->config, reply->backend_state, reply->backend_id, request->client, reply->now_ns);
    return hr_dropped(reply, answer.request, HR_REASON_STALE, HR_STALE_DROPPED);
  }
  older = READ_ONCE(request->outstanding) & bit;
  if (HR_WORD_STATE(word) == HR_STATE_PENDING && hr_is_stale(skb, payload, request, reply, is_nack)) {
    if (reply->untracked && !older) { /* it answers one that was forwarded under this key meanwhile */
      answer.request = 0;
      return answer;
    }
    if (reply->config->profile.echo) hr_take_older(request, bit);
    if (older) /* it names an older request */
      hr_note_life(reply->config, reply->backend_state, reply->backend_id, request->client, reply->now_ns);
    return hr_dropped(reply, answer.request, HR_REASON_STALE, HR_STALE_DROPPED);
  }
  /* A recorded datagram that is sent again, and again, is no sign of life. */
  if (!(HR_ANSWERED_MASK(READ_ONCE(request->masks)) & bit))
    about = hr_note_answer(reply->config, reply->config_id, reply->backend_state, reply->backend_id, request->client,
                           hr_asked_ns(request, reply), reply->now_ns);
  if (reply->config->profile.load_bytes)
    hr_load_reported(skb, reply->config_id, reply->backend_id, payload.offset, payload.bytes);
  pushback = reply->config->profile.pushback_offset
                 ? hr_take_pushback(skb, reply->config_id, payload.offset, payload.bytes)
                 : 0;
  if (is_nack && HR_WORD_STATE(word) == HR_STATE_PENDING) {
    __u32 hint = hr_hinted_backend(skb, reply->config_id, payload.offset, payload.bytes);

    /* Steers this request only, never the map: a nack is no announcement. */
    if (hint) WRITE_ONCE(request->hint, hint);
    return hr_judge_nack(wheel, request, word, reply, hr_is_leaderless(skb, payload, reply->config), pushback);
  }
  if (is_nack && HR_WORD_STATE(word) == HR_STATE_EXPIRED && HR_WORD_WINNER(word) == HR_NO_BACKEND)
    return hr_judge_late_nack(request, reply);
  /* Of a further datagram nothing is noted: by now the entry may serve another request. */
  before = READ_ONCE(request->masks);
  if (!(HR_ANSWERED_MASK(before) & bit)) before = __sync_fetch_and_or(&request->masks, HR_MASKS_ANSWERED(bit));
  if (!(HR_ANSWERED_MASK(before) & bit) && !is_nack) hr_sample(request, reply, about);
  if (!(HR_ANSWERED_MASK(before) & bit) && is_nack && HR_WORD_STATE(word) == HR_STATE_ANSWERED)
    hr_note_failures(reply->config_id, HR_REFERENCE_REQUEST(reply->reference), bit);
  hr_flight_end(request, reply->index, reply->backend_id);
  if (HR_WORD_STATE(word) == HR_STATE_PENDING) {
    if (hr_finish(wheel, request, word, reply, HR_STATE_ANSWERED)) {
      hr_count_win(request, reply);
      answer.ended = 1;
      if (HR_NOT_AWAITED_MASK(before) & HR_ANSWERED_MASK(before) & ~bit)
        hr_note_failures(reply->config_id, HR_REFERENCE_REQUEST(reply->reference),
                         HR_NOT_AWAITED_MASK(before) & HR_ANSWERED_MASK(before) & ~bit);
      if (HR_SENT_MASK(before) & ~bit) {
        hr_attest(reply->config_id, HR_REFERENCE_REQUEST(reply->reference), reply->now_ns);
        hr_note_missing(reply->config_id, HR_REFERENCE_REQUEST(reply->reference));
      }
      return answer;
    }
    word = READ_ONCE(request->word); /* another CPU was first */
    if (HR_WORD_GENERATION(word) != HR_REFERENCE_GENERATION(reply->reference)) {
      answer.request = 0;
      return answer;
    }
  }
  return hr_judge_late(request, word, reply);
}
