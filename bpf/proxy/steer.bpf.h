/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a request goes: to the leader, around a silent leader, or to a standby. A backend is SUSPECT when no datagram at
 * all came from it for its suspicion timeout while a request waited there: silence makes it suspect, slowness never does.
 * Failover is not hedging: it costs no budget and is bounded in time. Called by the splitter, the clock and the reply program.
 */
#pragma once

#include "bpf/proxy/share.bpf.h"

HR_INLINE __u32 hr_backend_id(const struct hr_service_config *config, __u32 index) {
  HR_KEEP_BOUND(index);
  return config->backends[index & (HR_MAX_BACKENDS_PER_SERVICE - 1)];
}

HR_INLINE __u8 hr_leader_of(__u32 service_id) {
  struct hr_leader *leader = bpf_map_lookup_elem(&leaders, &service_id);

  return leader ? leader->view.leader & (HR_MAX_BACKENDS_PER_SERVICE - 1) : 0;
}

HR_INLINE __u64 hr_silence_limit_ns(const struct hr_service_config *config, __u32 backend_id) {
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);

  return hr_suspicion_timeout_ns(config, tuning ? tuning->p95_ns : 0);
}

HR_INLINE void hr_suspect(struct hr_backend_state *state, struct hr_stats *service_stats, __u64 now_ns) {
  if (state->health != HR_HEALTHY) return;
  state->health_since_ns = now_ns; /* before the swap: a program that sees SUSPECT also reads since when */
  if (__sync_val_compare_and_swap(&state->health, HR_HEALTHY, HR_SUSPECT) != HR_HEALTHY) return;
  hr_count(service_stats, HR_SUSPECTED);
}

/* The network says that nothing receives there: no wait can be worth it where no request can be asked for again. */
HR_INLINE void hr_note_down(struct hr_backend_state *state, struct hr_stats *service_stats, __u64 now_ns) {
  state->health_since_ns = now_ns;
  if (__sync_lock_test_and_set(&state->health, HR_DOWN) == HR_HEALTHY) hr_count(service_stats, HR_SUSPECTED);
}

/* A backend's health as of now. A global function: verified once. */
HR_GLOBAL __u32 hr_health_of(__u32 config_id, __u32 backend_id, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  __u64 wait_since_ns;

  if (!state || !config) return HR_HEALTHY;
  wait_since_ns = READ_ONCE(state->wait_since_ns);
  if (state->health == HR_HEALTHY && wait_since_ns &&
      now_ns > wait_since_ns + hr_silence_limit_ns(config, backend_id))
    hr_suspect(state, hr_stats_of(HR_CONFIG_SERVICE(config_id)), now_ns);
  if (state->health != HR_HEALTHY && state->answered_ns && !wait_since_ns &&
      hr_has_rested(state, hr_silence_limit_ns(config, backend_id), now_ns))
    __sync_lock_test_and_set(&state->health, HR_HEALTHY);
  if (state->health == HR_SUSPECT && now_ns > state->health_since_ns + config->election_timeout_ns)
    __sync_val_compare_and_swap(&state->health, HR_SUSPECT, HR_DOWN);
  if (state->health == HR_DOWN && hr_error_is_old(config, state, now_ns))
    __sync_val_compare_and_swap(&state->health, HR_DOWN, HR_HEALTHY);
  return state->health;
}

/* A tracked request was sent to the backend: from now on its silence counts. */
HR_INLINE void hr_note_send(__u32 backend_id, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

  if (state && !state->wait_since_ns) __sync_val_compare_and_swap(&state->wait_since_ns, 0, now_ns);
  hr_count_send(backend_id);
}

/* Ends a pause, the silence since `wait_since_ns`. Returns 1 if this CPU ended it. Global: rare, with a stack of its own. */
HR_GLOBAL int hr_end_pause(__u32 backend_id, __u64 wait_since_ns, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

  if (!state || __sync_val_compare_and_swap(&state->wait_since_ns, wait_since_ns, 0) != wait_since_ns) return 0;
  state->catching_up = 1;
  WRITE_ONCE(state->paused_until_ns, now_ns);
  hr_record_backend(backend_id, HR_HISTOGRAM_PAUSES, now_ns - wait_since_ns);
  return 1;
}

/*
 * Any datagram to a client of ours is a sign of life: the backend is not silent. Returns 1 where it ends a pause, a silence
 * longer than suspect_min. That measure does not depend on what was learned: a timeout that has become too long
 * must not hide the pauses that would make it longer.
 */
HR_INLINE int hr_note_life(const struct hr_service_config *config, struct hr_backend_state *state, __u32 backend_id,
                           __u64 now_ns) {
  __u64 wait_since_ns = READ_ONCE(state->wait_since_ns);

  state->last_receive_ns = now_ns;
  if (!wait_since_ns) return 0;
  if (now_ns > wait_since_ns + config->suspect_min_ns) return hr_end_pause(backend_id, wait_since_ns, now_ns);
  WRITE_ONCE(state->wait_since_ns, 0);
  return 0;
}

/*
 * An unhealthy backend has answered a request that was sent at `sent_ns`. It becomes HEALTHY if it answered within its
 * suspicion timeout, or if the request was sent after its pause. Before that it works off what the pause held back, and a
 * request that went to it alone would queue behind that. Its first answer after a pause moves it from DOWN to SUSPECT:
 * requests then go to it and to another backend, so that they find out. A global function: rare.
 */
HR_GLOBAL int hr_recover(__u32 config_id, __u32 backend_id, __u64 sent_ns, __u64 now_ns,
                         __u32 ends_pause) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service_config *config = hr_config_of(config_id);

  if (!state || !config) return 0;
  if (sent_ns >= READ_ONCE(state->paused_until_ns) ||
      now_ns <= sent_ns + hr_silence_limit_ns(config, backend_id)) {
    __sync_lock_test_and_set(&state->health, HR_HEALTHY);
    return 0;
  }
  if (ends_pause && state->health == HR_DOWN) {
    state->health_since_ns = now_ns;
    __sync_val_compare_and_swap(&state->health, HR_DOWN, HR_SUSPECT);
  }
  WRITE_ONCE(state->answered_ns, now_ns);
  return 0;
}

/*
 * Was this answer held back by a pause? It was, if its request was sent before the pause ended, or before the first answer to
 * a request that was sent after the pause. That request had to queue behind what the pause held back, and so had all requests
 * that were sent before its answer came.
 */
HR_INLINE int hr_was_held_back(struct hr_backend_state *state, __u64 sent_ns, __u64 now_ns) {
  if (sent_ns < READ_ONCE(state->paused_until_ns)) return 1;
  if (!state->catching_up) return 0;
  state->catching_up = 0;
  WRITE_ONCE(state->paused_until_ns, now_ns);
  return 1;
}

#define HR_ANSWER_HELD_BACK 1u
#define HR_ANSWER_ENDS_PAUSE 2u

/* An answer to a request sent at `sent_ns`; only a datagram that names a request moves health up. Returns HR_ANSWER_... */
HR_INLINE __u32 hr_note_answer(const struct hr_service_config *config, __u32 config_id, struct hr_backend_state *state,
                               __u32 backend_id, __u64 sent_ns, __u64 now_ns) {
  __u32 about = hr_note_life(config, state, backend_id, now_ns) ? HR_ANSWER_ENDS_PAUSE : 0;

  if (state->health != HR_HEALTHY) hr_recover(config_id, backend_id, sent_ns, now_ns, about);
  if (hr_was_held_back(state, sent_ns, now_ns)) about |= HR_ANSWER_HELD_BACK;
  return about;
}

/* The backend is newly announced as the leader, so it is tried at once: its earlier silence no longer counts. */
HR_INLINE void hr_trust(struct hr_backend_state *state) {
  WRITE_ONCE(state->wait_since_ns, 0);
  if (state->health != HR_HEALTHY) __sync_lock_test_and_set(&state->health, HR_HEALTHY);
}

/*
 * ---- The budget: a token bucket, earned per request, paid per hedge ----------------------------------------------
 *
 * Any client may use the bucket's upper half. Of the lower half each may use what its own requests have earned, and a sixteenth
 * of the bucket beyond that.
 */

#define HR_MICROS_PER_HEDGE 1000000
#define HR_BUDGET_CREDIT_PARTS 16

HR_INLINE void hr_budget_earn(const struct hr_service_config *config, __u32 service_id, __u32 client_index) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);
  __s64 most = (__s64)config->budget_burst * HR_MICROS_PER_HEDGE;

  /* Two CPUs may both see room and overshoot by one earning each: harmless, and bounded by the number of CPUs. */
  if (state && state->budget_micros < most) __sync_fetch_and_add(&state->budget_micros, config->budget_ppm);
  if (client && client->budget_micros < most) __sync_fetch_and_add(&client->budget_micros, config->budget_ppm);
}

HR_INLINE void hr_budget_refund(__u32 service_id, __u32 client_index) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);

  if (state) __sync_fetch_and_add(&state->budget_micros, HR_MICROS_PER_HEDGE);
  if (client) __sync_fetch_and_add(&client->budget_micros, HR_MICROS_PER_HEDGE);
}

/* A global function: rare, and verified once. */
HR_GLOBAL int hr_budget_pay(__u32 config_id, __u32 client_index) {
  struct hr_service_state *state = hr_service_state_of(HR_CONFIG_SERVICE(config_id));
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_client *client = hr_client_at(client_index);
  __s64 most;

  if (!state || !config || !client) return 0;
  most = (__s64)config->budget_burst * HR_MICROS_PER_HEDGE;
  if (READ_ONCE(state->budget_micros) < most / 2 &&
      READ_ONCE(client->budget_micros) < HR_MICROS_PER_HEDGE - most / HR_BUDGET_CREDIT_PARTS)
    return 0;
  if (__sync_fetch_and_add(&state->budget_micros, -HR_MICROS_PER_HEDGE) < HR_MICROS_PER_HEDGE) {
    __sync_fetch_and_add(&state->budget_micros, HR_MICROS_PER_HEDGE);
    return 0;
  }
  if (READ_ONCE(client->budget_micros) > -most) __sync_fetch_and_add(&client->budget_micros, -HR_MICROS_PER_HEDGE);
  return 1;
}

/*
 * ---- Retries: attempts after negative replies, owed by them and paid for by answers (HR_RETRIES_MAX) ----------------
 *
 * Any client may owe until half of them are owed; then each may owe a sixteenth.
 */

#define HR_RETRY_CREDIT (HR_RETRIES_MAX / 16)

HR_GLOBAL int hr_client_earns_retries(__u32 client_index, __s32 retries) {
  struct hr_client *client = hr_client_at(client_index);

  if (client && READ_ONCE(client->retries_owed) > 0) __sync_fetch_and_sub(&client->retries_owed, retries);
  return 0;
}

HR_INLINE void hr_retries_earn(__u32 service_id, __u32 client_index, __u32 attempts) {
  struct hr_service_state *state = hr_service_state_of(service_id);

  /* As with the budget, CPUs that see the same debt may pay too much of it, by one answer each. */
  if (!state || READ_ONCE(state->retries_owed) <= 0) return;
  __sync_fetch_and_sub(&state->retries_owed, (__s32)attempts - 1);
  hr_client_earns_retries(client_index, (__s32)attempts - 1);
}

HR_GLOBAL int hr_retry_pay(__u32 service_id, __u32 client_index) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);

  if (!state || !client) return 0;
  if (READ_ONCE(state->retries_owed) >= HR_RETRIES_MAX / 2 && READ_ONCE(client->retries_owed) >= HR_RETRY_CREDIT) return 0;
  if (__sync_fetch_and_add(&state->retries_owed, 1) >= HR_RETRIES_MAX) {
    __sync_fetch_and_sub(&state->retries_owed, 1);
    return 0;
  }
  __sync_fetch_and_add(&client->retries_owed, 1);
  return 1;
}

/* ---- Pushback: what a backend's replies ask about hedging --------------------------------------------------------- */

/* Does a backend's pushback still keep this request from being sent once more? `*open_ns` is when it may be; ~0: never. */
HR_INLINE int hr_held_back(__u32 service_id, __u64 sent_ns, __u64 now_ns, __u64 *open_ns) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);
  __u64 wait_ns;

  if (!state || now_ns >= READ_ONCE(state->pushback_until_ns)) return 0;
  wait_ns = READ_ONCE(state->pushback_ns);
  *open_ns = wait_ns == ~0ull ? ~0ull : sent_ns + wait_ns;
  return now_ns < *open_ns;
}
