// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CLOCK/RESCUER: TC ingress of the clock link's inner end. One packet circulates on that link, held back by a qdisc;
 * each lap looks at what has fallen due in the wheel, rescues what still has no answer, and sends the packet round
 * again. The same program sends on what other programs put on the link under a mark: finished copies, and spent
 * nacks that become the next attempt. Every packet here is ours; anything else is dropped and counted.
 */
#include "bpf/lib/rescue.bpf.h"

#include <linux/pkt_cls.h>

#define HR_STEPS_PER_LAP 256
#define HR_SLOTS_PER_STEP 16
/* A lap looks this far ahead (in fine ticks) for something that waits: a little more than the middle class's period. */
#define HR_SHORT_AHEAD_TICKS 48
#define HR_LONG_AHEAD_TICKS 384
/* A request may be pushed this long before the clock is set going (its CPU may be taken away in between). */
#define HR_WAKE_SLACK_TICKS 3072

struct hr_lap {
  struct __sk_buff *skb;
  struct hr_wheel *wheel;
  __u64 now_ns;
  __u64 fine_end;   /* first tick that has not fully passed */
  __u64 coarse_end; /* first coarse tick that has not begun */
  __u32 done;
};

/* Puts a request back, and keeps it in hand for the next lap where other CPUs won every try. */
HR_INLINE void hr_requeue(struct hr_wheel *wheel, struct hr_request *request, __u32 index, __u64 due_ns, int precise,
                          __u64 now_ns) {
  int failed;

  request->due_ns = due_ns;
  if (precise)
    failed = hr_push_due(wheel, request, index, now_ns);
  else
    failed = hr_push_coarse(wheel, request, index, due_ns, now_ns);
  if (!failed) {
    /* An answer may have come between looking and pushing: its disarm found nothing to take back then. */
    if (HR_WORD_STATE(*(volatile __u64 *)&request->word) != HR_STATE_PENDING) hr_disarm(wheel, request);
    return;
  }
  request->next = wheel->list;
  wheel->list = index;
}

/* No longer pending: the bytes go back at once, the scoreboard entry after its linger. */
HR_INLINE void hr_visit_done(struct hr_lap *lap, struct hr_request *request, __u32 index,
                             const struct hr_service *service, __u64 word) {
  hr_free_parked(lap->wheel, request);
  if (lap->now_ns < request->done_ns + service->linger_ns) {
    hr_requeue(lap->wheel, request, index, request->done_ns + service->linger_ns, 0, lap->now_ns);
    return;
  }
  if (!(word & HR_WORD_DETACHED)) {
    __u64 removing = HR_WORD(HR_WORD_GENERATION(word), HR_WORD_WINNER(word), 0, HR_STATE_REMOVING);

    if (__sync_val_compare_and_swap(&request->word, word, removing) != word) {
      hr_requeue(lap->wheel, request, index, lap->now_ns, 1, lap->now_ns);
      return;
    }
    bpf_map_delete_elem(&scoreboard, &request->key);
  }
  hr_free_request(lap->wheel, request, index);
}

HR_INLINE void hr_expire(struct hr_lap *lap, struct hr_request *request, __u32 index,
                         const struct hr_service *service, __u64 word, struct hr_stats *service_stats) {
  __u32 first_bit = 1u << (request->first & (HR_MAX_BACKENDS_PER_SERVICE - 1));

  request->done_ns = lap->now_ns;
  if (__sync_val_compare_and_swap(&request->word, word,
                                  HR_WORD(HR_WORD_GENERATION(word), HR_NO_BACKEND, word & HR_WORD_DETACHED,
                                          HR_STATE_EXPIRED)) == word) {
    hr_count(service_stats, HR_UNANSWERED);
    /* Unanswered first attempts are samples too: they took at least the deadline. */
    if ((request->flags & HR_REQUEST_FIRST_HEALTHY) && !(request->answered_mask & first_bit))
      hr_record(&backend_histograms, hr_backend_id(service, request->first), service->deadline_ns);
    hr_free_parked(lap->wheel, request);
  }
  hr_requeue(lap->wheel, request, index, lap->now_ns + service->linger_ns, 0, lap->now_ns);
}

/* When to look next at a request whose attempt n was just made: delay, 2 x delay, 4 x delay... but not past its end. */
HR_INLINE __u64 hr_next_due(const struct hr_request *request, const struct hr_service *service, __u32 doublings,
                            __u64 now_ns) {
  __u64 deadline_ns = request->sent_ns + service->deadline_ns;
  __u64 due_ns;

  if (request->attempts >= service->attempts) return deadline_ns;
  due_ns = now_ns + (service->delay_ns << (doublings & 31));
  return due_ns < deadline_ns ? due_ns : deadline_ns;
}

/* Due and unanswered: the next attempt, as a clone of the carrier that passes this program once more. */
HR_INLINE void hr_fire(struct hr_lap *lap, struct hr_request *request, __u32 index, const struct hr_service *service,
                       __u32 service_id, __u64 word, struct hr_stats *service_stats) {
  int refused = !(request->sent_mask & ~request->answered_mask);
  struct hr_attempt attempt =
      hr_claim_attempt(request, service, service_id, refused, service_stats, lap->now_ns);

  if (attempt.index == HR_NO_BACKEND) {
    if (attempt.reason == HR_REASON_NO_BUDGET && !(request->flags & HR_REQUEST_NO_BUDGET)) {
      request->flags |= HR_REQUEST_NO_BUDGET;
      hr_reason(service_stats, HR_REASON_NO_BUDGET);
    }
    if (attempt.reason == HR_REASON_NO_TARGET) {
      hr_reason(service_stats, HR_REASON_NO_TARGET);
      hr_requeue(lap->wheel, request, index, request->sent_ns + service->deadline_ns, 1, lap->now_ns);
      return;
    }
    if (request->rechecks < 30) request->rechecks++;
    hr_requeue(lap->wheel, request, index, hr_next_due(request, service, request->rechecks, lap->now_ns), 1,
               lap->now_ns);
    return;
  }
  request->fire_ns = request->due_ns;
  hr_note_attempt(request, &attempt, service_id, service_stats, lap->now_ns);
  if (hr_build(lap->skb, index, attempt.backend_id)) {
    hr_reason(service_stats, HR_REASON_RESCUE_FAILED);
  } else if (*(volatile __u64 *)&request->word == word) {
    lap->skb->mark = HR_MARK_RESCUE | HR_MARK_VALUE(index);
    if (bpf_clone_redirect(lap->skb, load_config.clock_in_ifindex, BPF_F_INGRESS))
      hr_reason(service_stats, HR_REASON_RESCUE_FAILED);
  }
  hr_requeue(lap->wheel, request, index, hr_next_due(request, service, request->attempts - 1, lap->now_ns), 1,
             lap->now_ns);
}

HR_INLINE void hr_visit(struct hr_lap *lap, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_stats *service_stats;
  struct hr_service *service;
  __u32 service_id;
  __u64 word;

  if (!request) return;
  lap->wheel->list = request->next;
  lap->wheel->visits++;
  service_id = request->key.service;
  service = bpf_map_lookup_elem(&services, &service_id);
  service_stats = hr_stats_of(service_id);
  if (!service) return;
  hr_disarm(lap->wheel, request);
  word = *(volatile __u64 *)&request->word;
  if (HR_WORD_STATE(word) != HR_STATE_PENDING) {
    hr_visit_done(lap, request, index, service, word);
  } else if (lap->now_ns >= request->sent_ns + service->deadline_ns) {
    hr_expire(lap, request, index, service, word, service_stats);
  } else if (lap->now_ns < request->due_ns) {
    hr_requeue(lap->wheel, request, index, request->due_ns, 1, lap->now_ns);
  } else {
    hr_fire(lap, request, index, service, service_id, word, service_stats);
  }
}

/* One step: look at one request in hand, or take the next slot's. 1 = nothing left. */
static long hr_lap_step(__u32 step, struct hr_lap *lap) {
  struct hr_wheel *wheel = lap->wheel;
  __u32 head = wheel->list;

  (void)step;
  if (head) {
    hr_visit(lap, head);
    return 0;
  }
  for (__u32 i = 0; i < HR_SLOTS_PER_STEP; i++) {
    __u32 *slot;

    if (wheel->fine_cursor < lap->fine_end) {
      slot = &wheel->fine[wheel->fine_cursor & (HR_FINE_SLOTS - 1)].head;
      wheel->fine_cursor++;
    } else if (wheel->coarse_cursor < lap->coarse_end) {
      slot = &wheel->coarse[wheel->coarse_cursor & (HR_COARSE_SLOTS - 1)];
      wheel->coarse_cursor++;
    } else {
      lap->done = 1;
      return 1;
    }
    if (!*(volatile __u32 *)slot) continue;
    wheel->list = __sync_lock_test_and_set(slot, 0);
    return 0;
  }
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
  if (wheel->coarse_cursor + HR_COARSE_SLOTS < lap->coarse_end) wheel->coarse_cursor = lap->coarse_end - HR_COARSE_SLOTS;
}

struct hr_look_ahead {
  struct hr_wheel *wheel;
  __u64 from;
  __u32 found; /* ticks until something waits; ~0 = nothing */
};

static long hr_look_step(__u32 step, struct hr_look_ahead *look) {
  if (!*(volatile __u32 *)&look->wheel->fine[(look->from + step) & (HR_FINE_SLOTS - 1)].live) return 0;
  look->found = step;
  return 1;
}

/* The lap's class: short only while something unanswered is due soon, long only where no hedge could be missed. */
HR_INLINE __u32 hr_choose_class(struct hr_wheel *wheel, const struct hr_lap *lap) {
  int long_allowed = load_config.clock_period_ns[2] <= load_config.min_delay_ns / 4;
  struct hr_look_ahead look = {.wheel = wheel, .from = lap->fine_end, .found = ~0u};

  if (!lap->done) return 0;
  bpf_loop(long_allowed ? HR_LONG_AHEAD_TICKS : HR_SHORT_AHEAD_TICKS, hr_look_step, &look, 0);
  if (look.found < HR_SHORT_AHEAD_TICKS) return 0;
  if (long_allowed && look.found == ~0u) return 2;
  return load_config.clock_period_ns[1] <= load_config.min_delay_ns / 2 ? 1 : 0;
}

/*
 * Rest handshake, second half: `running` is cleared first and `nodes` read after; a request published in between
 * either is seen here or its splitter sees `running` at 0 and sets the clock going anew.
 */
HR_INLINE int hr_may_rest(struct hr_wheel *wheel) {
  if (*(volatile __u32 *)&wheel->nodes) return 0;
  if (__sync_val_compare_and_swap(&wheel->running, 1, 0) != 1) return 0;
  if (!__sync_fetch_and_add(&wheel->nodes, 0)) return 1;
  return __sync_val_compare_and_swap(&wheel->running, 0, 1) != 0; /* not 0: a splitter has started another */
}

HR_INLINE int hr_send_round(struct __sk_buff *skb, struct hr_wheel *wheel, __u32 epoch, __u32 class) {
  bpf_skb_change_tail(skb, HR_CLOCK_FRAME_BYTES, 0);
  if (class < HR_CLOCK_CLASSES) wheel->laps_of_class[class]++;
  skb->mark = HR_MARK_LAP | epoch;
  skb->priority = HR_CLOCK_HANDLE | (HR_CLOCK_CLASS_BASE + class);
  return bpf_redirect(load_config.clock_out_ifindex, 0);
}

HR_INLINE int hr_lap(struct __sk_buff *skb, __u32 epoch) {
  struct hr_wheel *wheel = hr_the_wheel();
  struct hr_lap lap = {.skb = skb, .wheel = wheel, .now_ns = bpf_ktime_get_ns()};
  __u32 class;

  if (!wheel || epoch != HR_MARK_VALUE(*(volatile __u32 *)&wheel->epoch)) {
    hr_host_reason(HR_REASON_CLOCK_STALE);
    return TC_ACT_SHOT;
  }
  /* A lap of an older epoch may still be at work on another CPU; there is never more than one at the lists. */
  if (__sync_val_compare_and_swap(&wheel->busy, 0, 1)) return hr_send_round(skb, wheel, epoch, 0);
  *(volatile __u64 *)&wheel->last_lap_ns = lap.now_ns;
  wheel->laps++;
  lap.fine_end = lap.now_ns >> HR_FINE_SHIFT;
  lap.coarse_end = (lap.now_ns >> HR_COARSE_SHIFT) + 1;
  hr_set_cursors(wheel, &lap);
  bpf_loop(HR_STEPS_PER_LAP, hr_lap_step, &lap, 0);
  class = hr_choose_class(wheel, &lap);
  __sync_lock_test_and_set(&wheel->busy, 0);
  if (hr_may_rest(wheel)) return TC_ACT_SHOT;
  return hr_send_round(skb, wheel, epoch, class);
}

/* A spent nack: becomes the next attempt of its request, if nobody was faster. */
HR_INLINE int hr_release(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_stats *service_stats;
  struct hr_attempt attempt;
  struct hr_service *service;
  struct hr_backend *backend;
  __u64 now_ns = bpf_ktime_get_ns();
  __u32 service_id;
  __u64 word;

  if (!request) return TC_ACT_SHOT;
  word = *(volatile __u64 *)&request->word;
  service_id = request->key.service;
  service = bpf_map_lookup_elem(&services, &service_id);
  service_stats = hr_stats_of(service_id);
  if (!service || HR_WORD_STATE(word) != HR_STATE_PENDING) return TC_ACT_SHOT;
  attempt = hr_claim_attempt(request, service, service_id, 1, service_stats, now_ns);
  if (attempt.index == HR_NO_BACKEND) return TC_ACT_SHOT;
  hr_note_attempt(request, &attempt, service_id, service_stats, now_ns);
  backend = bpf_map_lookup_elem(&backends, &attempt.backend_id);
  /* The bytes are the request's only as long as its word stands. */
  if (!backend || hr_build(skb, index, attempt.backend_id) || *(volatile __u64 *)&request->word != word) {
    hr_reason(service_stats, HR_REASON_RELEASE_FAILED);
    return TC_ACT_SHOT;
  }
  skb->mark = request->mark;
  return bpf_redirect_neigh(backend->uplink_ifindex, 0, 0, 0);
}

/* A finished copy on its second pass: a clone cannot take bpf_redirect_neigh, this packet can. */
HR_INLINE int hr_send_finished(struct __sk_buff *skb, __u32 backend_id, __u32 mark) {
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);

  if (!backend) return TC_ACT_SHOT;
  skb->mark = mark;
  return bpf_redirect_neigh(backend->uplink_ifindex, 0, 0, 0);
}

HR_INLINE int hr_send_rescue(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_endpoint endpoint = {};
  struct hr_packet packet;
  __u64 now_ns = bpf_ktime_get_ns();
  __u32 *backend_id;

  if (!request || hr_parse(skb, &packet)) return TC_ACT_SHOT;
  endpoint.address = packet.destination;
  endpoint.port_be = packet.destination_port_be;
  backend_id = bpf_map_lookup_elem(&backend_ids, &endpoint);
  if (!backend_id) return TC_ACT_SHOT;
  hr_record_service(request->key.service, HR_HISTOGRAM_FIRE_ERROR, now_ns - request->fire_ns);
  return hr_send_finished(skb, *backend_id, request->mark);
}

SEC("tc")
int hr_clock(struct __sk_buff *skb) {
  __u32 mark = skb->mark;

  switch (HR_MARK_KIND(mark)) {
    case HR_MARK_LAP:
      return hr_lap(skb, HR_MARK_VALUE(mark));
    case HR_MARK_RESCUE:
      return hr_send_rescue(skb, HR_MARK_VALUE(mark));
    case HR_MARK_SEND:
      return hr_send_finished(skb, HR_MARK_VALUE(mark), 0);
    case HR_MARK_RELEASE:
      return hr_release(skb, HR_MARK_VALUE(mark));
  }
  hr_host_reason(HR_REASON_CLOCK_STALE);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
