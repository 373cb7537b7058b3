// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CLOCK/RESCUER: TC ingress of the clock link's inner end. One packet circulates on that link, held back by a qdisc;
 * each lap looks at what has fallen due in the wheel, hedges what still has no answer, and sends the packet round
 * again. The same program sends on what other programs put on the link under a mark: finished copies, and consumed
 * nacks that become the next attempt. Every packet here bears the load's tag; anything else is dropped and counted.
 */
#include "bpf/proxy/attempt.bpf.h"
#include "bpf/proxy/handover.bpf.h"
#include "bpf/proxy/segment.bpf.h"
#include "bpf/proxy/track.bpf.h"

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#define HR_STEPS_PER_LAP 4096 /* slots and requests looked at */
/*
 * A lap looks this far ahead (in fine ticks, 3.1 and 12.6 ms) for something that waits: the period of the lap that it
 * is about to choose, and what such laps are late by. Of 14,337 laps of 1 ms on an idle virtual machine 203 took more
 * than 1.1 ms, 24 more than 1.6 and 3 more than 3; with 1.6 ms of look-ahead one hedge in 100 was fired a millisecond
 * late.
 */
#define HR_SHORT_AHEAD_TICKS 96
#define HR_LONG_AHEAD_TICKS 384
/* With fq a lap can be exact; laps this far apart at least, or a busy service would have one for every tick. */
#define HR_EXACT_WAIT_MIN_NS 50000
/* A request may be pushed this long before the clock is set going (its CPU may be taken away in between). */
#define HR_WAKE_SLACK_TICKS 3072

/* A program that judges a reply has ended so long after it began. */
#define HR_REPLY_TAKES_NS 1000000

struct hr_lap {
  struct __sk_buff *skb;
  struct hr_wheel *wheel;
  __u64 now_ns;
  __u64 fine_end;   /* first tick that has not fully passed */
  __u64 coarse_end; /* first coarse tick that has not begun */
  __u32 done;
  __u32 handing_over; /* parked requests are on their way to a new leader: the next lap goes on with it */
};

/* A look at one request. `now_ns` is the lap's. */
struct hr_visit {
  struct __sk_buff *skb;
  struct hr_wheel *wheel;
  struct hr_request *request;
  struct hr_service_config *config;
  struct hr_service_policy *policy;
  struct hr_stats *service_stats;
  __u64 word;
  __u64 now_ns;
  __u32 index;
  __u32 config_id;
};

/* Puts the request back, and keeps it in hand for the next lap where other CPUs won every try. */
HR_INLINE void hr_requeue(const struct hr_visit *visit, __u64 due_ns, int precise) {
  struct hr_request *request = visit->request;
  int failed;

  request->due_ns = due_ns;
  if (precise)
    failed = hr_push_due(visit->wheel, request, visit->index, visit->now_ns);
  else
    failed = hr_push_coarse(visit->wheel, visit->index, due_ns, visit->now_ns);
  if (!failed) {
    /* An answer may have come between looking and pushing: its disarm found nothing to take back then. */
    if (HR_WORD_STATE(READ_ONCE(request->word)) != HR_STATE_PENDING) hr_disarm(visit->wheel, request);
    return;
  }
  request->next = visit->wheel->list;
  visit->wheel->list = visit->index;
}

/* Expired, and no backend has answered since. */
HR_INLINE int hr_is_unanswered(__u64 word) {
  return HR_WORD_STATE(word) == HR_STATE_EXPIRED && HR_WORD_WINNER(word) == HR_NO_BACKEND;
}

/*
 * How long an ended request stays known. A request that no backend has answered stays as long as its flow is believed,
 * because its only answer must not look like a loser's, however late it is.
 */
HR_INLINE __u64 hr_retention_ns(const struct hr_service_config *config, __u64 word) {
  if (!hr_is_unanswered(word)) return config->retention_ns;
  return config->retention_ns > HR_FLOW_UDP_NS ? config->retention_ns : HR_FLOW_UDP_NS;
}

/* Counts a first send whose backend did not answer in all the time that the request waited for it. */
HR_INLINE void hr_note_unanswered(const struct hr_visit *visit) {
  __u32 first_bit = 1u << (visit->request->first & (HR_MAX_BACKENDS_PER_SERVICE - 1));

  if ((visit->request->flags & HR_REQUEST_FIRST_HEALTHY) && !(HR_ANSWERED_MASK(visit->request->masks) & first_bit))
    hr_count_backend(hr_backend_id(visit->config, visit->request->first), HR_BACKEND_UNANSWERED);
}

/* No backend has more to say about it: each has answered with its one datagram, and no reply is under way in another
 * program. */
HR_INLINE int hr_is_over(const struct hr_visit *visit) {
  const struct hr_request *request = visit->request;
  __u32 masks = READ_ONCE(request->masks);

  return visit->config->profile.one_datagram && !(HR_SENT_MASK(masks) & ~HR_ANSWERED_MASK(masks)) &&
         !request->sent_again && visit->now_ns > request->done_ns + HR_REPLY_TAKES_NS;
}

/*
 * The request's place is free from here on, but what comes late of it is still known (hr_judge_freed). An answer of
 * several datagrams may go on then: an older request's note must not make its backend a loser.
 */
HR_INLINE void hr_note_late(const struct hr_visit *visit, __u32 failed) {
  const struct hr_request *request = visit->request;
  struct hr_late late = {.freed_ns = visit->now_ns,
                         .wait = HR_WAIT(request->sent_ns, request->client),
                         .winner = HR_WORD_WINNER(visit->word),
                         .sent = HR_SENT_MASK(request->masks) | HR_OUTSTANDING_NOW(request->outstanding),
                         .answered = HR_ANSWERED_MASK(request->masks),
                         .way = HR_REQUEST_WAY(request->flags),
                         .failed = failed};

  if ((late.sent & (late.sent - 1)) || hr_is_unanswered(visit->word)) {
    if (bpf_map_update_elem(&late_requests, &request->key, &late, BPF_ANY)) hr_host_reason(HR_REASON_FLOW_FAILED);
  } else if (!visit->config->profile.one_datagram) {
    bpf_map_delete_elem(&late_requests, &request->key);
  }
}

/*
 * No longer pending. The scoreboard entry is retained where more than one backend was asked, because
 * the losers' datagrams must be recognised, until all are there. So it is where the only answer would be taken for a
 * loser's. The other entries would only take up cache.
 */
HR_INLINE void hr_visit_done(const struct hr_visit *visit) {
  struct hr_request *request = visit->request;
  __u32 sent = HR_SENT_MASK(request->masks), failed = 0;
  __u64 word = visit->word, removing = HR_WORD(HR_WORD_GENERATION(word), HR_WORD_WINNER(word), 0, HR_STATE_REMOVING);
  int retained = ((sent & (sent - 1)) && !hr_is_over(visit)) || HR_OUTSTANDING_NOW(request->outstanding) ||
                 (hr_is_unanswered(word) && !(word & HR_WORD_DETACHED) && visit->config->profile.one_datagram);

  if (READ_ONCE(request->parked)) { /* the program that has ended it is still at work with it */
    hr_requeue(visit, visit->now_ns + (1ull << HR_FINE_SHIFT), 1);
    return;
  }
  if (retained && visit->now_ns < request->done_ns + hr_retention_ns(visit->config, word)) {
    hr_requeue(visit, request->done_ns + hr_retention_ns(visit->config, word), 0);
    return;
  }
  if (!(word & HR_WORD_DETACHED) && __sync_val_compare_and_swap(&request->word, word, removing) != word) {
    hr_requeue(visit, visit->now_ns, 1);
    return;
  }
  /* Another backend won, and the first never answered. */
  if (HR_WORD_STATE(word) == HR_STATE_ANSWERED) {
    const struct hr_backend_load *load = hr_backend_load_of(hr_backend_id(visit->config, request->first));
    __u32 failing = load ? READ_ONCE(load->failing) : 0;

    hr_note_unanswered(visit);
    sent &= ~HR_ANSWERED_MASK(request->masks);
    if (sent) hr_note_failures(visit->config_id, visit->index, sent);
    if (load && READ_ONCE(load->failing) > failing) failed = 1u << request->first;
  }
  if (!(word & HR_WORD_DETACHED)) {
    hr_note_late(visit, failed);
    hr_scoreboard_remove(visit->wheel, request->set,
                         HR_REFERENCE(HR_WORD_GENERATION(word), request->tag, visit->index));
  }
  hr_flights_end(visit->config_id, visit->index, 1);
  hr_free_request(request, visit->index);
}

/* At the deadline. 0: a reply, or the client that uses the key again, has ended the request before. */
HR_INLINE int hr_expire(const struct hr_visit *visit) {
  struct hr_request *request = visit->request;
  __u64 word = visit->word;
  __u64 expired = HR_WORD(HR_WORD_GENERATION(word), HR_NO_BACKEND, word & HR_WORD_DETACHED, HR_STATE_EXPIRED);

  request->done_ns = visit->now_ns;
  if (__sync_val_compare_and_swap(&request->word, word, expired) != word) return 0;
  hr_count(visit->service_stats, HR_UNANSWERED);
  hr_note_unanswered(visit);
  hr_flights_end(visit->config_id, visit->index, 1);
  hr_give_copy_back(visit->index);
  hr_trace_note(visit->index, visit->config_id, HR_TRACE_EXPIRED, HR_REASON_NONE, HR_NO_BACKEND, 0);
  hr_requeue(visit, visit->now_ns + visit->config->retention_ns, 0);
  return 1;
}

/* When to look next: after delay, 2 x delay, 4 x delay... while attempts are left, and at the deadline. */
HR_INLINE __u64 hr_next_due(const struct hr_visit *visit, __u32 doublings) {
  __u64 deadline_ns = visit->request->sent_ns + visit->config->deadline_ns;
  __u64 due_ns;

  if (visit->request->attempts >= visit->config->attempts) return deadline_ns;
  due_ns = visit->now_ns + (READ_ONCE(visit->policy->delay_ns) << (doublings & 31));
  return due_ns < deadline_ns ? due_ns : deadline_ns;
}

/* Counts `reason` if it is `which`, the first time for this request. */
HR_INLINE void hr_reason_once(const struct hr_visit *visit, __u32 reason, __u32 which, __u8 flag) {
  if (reason != which || (visit->request->flags & flag)) return;
  visit->request->flags |= flag;
  hr_reason(visit->service_stats, which);
}

/*
 * The time at which the first backend becomes SUSPECT if it stays silent, as it has been since this request was sent:
 * then the next attempt is free. ~0 otherwise. A global function: rare, and verified once.
 */
HR_GLOBAL __u64 hr_suspicion_due_ns(__u32 config_id, __u32 index) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_request *request = hr_request_at(index);
  struct hr_backend_state *state;
  __u64 since;
  __u32 backend_id;

  if (!config || !request) return ~0ull;
  backend_id = hr_backend_id(config, request->first);
  state = bpf_map_lookup_elem(&backend_states, &backend_id);
  if (!state) return ~0ull;
  since = hr_wait_of(state, request->client);
  if (state->health != HR_HEALTHY || !since || since > (request->sent_ns | HR_WAIT_MASK)) return ~0ull;
  return since + hr_silence_limit_ns(config, backend_id) + 1;
}

/* Due, but no attempt can be made now. */
HR_INLINE void hr_put_off(const struct hr_visit *visit, __u32 reason) {
  struct hr_request *request = visit->request;
  __u64 due_ns, suspicion_ns;

  hr_trace_note(visit->index, visit->config_id, HR_TRACE_NO_HEDGE, reason, HR_NO_BACKEND, 0);
  if (reason == HR_REASON_NO_TARGET) {
    if (!request->rechecks) hr_reason(visit->service_stats, HR_REASON_NO_TARGET);
    if (!(visit->config->present & ~HR_SENT_MASK(request->masks))) { /* none is left that could come back */
      hr_requeue(visit, request->sent_ns + visit->config->deadline_ns, 1);
      return;
    }
  }
  hr_reason_once(visit, reason, HR_REASON_NO_BUDGET, HR_REQUEST_NO_BUDGET);
  /* Looked at again like the others: if the first backend falls silent, a drained one is better than none. */
  hr_reason_once(visit, reason, HR_REASON_DRAINED, HR_REQUEST_ONLY_DRAINED);
  hr_reason_once(visit, reason, HR_REASON_PUSHBACK, HR_REQUEST_PUSHED_BACK);
  if (reason == HR_REASON_PUSHBACK) {
    __u64 deadline_ns = request->sent_ns + visit->config->deadline_ns;
    __u64 open_ns = hr_held_back_ns(HR_CONFIG_SERVICE(visit->config_id), request->sent_ns, visit->now_ns);

    /* The backend asked for a definite wait, so the clock need not look in between. */
    if (open_ns && open_ns < deadline_ns) {
      hr_requeue(visit, open_ns, 1);
      return;
    }
  }
  if (request->rechecks < 30) request->rechecks++;
  due_ns = hr_next_due(visit, request->rechecks);
  suspicion_ns = hr_suspicion_due_ns(visit->config_id, visit->index);
  hr_requeue(visit, suspicion_ns > visit->now_ns && suspicion_ns < due_ns ? suspicion_ns : due_ns, 1);
}

/* Due and unanswered: the next attempt, as a clone of the carrier that passes this program once more. */
HR_INLINE void hr_fire(const struct hr_visit *visit) {
  struct hr_attempt attempt = hr_attempt_of(visit->index, visit->word, visit->config_id, HR_TRACE_HEDGE);
  struct hr_request *request = visit->request;

  if (request->attempts >= visit->config->attempts) { /* a nack's release was faster */
    hr_requeue(visit, request->sent_ns + visit->config->deadline_ns, 1);
    return;
  }
  hr_trace_note(visit->index, visit->config_id, HR_TRACE_DUE, HR_REASON_NONE, HR_NO_BACKEND, 0);
  attempt.due_ns = request->due_ns;
  hr_claim_next(&attempt, visit->now_ns);
  if (attempt.index == HR_NO_BACKEND) {
    hr_put_off(visit, attempt.reason);
    return;
  }
  hr_send_attempt(visit->skb, &attempt);
  hr_send_probe(visit->skb, &attempt, visit->now_ns);
  hr_requeue(visit, hr_next_due(visit, request->attempts - 1), 1);
}

/* A global function: the verifier looks at a visit once, not once per step of the lap that makes it. */
HR_GLOBAL int hr_visit(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_visit visit = {.skb = skb, .wheel = hr_the_wheel(), .request = request, .index = index};
  __u32 service_id;
  __u64 word;

  if (!request || !visit.wheel) return -1;
  visit.wheel->list = request->next;
  visit.now_ns = visit.wheel->lap_ns;
  service_id = request->key.service;
  visit.config_id = hr_published_config(service_id);
  visit.config = hr_config_of(visit.config_id);
  visit.policy = hr_policy_of(service_id);
  visit.service_stats = hr_stats_of(service_id);
  if (!visit.config || !visit.policy) return 0;
  hr_disarm(visit.wheel, request);
  word = READ_ONCE(request->word);
  visit.word = word;
  if (HR_WORD_STATE(word) == HR_STATE_PENDING && visit.now_ns >= request->sent_ns + visit.config->deadline_ns) {
    if (hr_expire(&visit)) return 0;
    visit.word = word = READ_ONCE(request->word);
  }
  if (HR_WORD_STATE(word) == HR_STATE_CLAIMING) {
    /* Its splitter was interrupted. The clock looks again one tick later, and leaves the due time to the splitter. */
    if (hr_push_fine(visit.wheel, request, index, visit.now_ns + (1ull << HR_FINE_SHIFT), visit.now_ns)) {
      request->next = visit.wheel->list;
      visit.wheel->list = index;
    }
  } else if (HR_WORD_STATE(word) != HR_STATE_PENDING) {
    hr_visit_done(&visit);
  } else if (visit.now_ns < request->due_ns) {
    hr_requeue(&visit, request->due_ns, 1);
  } else {
    hr_fire(&visit);
  }
  return 0;
}

/* One step: look at one request in hand, or take the next slot's. 1 = nothing left. */
static long hr_lap_step(__u32 step, struct hr_lap *lap) {
  struct hr_wheel *wheel = lap->wheel;
  __u32 head = wheel->list;
  __u32 *slot;

  (void)step;
  if (head) {
    if (hr_visit(lap->skb, head)) wheel->list = 0;
    return 0;
  }
  if (wheel->fine_cursor < lap->fine_end) {
    slot = &wheel->fine[wheel->fine_cursor++ & (HR_FINE_SLOTS - 1)].head;
  } else if (wheel->coarse_cursor < lap->coarse_end) {
    slot = &wheel->coarse[wheel->coarse_cursor++ & (HR_COARSE_SLOTS - 1)];
  } else {
    lap->done = 1;
    return 1;
  }
  if (READ_ONCE(*slot)) wheel->list = __sync_lock_test_and_set(slot, 0);
  return 0;
}

/* Brings the cursors to where work may be: after a rest, after falling behind by a whole turn, after a late push. */
HR_INLINE void hr_set_cursors(struct hr_wheel *wheel, const struct hr_lap *lap) {
  __u64 wake_tick = wheel->kick_ns >> HR_FINE_SHIFT;
  __u64 wake_coarse = wheel->kick_ns >> HR_COARSE_SHIFT;

  wake_tick = wake_tick > HR_WAKE_SLACK_TICKS ? wake_tick - HR_WAKE_SLACK_TICKS : 0;
  wake_coarse = wake_coarse > 16 ? wake_coarse - 16 : 0;
  if (wheel->fine_cursor < wake_tick) wheel->fine_cursor = wake_tick;
  if (wheel->coarse_cursor < wake_coarse) wheel->coarse_cursor = wake_coarse;
  if (__sync_lock_test_and_set(&wheel->late, 0)) {
    wheel->fine_cursor = lap->fine_end - HR_FINE_SLOTS;
    wheel->coarse_cursor = lap->coarse_end - HR_COARSE_SLOTS;
  }
  if (wheel->fine_cursor + HR_FINE_SLOTS < lap->fine_end) wheel->fine_cursor = lap->fine_end - HR_FINE_SLOTS;
  if (wheel->coarse_cursor + HR_COARSE_SLOTS < lap->coarse_end)
    wheel->coarse_cursor = lap->coarse_end - HR_COARSE_SLOTS;
}

struct hr_look_ahead {
  struct hr_wheel *wheel;
  __u64 from;
  __u32 found; /* ticks until something waits; ~0 = nothing */
};

static long hr_look_step(__u32 step, struct hr_look_ahead *look) {
  if (!READ_ONCE(look->wheel->fine[(look->from + step) & (HR_FINE_SLOTS - 1)].live)) return 0;
  look->found = step;
  return 1;
}

/* How long the clock packet is to wait: the class that comes closest, and with fq the very time. */
struct hr_pause {
  __u16 class;
  __u16 idle; /* nothing was found that waits for an answer */
  __u32 wait_ns;
};

/* With fq: until the first tick that holds something has fully passed, or as long as a lap may be. */
HR_INLINE __u32 hr_exact_wait(const struct hr_look_ahead *look, __u64 longest_ns, __u64 now_ns) {
  __u64 due_ns;

  if (look->found == ~0u) return longest_ns;
  due_ns = (look->from + look->found + 1) << HR_FINE_SHIFT;
  if (due_ns < now_ns + HR_EXACT_WAIT_MIN_NS) return HR_EXACT_WAIT_MIN_NS;
  return due_ns - now_ns < longest_ns ? due_ns - now_ns : longest_ns;
}

/* The next lap: soon only while something unanswered is due soon, late only where no hedge could be missed. */
HR_INLINE struct hr_pause hr_choose_pause(struct hr_wheel *wheel, const struct hr_lap *lap) {
  const volatile __u64 *period_ns = load_config.clock_period_ns;
  __u64 adaptive_ns = READ_ONCE(wheel->shortest_delay_ns);
  __u64 shortest_ns = adaptive_ns ? adaptive_ns : load_config.min_delay_ns;
  int long_allowed = period_ns[2] <= shortest_ns / 4;
  int middle_allowed = period_ns[1] <= shortest_ns / 2;
  __u64 longest_ns = long_allowed ? period_ns[2] : middle_allowed ? period_ns[1] : period_ns[0];
  struct hr_look_ahead look = {.wheel = wheel, .from = lap->fine_end, .found = ~0u};
  struct hr_pause pause = {.class = long_allowed ? 2 : middle_allowed ? 1 : 0, .wait_ns = HR_EXACT_WAIT_MIN_NS};

  if (lap->handing_over) {
    pause.class = 0;
    pause.wait_ns = period_ns[0];
    return pause;
  }
  if (lap->done) bpf_loop(long_allowed ? HR_LONG_AHEAD_TICKS : HR_SHORT_AHEAD_TICKS, hr_look_step, &look, 0);
  pause.idle = lap->done && look.found == ~0u;
  if (load_config.clock_kind == HR_CLOCK_FQ) {
    if (lap->done) pause.wait_ns = hr_exact_wait(&look, longest_ns, lap->now_ns);
    pause.class = pause.wait_ns < period_ns[1] ? 0 : pause.wait_ns < period_ns[2] ? 1 : 2;
  } else if (!lap->done || look.found < HR_SHORT_AHEAD_TICKS) {
    pause.class = 0;
  } else if (look.found != ~0u) {
    pause.class = 1;
  }
  return pause;
}

/*
 * Rest handshake, second half: `running` is cleared first, and after that it is asked what is in use; a request
 * published in between either is seen here or its splitter sees `running` at 0 and sets the clock going anew.
 */
HR_INLINE int hr_may_rest(struct hr_wheel *wheel) {
  if (hr_is_any_in_use()) return 0;
  if (__sync_val_compare_and_swap(&wheel->running, 1, 0) != 1)
    return 1; /* a lap of an older epoch went to rest first */
  if (!hr_is_any_in_use()) return 1;
  return __sync_val_compare_and_swap(&wheel->running, 0, 1) != 0; /* not 0: a splitter has started another */
}

HR_INLINE int hr_send_round(struct __sk_buff *skb, __u32 epoch, struct hr_pause pause) {
  bpf_skb_change_tail(skb, HR_CLOCK_FRAME_BYTES, 0);
  skb->mark = HR_MARK_LAP | epoch;
  skb->priority = hr_priority_of_lap(pause.class, pause.wait_ns);
  return bpf_redirect(load_config.clock_out_ifindex, 0);
}

HR_INLINE int hr_lap(struct __sk_buff *skb, __u32 epoch) {
  struct hr_wheel *wheel = hr_the_wheel();
  struct hr_lap lap = {.skb = skb, .wheel = wheel, .now_ns = hr_now_ns()};
  struct hr_pause pause = {.class = 0, .wait_ns = HR_EXACT_WAIT_MIN_NS};

  if (!wheel || epoch != HR_MARK_VALUE(READ_ONCE(wheel->epoch))) {
    hr_host_reason(HR_REASON_CLOCK_STALE);
    return TC_ACT_SHOT;
  }
  /* A lap of an older epoch may still be at work on another CPU; there is never more than one at the lists. */
  if (__sync_val_compare_and_swap(&wheel->busy, 0, 1)) return hr_send_round(skb, epoch, pause);
  wheel->lap_ns = lap.now_ns;
  WRITE_ONCE(wheel->last_lap_ns, lap.now_ns);
  wheel->laps++;
  lap.fine_end = lap.now_ns >> HR_FINE_SHIFT;
  lap.coarse_end = (lap.now_ns >> HR_COARSE_SHIFT) + 1;
  /* Published before a slot is read: a push is either seen by this lap, or sees that it came too late for it. */
  __sync_lock_test_and_set(&wheel->fine_passed, lap.fine_end);
  __sync_lock_test_and_set(&wheel->coarse_passed, lap.coarse_end);
  hr_set_cursors(wheel, &lap);
  bpf_loop(HR_STEPS_PER_LAP, hr_lap_step, &lap, 0);
  hr_hand_over(skb, wheel);
  lap.handing_over = hr_handing_over(wheel);
  pause = hr_choose_pause(wheel, &lap);
  __sync_lock_test_and_set(&wheel->busy, 0);
  if (pause.idle && hr_may_rest(wheel)) return TC_ACT_SHOT;
  return hr_send_round(skb, epoch, pause);
}

/*
 * A carrier came under the tag's address, so the kernel takes it for another host's and would send no error about it
 * (icmp_send() in net/ipv4/icmp.c), as it does where the backend's neighbour entry fails.
 */
HR_INLINE int hr_leave(struct __sk_buff *skb, __u32 mark, const struct hr_backend *backend) {
  bpf_skb_change_type(skb, PACKET_HOST);
  skb->mark = mark;
  return bpf_redirect_neigh(backend->uplink_ifindex, 0, 0, 0);
}

/* Is the packet, which bears this note, of the request that has this word? */
HR_INLINE int hr_is_of(const struct hr_link_note *note, __u64 word) {
  return note->generation == (__u16)HR_WORD_GENERATION(word);
}

/* A consumed nack becomes the next attempt of its request while that is PENDING. Global: it has a frame of its own. */
HR_GLOBAL int hr_release(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_attempt attempt = hr_attempt_of(index, 0, 0, HR_TRACE_RELEASE);
  struct hr_backend *backend;
  struct hr_link_note note;
  __u64 now_ns = hr_now_ns();
  __u32 backend_id, client_mark;
  int failed;

  if (!request || bpf_skb_load_bytes(skb, ETH_ALEN, &note, ETH_ALEN)) return TC_ACT_SHOT;
  attempt.config_id = hr_published_config(request->key.service);
  attempt.word = READ_ONCE(request->word);
  if (HR_WORD_STATE(attempt.word) != HR_STATE_PENDING || !hr_is_of(&note, attempt.word)) return TC_ACT_SHOT;
  hr_claim_next(&attempt, now_ns);
  if (attempt.index == HR_NO_BACKEND) return TC_ACT_SHOT;
  /* Before the attempt itself, which takes the carrier away. */
  hr_send_probe(skb, &attempt, now_ns);
  backend_id = attempt.backend_id;
  backend = bpf_map_lookup_elem(&backends, &backend_id);
  failed = !backend || hr_build(skb, index, backend_id);
  client_mark = READ_ONCE(request->mark);
  if (hr_settle(&attempt, !hr_is_still_wanted(request, &attempt) ? HR_OUTCOME_NOT_NEEDED
                          : failed                               ? HR_OUTCOME_FAILED
                                                                 : HR_OUTCOME_SENT) ||
      !backend)
    return TC_ACT_SHOT;
  return hr_leave(skb, client_mark, backend);
}

/*
 * A finished copy on its second pass: a clone cannot take bpf_redirect_neigh, this packet can. Service and mark are
 * read before the word, which says whose they were. A copy whose request is gone is dropped: no client waits for its
 * answer any more.
 */
HR_INLINE int hr_send_finished(struct __sk_buff *skb, __u32 mark) {
  struct hr_request *request = hr_request_at(HR_MARK_REQUEST(mark));
  struct hr_service_config *config;
  struct hr_backend *backend;
  struct hr_link_note note;
  __u32 service_id, backend_id, client_mark;

  if (!request) return TC_ACT_SHOT;
  service_id = READ_ONCE(request->key.service);
  client_mark = READ_ONCE(request->mark);
  /* A full barrier: the two are read before the word. */
  if (bpf_skb_load_bytes(skb, ETH_ALEN, &note, ETH_ALEN) || !hr_is_of(&note, __sync_fetch_and_add(&request->word, 0))) {
    hr_host_reason(HR_REASON_CLOCK_STALE);
    return TC_ACT_SHOT;
  }
  config = hr_config_of(hr_published_config(service_id));
  if (!config) return TC_ACT_SHOT;
  backend_id = hr_backend_id(config, HR_MARK_PLACE(mark));
  backend = bpf_map_lookup_elem(&backends, &backend_id);
  if (!backend) return TC_ACT_SHOT;
  if (HR_MARK_KIND(mark) == HR_MARK_HEDGE)
    hr_record_service(service_id, HR_HISTOGRAM_FIRE_ERROR,
                      (__u64)(HR_NOTE_DUE(hr_now_ns()) - note.due) << HR_NOTE_DUE_SHIFT);
  return hr_leave(skb, client_mark, backend);
}

SEC("tc")
int hr_clock(struct __sk_buff *skb) {
  __u32 mark = skb->mark;

  if (hr_has_tag(skb)) {
    switch (HR_MARK_KIND(mark)) {
      case HR_MARK_LAP: return hr_lap(skb, HR_MARK_VALUE(mark));
      case HR_MARK_HEDGE:
      case HR_MARK_SEND: return hr_send_finished(skb, mark);
      case HR_MARK_RELEASE: return hr_release(skb, HR_MARK_VALUE(mark));
      case HR_MARK_SEGMENT_IN:
      case HR_MARK_SEGMENT_OUT: return hr_return_segment(skb, mark);
    }
  }
  hr_host_reason(HR_REASON_FOREIGN_ON_LINK);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
