/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who gets a request: the leader, around a silent leader, or a standby. A backend is SUSPECT when no datagram at all
 * came from it for max(3 x p99, suspect_min) while something was sent to it: silence, never slowness. Failover is
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

/* How long a backend may say nothing. Before 20 samples its p99 is unknown: the fixed delay stands in for it. */
HR_INLINE __u64 hr_silence_limit_ns(const struct hr_service *service, __u32 backend_id) {
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);
  __u64 limit_ns = 3 * (tuning && tuning->p99_ns ? tuning->p99_ns : service->fixed_delay_ns);

  return limit_ns > service->suspect_min_ns ? limit_ns : service->suspect_min_ns;
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
  if (state->health == HR_SUSPECT && now_ns > state->health_since_ns + service->election_timeout_ns)
    __sync_val_compare_and_swap(&state->health, HR_SUSPECT, HR_AWAY);
  return state->health;
}

/* A tracked request was sent to it: from now on its silence means something. */
HR_INLINE void hr_note_send(__u32 backend_id, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

  if (state && !state->wait_since_ns) __sync_val_compare_and_swap(&state->wait_since_ns, 0, now_ns);
  hr_count_send(backend_id);
}

/* Any datagram that answers something proves that it lives. */
HR_INLINE void hr_note_receive(struct hr_backend_state *state, __u64 now_ns) {
  state->last_receive_ns = now_ns;
  if (state->wait_since_ns) *(volatile __u64 *)&state->wait_since_ns = 0;
  if (state->health != HR_HEALTHY) __sync_lock_test_and_set(&state->health, HR_HEALTHY);
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
