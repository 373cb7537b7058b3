/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who gets a request: the leader, around a silent leader, or a standby. A backend is SUSPECT when no datagram at all
 * came from it for its suspicion timeout while something was sent to it: silence, never slowness. Failover is
 * not hedging: it costs no budget and is bounded in time. Called by the splitter, the clock and the reply program.
 */
#ifndef HEDGEROW_BPF_LIB_STEER_BPF_H_
#define HEDGEROW_BPF_LIB_STEER_BPF_H_

#include "bpf/lib/stats.bpf.h"

#define HR_PROBE_ONE_IN 16
/*
 * While the daemon prefers another, so many requests still go to the leader first, or nobody would ever learn that it is
 * fast again. Below one in a hundred: a leader that is slow stays out of the p99.
 */
#define HR_EXPLORE_ONE_IN 128
/* An unhealthy standby is tried again after this many election timeouts: nobody probes it otherwise. */
#define HR_STANDBY_RETRY 8

struct hr_steer {
  __u8 first;    /* service-local index */
  __u8 second;   /* HR_NO_BACKEND, or who gets a copy at once */
  __u8 failover; /* mask of those reached by failover */
  __u8 probe;    /* the second copy is a probe of a silent leader */
  __u8 dry;      /* dry run, and it would have been steered around a silent leader */
};

HR_INLINE __u32 hr_backend_id(const struct hr_service *service, __u32 index) {
  /* Without the barrier clang drops the mask where it knows the range, and the verifier, after a spill, does not. */
  asm volatile("" : "+r"(index));
  return service->backends[index & (HR_MAX_BACKENDS_PER_SERVICE - 1)];
}

HR_INLINE __u8 hr_leader_of(__u32 service_id) {
  struct hr_leader *leader = bpf_map_lookup_elem(&leaders, &service_id);

  return leader ? leader->view.leader & (HR_MAX_BACKENDS_PER_SERVICE - 1) : 0;
}

/* Is this backend being drained? Then it gets what nobody else can take, and no hedge. */
HR_INLINE int hr_is_drained(const struct hr_service *service, __u32 index) {
  return (*(const volatile __u32 *)&service->drained >> (index & (HR_MAX_BACKENDS_PER_SERVICE - 1))) & 1;
}

HR_INLINE int hr_is_dry(const struct hr_service *service) { return service->switches & HR_SWITCH_DRY_RUN; }

HR_INLINE __u64 hr_silence_limit_ns(const struct hr_service *service, __u32 backend_id) {
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);

  return hr_suspicion_timeout_ns(service, tuning ? tuning->p95_ns : 0);
}

HR_INLINE void hr_suspect(struct hr_backend_state *state, struct hr_stats *service_stats, __u64 now_ns) {
  if (state->health != HR_HEALTHY) return;
  state->health_since_ns = now_ns; /* before the swap: who sees SUSPECT reads since when */
  if (__sync_val_compare_and_swap(&state->health, HR_HEALTHY, HR_SUSPECT) != HR_HEALTHY) return;
  hr_count(service_stats, HR_SUSPECTED);
}

/* A backend's health as of now. A global function: verified once. */
__weak __attribute__((noinline)) __u32 hr_health_of(__u32 service_id, __u32 backend_id, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service *service = bpf_map_lookup_elem(&services, &service_id);
  __u64 wait_since_ns;

  if (!state || !service) return HR_HEALTHY;
  wait_since_ns = *(volatile __u64 *)&state->wait_since_ns;
  if (state->health == HR_HEALTHY && wait_since_ns &&
      now_ns > wait_since_ns + hr_silence_limit_ns(service, backend_id))
    hr_suspect(state, hr_stats_of(service_id), now_ns);
  if (state->health != HR_HEALTHY && state->answered_ns && !wait_since_ns &&
      hr_has_rested(state, hr_silence_limit_ns(service, backend_id), now_ns))
    __sync_lock_test_and_set(&state->health, HR_HEALTHY);
  if (state->health == HR_SUSPECT && now_ns > state->health_since_ns + service->election_timeout_ns)
    __sync_val_compare_and_swap(&state->health, HR_SUSPECT, HR_DOWN);
  return state->health;
}

/* What makes a standby worse than any answer time could: silence more than being drained. */
#define HR_SCORE_DRAINED (1ull << 61)
#define HR_SCORE_SILENT (1ull << 62)

/*
 * The healthy backend with the lowest answer time among those not in `exclude_mask`; else one that is being drained; else
 * any of them; else HR_NO_BACKEND. A global function: the verifier looks at its loop once, not once per path of its
 * callers.
 */
__weak __attribute__((noinline)) __u32 hr_pick_standby(__u32 service_id, __u32 exclude_mask) {
  struct hr_service *service = bpf_map_lookup_elem(&services, &service_id);
  __u64 now_ns = bpf_ktime_get_ns();
  __u64 best_score = ~0ull;
  __u32 best = HR_NO_BACKEND;

  if (!service) return HR_NO_BACKEND;
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    struct hr_backend_state *state;
    __u32 backend_id;
    __u64 score;

    if (i >= service->backend_count || ((exclude_mask | service->absent) & (1u << i))) continue;
    backend_id = hr_backend_id(service, i);
    state = bpf_map_lookup_elem(&backend_states, &backend_id);
    if (!state) continue;
    score = state->answer_ewma_ns;
    if (hr_is_drained(service, i)) score |= HR_SCORE_DRAINED;
    if (hr_health_of(service_id, backend_id, now_ns) != HR_HEALTHY &&
        now_ns < state->health_since_ns + HR_STANDBY_RETRY * service->election_timeout_ns)
      score |= HR_SCORE_SILENT;
    if (score >= best_score) continue;
    best_score = score;
    best = i;
  }
  if (best < HR_MAX_BACKENDS_PER_SERVICE) {
    __u32 best_id = hr_backend_id(service, best);
    struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &best_id);

    /* Tried; not again before the time has passed once more. */
    if (state && state->health != HR_HEALTHY &&
        now_ns >= state->health_since_ns + HR_STANDBY_RETRY * service->election_timeout_ns)
      state->health_since_ns = now_ns;
  }
  return best;
}

/* Whom a refusal named as the leader, if that one was not asked yet: its index; else HR_NO_BACKEND. */
HR_INLINE __u32 hr_open_hint(const struct hr_request *request, __u32 sent_mask) {
  __u32 index = (__u32)*(const volatile __u8 *)&request->hint - 1;

  if (index >= HR_MAX_BACKENDS_PER_SERVICE) return HR_NO_BACKEND;
  return sent_mask & (1u << index) ? HR_NO_BACKEND : index;
}

/* One in HR_EXPLORE_ONE_IN, counted by service. */
HR_INLINE int hr_explores(__u32 service_id) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);

  return state && __sync_fetch_and_add(&state->explored, 1) % HR_EXPLORE_ONE_IN == 0;
}

/*
 * Who gets a request as long as nobody is silent: the leader, unless the daemon prefers another, or it is being drained
 * while anybody else is there. A global function: the common case is two look-ups, and the rest is verified once.
 */
__weak __attribute__((noinline)) __u32 hr_first_choice(__u32 service_id) {
  struct hr_service *service = bpf_map_lookup_elem(&services, &service_id);
  __u32 choice = hr_leader_of(service_id);
  __u32 preferred;

  if (!service) return choice;
  preferred = *(volatile __u32 *)&service->preferred;
  if (preferred && preferred <= service->backend_count && !hr_explores(service_id)) choice = preferred - 1;
  if (hr_is_drained(service, choice)) {
    __u32 other = hr_pick_standby(service_id, 0);

    if (other < HR_MAX_BACKENDS_PER_SERVICE) choice = other;
  }
  return choice;
}

HR_INLINE struct hr_steer hr_steer(const struct hr_service *service, __u32 service_id, __u64 now_ns) {
  struct hr_steer steer = {.second = HR_NO_BACKEND};
  __u32 leader = hr_first_choice(service_id) & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  __u32 leader_id = hr_backend_id(service, leader);
  struct hr_backend_state *state;
  __u32 health;
  __u32 standby;

  steer.first = leader;
  if (service->present < 2) return steer;
  health = hr_health_of(service_id, leader_id, now_ns);
  if (health == HR_HEALTHY) return steer;
  standby = hr_pick_standby(service_id, 1u << leader);
  if (standby >= HR_MAX_BACKENDS_PER_SERVICE) return steer;
  if (hr_is_dry(service)) {
    steer.dry = 1;
    return steer;
  }
  steer.failover = 1u << standby;
  if (health == HR_SUSPECT) {
    steer.second = standby;
    return steer;
  }
  steer.first = standby;
  state = bpf_map_lookup_elem(&backend_states, &leader_id);
  if (state && __sync_fetch_and_add(&state->probe_counter, 1) % HR_PROBE_ONE_IN == 0) {
    steer.second = leader;
    steer.failover |= 1u << leader;
    steer.probe = 1;
  }
  return steer;
}

/* A tracked request was sent to it: from now on its silence means something. */
HR_INLINE void hr_note_send(__u32 backend_id, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

  if (state && !state->wait_since_ns) __sync_val_compare_and_swap(&state->wait_since_ns, 0, now_ns);
  hr_count_send(backend_id);
}

/* A pause is over, the silence since `wait_since_ns`. Global: rare, and has a stack of its own. 1: on this CPU. */
__weak __attribute__((noinline)) int hr_end_pause(__u32 backend_id, __u64 wait_since_ns, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

  if (!state || __sync_val_compare_and_swap(&state->wait_since_ns, wait_since_ns, 0) != wait_since_ns) return 0;
  state->catching_up = 1;
  *(volatile __u64 *)&state->paused_until_ns = now_ns;
  hr_record_backend(backend_id, HR_HISTOGRAM_PAUSES, now_ns - wait_since_ns);
  return 1;
}

/*
 * Any datagram to a client of ours is a sign of life: the backend is not silent. Returns 1 where it ends a pause, a silence
 * longer than suspect_min. That measure does not depend on what was learned: a timeout that has become long for whatever
 * reason must not hide the pauses that would make it longer.
 */
HR_INLINE int hr_note_life(const struct hr_service *service, struct hr_backend_state *state, __u32 backend_id,
                           __u64 now_ns) {
  __u64 wait_since_ns = *(volatile __u64 *)&state->wait_since_ns;

  state->last_receive_ns = now_ns;
  if (!wait_since_ns) return 0;
  if (now_ns > wait_since_ns + service->suspect_min_ns) return hr_end_pause(backend_id, wait_since_ns, now_ns);
  *(volatile __u64 *)&state->wait_since_ns = 0;
  return 0;
}

/*
 * An unhealthy backend has answered what was sent at `sent_ns`. It is HEALTHY if that was within its suspicion timeout, or
 * after its pause: until then it works off what the pause held back, and a request that went to it alone would queue
 * behind that. Its first answer after a pause makes it SUSPECT again where it was DOWN: both are asked, so that what is sent
 * now finds out. A global function: rare.
 */
__weak __attribute__((noinline)) int hr_recover(__u32 service_id, __u32 backend_id, __u64 sent_ns, __u64 now_ns,
                                                __u32 ends_pause) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service *service = bpf_map_lookup_elem(&services, &service_id);

  if (!state || !service) return 0;
  if (sent_ns >= *(volatile __u64 *)&state->paused_until_ns ||
      now_ns <= sent_ns + hr_silence_limit_ns(service, backend_id)) {
    __sync_lock_test_and_set(&state->health, HR_HEALTHY);
    return 0;
  }
  if (ends_pause && state->health == HR_DOWN) {
    state->health_since_ns = now_ns;
    __sync_val_compare_and_swap(&state->health, HR_DOWN, HR_SUSPECT);
  }
  *(volatile __u64 *)&state->answered_ns = now_ns;
  return 0;
}

/*
 * Was this answer held back, because its request was sent before the end of a pause, or before the first answer to one that
 * was sent later? That one had to queue behind what the pause held back, and so had all that was sent before it came.
 */
HR_INLINE int hr_was_held_back(struct hr_backend_state *state, __u64 sent_ns, __u64 now_ns) {
  if (sent_ns < *(volatile __u64 *)&state->paused_until_ns) return 1;
  if (!state->catching_up) return 0;
  state->catching_up = 0;
  *(volatile __u64 *)&state->paused_until_ns = now_ns;
  return 1;
}

#define HR_ANSWER_HELD_BACK 1u
#define HR_ANSWER_ENDS_PAUSE 2u

/* An answer to what it was sent at `sent_ns`: only what names a request moves health up. HR_ANSWER_... of it. */
HR_INLINE __u32 hr_note_answer(const struct hr_service *service, __u32 service_id, struct hr_backend_state *state,
                               __u32 backend_id, __u64 sent_ns, __u64 now_ns) {
  __u32 about = hr_note_life(service, state, backend_id, now_ns) ? HR_ANSWER_ENDS_PAUSE : 0;

  if (state->health != HR_HEALTHY) hr_recover(service_id, backend_id, sent_ns, now_ns, about);
  if (hr_was_held_back(state, sent_ns, now_ns)) about |= HR_ANSWER_HELD_BACK;
  return about;
}

/* Newly announced as the leader: whatever it was silent about before, it is tried at once. */
HR_INLINE void hr_trust(struct hr_backend_state *state) {
  *(volatile __u64 *)&state->wait_since_ns = 0;
  if (state->health != HR_HEALTHY) __sync_lock_test_and_set(&state->health, HR_HEALTHY);
}

/* ---- The budget: a token bucket, earned per request, paid per hedge -------------------------------------------- */

#define HR_MICROS_PER_HEDGE 1000000

HR_INLINE void hr_budget_earn(const struct hr_service *service, __u32 service_id) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);

  /* Two CPUs may both see room and overshoot by one earning each: harmless, and bounded by the number of CPUs. */
  if (state && state->budget_micros < (__s64)service->budget_burst_micros)
    __sync_fetch_and_add(&state->budget_micros, service->budget_ppm);
}

HR_INLINE void hr_budget_refund(__u32 service_id) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);

  if (state) __sync_fetch_and_add(&state->budget_micros, HR_MICROS_PER_HEDGE);
}

HR_INLINE int hr_budget_pay(__u32 service_id) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);

  if (!state) return 0;
  if (__sync_fetch_and_add(&state->budget_micros, -HR_MICROS_PER_HEDGE) >= HR_MICROS_PER_HEDGE) return 1;
  __sync_fetch_and_add(&state->budget_micros, HR_MICROS_PER_HEDGE);
  return 0;
}

/* ---- What a backend has said about hedging ------------------------------------------------------------------------ */

/* May this request not be sent once more yet, because a backend asked for that? Then `*open_ns` is when it may; ~0: never. */
HR_INLINE int hr_held_back(__u32 service_id, __u64 sent_ns, __u64 now_ns, __u64 *open_ns) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);
  __u64 wait_ns;

  if (!state || now_ns >= *(volatile __u64 *)&state->pushback_until_ns) return 0;
  wait_ns = *(volatile __u64 *)&state->pushback_ns;
  *open_ns = wait_ns == ~0ull ? ~0ull : sent_ns + wait_ns;
  return now_ns < *open_ns;
}

#endif /* HEDGEROW_BPF_LIB_STEER_BPF_H_ */
