/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who gets a request: the leader, around a silent leader, or a standby. A backend is SUSPECT when no datagram at all
 * came from it for its suspicion timeout while something was sent to it: silence, never slowness. Failover is
 * not hedging: it costs no budget and is bounded in time. Called by the splitter, the clock and the reply program.
 */
#ifndef HEDGEROW_BPF_LIB_STEER_BPF_H_
#define HEDGEROW_BPF_LIB_STEER_BPF_H_

#include "bpf/lib/stats.bpf.h"

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
 * longer than suspect_min. That measure does not depend on what was learned: a timeout that has become too long
 * must not hide the pauses that would make it longer.
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
