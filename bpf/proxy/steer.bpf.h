/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a service's requests may cost: its leader and its backends by place, the budget of hedges, the budget of attempts after
 * negative replies, and pushback. Called by the splitter, the clock and the reply program.
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
