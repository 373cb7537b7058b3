/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a service's requests may cost: its leader and its backends by place, the budget of hedges, the budget of
 * attempts after negative replies, and pushback. Called by the splitter, the clock and the reply program.
 */
#pragma once

#include "bpf/proxy/share.bpf.h"
#include "bpf/proxy/time.bpf.h"

HR_INLINE __u32 hr_backend_id(const struct hr_service_config *config, __u32 index) {
  HR_KEEP_BOUND(index);
  return config->backends[index & (HR_MAX_BACKENDS_PER_SERVICE - 1)];
}

HR_INLINE __u8 hr_leader_of(__u32 service_id) {
  struct hr_leader *leader = bpf_map_lookup_elem(&leaders, &service_id);

  return leader ? leader->view.leader & (HR_MAX_BACKENDS_PER_SERVICE - 1) : 0;
}

/* The place that an administrator has chosen, if it is one of `open`; else HR_NO_BACKEND. A global function: for
 * frames. */
HR_GLOBAL __u32 hr_pinned_place(__u32 service_id, __u32 open) {
  struct hr_leader *leader = bpf_map_lookup_elem(&leaders, &service_id);
  __u32 place;

  if (!leader || !leader->view.pinned) return HR_NO_BACKEND;
  place = leader->view.leader & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  return open >> place & 1 ? place : HR_NO_BACKEND;
}

/*
 * ---- The budget: a token bucket, earned per request, paid per hedge ----------------------------------------------
 *
 * Any client may use the bucket's upper half. Of the lower half each may use what its own requests have earned, and a
 * sixteenth of the bucket beyond that: also where others have emptied it, down to half a bucket below zero. Else one
 * that spends each token as it comes would leave others none. What is forwarded goes below zero by what it has earned
 * alone: a container has as many sources as its network.
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
  __s64 most, left;
  int own;

  if (!state || !config || !client) return 0;
  most = (__s64)config->budget_burst * HR_MICROS_PER_HEDGE;
  own = READ_ONCE(client->budget_micros) >= HR_MICROS_PER_HEDGE - most / HR_BUDGET_CREDIT_PARTS;
  if (READ_ONCE(state->budget_micros) < most / 2 && !own) return 0;
  if ((READ_ONCE(client->witness) & 3) == HR_SENDER_INTERFACE)
    own = READ_ONCE(client->budget_micros) >= HR_MICROS_PER_HEDGE;
  left = __sync_fetch_and_add(&state->budget_micros, -HR_MICROS_PER_HEDGE);
  if (left < HR_MICROS_PER_HEDGE &&
      (!own || !config->budget_ppm || left <= -most / 2 || hr_is_alone(HR_CONFIG_SERVICE(config_id), hr_now_ns()))) {
    __sync_fetch_and_add(&state->budget_micros, HR_MICROS_PER_HEDGE);
    return 0;
  }
  if (READ_ONCE(client->budget_micros) > -most) __sync_fetch_and_add(&client->budget_micros, -HR_MICROS_PER_HEDGE);
  return 1;
}

/*
 * ---- Debts: sends that answers pay for, and time (enum hr_debt) ----------------------------------------------------
 *
 * Any client may owe until half of what may be owed is; then each may owe a sixteenth.
 */

#define HR_DEBT_CREDIT_PARTS 16

/* What one send owes. */
HR_INLINE __s32 hr_debt_unit(__u32 debt) { return debt == HR_DEBT_FAILOVERS ? HR_FAILOVER_PARTS : 1; }

HR_INLINE __s32 hr_debt_most(__u32 debt) {
  if (debt == HR_DEBT_FAILOVERS) return HR_FAILOVERS_MAX * HR_FAILOVER_PARTS;
  return debt == HR_DEBT_RETRIES ? HR_RETRIES_MAX : HR_COPIES_MAX;
}

/* Takes `count` off what is owed, and no more than that. As with the budget, CPUs that see the same debt may each pay.
 */
HR_INLINE void hr_take_off(__s32 *owed, __s32 count) {
  __s32 now = READ_ONCE(*owed);

  if (now > 0) __sync_fetch_and_sub(owed, now < count ? now : count);
}

HR_GLOBAL int hr_debt_pay(__u32 service_id, __u32 client_index, __u32 debt, __s32 count) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);

  if (!state || !client || debt >= HR_DEBTS) return 0;
  hr_take_off(&state->owed[debt], count);
  hr_take_off(&client->owed[debt], count);
  return 0;
}

/* What time pays since `tick`, which is brought up to now; the first time nothing. Of several CPUs one pays. */
HR_INLINE void hr_debts_take_lapsed(__u32 *tick, __s32 *owed) {
  __u32 before = READ_ONCE(*tick), now = (__u32)(hr_now_ns() >> HR_DEBT_TICK_SHIFT) | 1u << 31, passed;

  if (before == now || __sync_val_compare_and_swap(tick, before, now) != before || !before) return;
  passed = now - before;
  if (passed > HR_FAILOVERS_MAX * HR_FAILOVER_PARTS) passed = HR_FAILOVERS_MAX * HR_FAILOVER_PARTS; /* all of it */
  hr_take_off(&owed[HR_DEBT_RETRIES], passed);
  hr_take_off(&owed[HR_DEBT_COPIES], passed);
  hr_take_off(&owed[HR_DEBT_FAILOVERS], passed * HR_FAILOVER_PARTS_PAID);
}

/* An answered request. `failed_over`: a copy that it owed for has won. `refused`: another backend had refused it. */
HR_INLINE void hr_debts_earn(__u32 service_id, __u32 client_index, __u32 attempts, int failed_over, int refused) {
  struct hr_service_state *state = hr_service_state_of(service_id);

  if (!state) return;
  if (READ_ONCE(state->owed[HR_DEBT_RETRIES]) > 0)
    hr_debt_pay(service_id, client_index, HR_DEBT_RETRIES, ((__s32)attempts - 1) * (refused ? HR_RETRY_PAYS_FOR : 1));
  if (READ_ONCE(state->owed[HR_DEBT_COPIES]) > 0) hr_debt_pay(service_id, client_index, HR_DEBT_COPIES, 1);
  if (READ_ONCE(state->owed[HR_DEBT_FAILOVERS]) > 0)
    hr_debt_pay(service_id, client_index, HR_DEBT_FAILOVERS, failed_over ? HR_FAILOVER_PARTS : 1);
}

HR_INLINE int hr_debt_fits(const struct hr_service_state *state, const struct hr_client *client, __u32 debt) {
  __s32 owed = READ_ONCE(state->owed[debt]);

  if (owed > hr_debt_most(debt) - hr_debt_unit(debt)) return 0;
  return owed < hr_debt_most(debt) / 2 || !client ||
         READ_ONCE(client->owed[debt]) <= hr_debt_most(debt) / HR_DEBT_CREDIT_PARTS - hr_debt_unit(debt);
}

/* Global functions beside each other, and not within: their frames stand at the end of the longest chains of calls. */
HR_GLOBAL int hr_debt_has_room(__u32 service_id, __u32 client_index, __u32 debt) {
  struct hr_service_state *state = hr_service_state_of(service_id);

  return state && debt < HR_DEBTS && hr_debt_fits(state, hr_client_at(client_index), debt);
}

HR_GLOBAL int hr_debts_lapse(__u32 service_id, __u32 client_index) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);

  if (state) hr_debts_take_lapsed(&state->paid_tick, state->owed);
  if (client) hr_debts_take_lapsed(&client->paid_tick, client->owed);
  return 0;
}

/* May one more be sent? Of no client (HR_NO_CLIENT): as far as the service is concerned. Where it may not, time pays.
 */
HR_INLINE int hr_debt_is_open(__u32 service_id, __u32 client_index, __u32 debt) {
  if (hr_debt_has_room(service_id, client_index, debt)) return 1;
  hr_debts_lapse(service_id, client_index);
  return hr_debt_has_room(service_id, client_index, debt);
}

HR_GLOBAL int hr_debt_add(__u32 service_id, __u32 client_index, __u32 debt) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);
  __s32 owed;

  if (!state || !client || debt >= HR_DEBTS) return 0;
  owed = READ_ONCE(state->owed[debt]);
  if (READ_ONCE(client->owed[debt]) > owed)
    WRITE_ONCE(client->owed[debt], owed > 0 ? owed : 0); /* others' answers have paid for it */
  if (!hr_debt_fits(state, client, debt)) return 0;
  if (__sync_fetch_and_add(&state->owed[debt], hr_debt_unit(debt)) > hr_debt_most(debt) - hr_debt_unit(debt)) {
    __sync_fetch_and_sub(&state->owed[debt], hr_debt_unit(debt));
    return 0;
  }
  __sync_fetch_and_add(&client->owed[debt], hr_debt_unit(debt));
  return 1;
}

/* One more send: 0 = not now. */
HR_INLINE int hr_debt_owe(__u32 service_id, __u32 client_index, __u32 debt) {
  if (hr_debt_add(service_id, client_index, debt)) return 1;
  hr_debts_lapse(service_id, client_index);
  return hr_debt_add(service_id, client_index, debt);
}

/* ---- Pushback: what a backend's replies ask about hedging ---------------------------------------------------------
 */

/* Until when a backend's pushback keeps this request from being sent once more; ~0: for ever, 0: it does not. */
HR_INLINE __u64 hr_held_back_ns(__u32 service_id, __u64 sent_ns, __u64 now_ns) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  __u64 wait_ns;

  if (!state || now_ns >= READ_ONCE(state->pushback_until_ns)) return 0;
  wait_ns = READ_ONCE(state->pushback_ns);
  if (wait_ns != ~0ull) wait_ns += sent_ns;
  return now_ns < wait_ns ? wait_ns : 0;
}
