/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Choosing in the kernel: gathers what choose.h decides from, and applies what a choice costs (the counters by which
 * some requests explore or probe, and the time of a down standby's next probe). Called by the splitter, the clock and
 * the reply program.
 */
#pragma once

#include "bpf/proxy/choose.h"
#include "bpf/proxy/health.bpf.h"
#include "bpf/proxy/load.bpf.h"

/* A choice in one word: what a global function can take and return. */
#define HR_PACKED_CHOICE(first, second, why, probe) \
  ((__u32)(first) | (__u32)(second) << 8 | (__u32)(why) << 16 | (__u32)(probe) << 24)
HR_INLINE __u32 hr_pack_choice(const struct hr_choice *choice) {
  return HR_PACKED_CHOICE(choice->first, choice->second, choice->why, choice->probe);
}

/*
 * The snapshot of the choice in hand: on the stack it would not fit beside the reply program's own frame. A program is
 * not interrupted by another on its CPU.
 */
HR_PER_CPU(choice_views, 1, struct hr_choice_view);

/*
 * The places that requests may go to: those that can be reached, or all where none can. A dry run steers around
 * nothing.
 */
HR_INLINE __u32 hr_open_places(const struct hr_service_config *config, const struct hr_service_policy *policy,
                               __u64 now_ns) {
  return hr_choice_narrow(config->present, hr_is_dry(policy) ? ~0u : ~hr_unrouted(policy, now_ns));
}

/* Is this comparison of backends one that explores? */
HR_INLINE int hr_takes_least_heard(__u32 service_id) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);

  return state && __sync_fetch_and_add(&state->compared, 1) % HR_EXPLORE_ONE_IN == HR_EXPLORE_ONE_IN - 1;
}

HR_INLINE int hr_has_shares(const struct hr_service_config *config) { return config->spreads >= HR_SPREAD_EACH; }

/* A new request's key, no multiple of HR_EXPLORE_ONE_IN, and above it the place that its share leads to, + 1. */
#define HR_SHARE_BITS 28

/*
 * The place of `open`, drained ones last, that a key's share leads to; while a backend is pinned, that one. A global
 * function: its loop is verified once.
 */
HR_GLOBAL __u32 hr_share_of(__u32 config_id, __u32 open, __u32 key) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  __u32 pinned = hr_pinned_place(HR_CONFIG_SERVICE(config_id), open);

  if (!config || !policy) return 0;
  if (pinned != HR_NO_BACKEND) return pinned;
  return hr_share_place(config, hr_choice_narrow(open, ~READ_ONCE(policy->drained)), key & ((1u << HR_SHARE_BITS) - 1));
}

/*
 * hr_choose() among a service's backends as they are now to this client, packed into a word: a global function, so that
 * its loops are verified once. The verifier knows nothing of what stands in a map, so it does not follow every
 * combination of healths. `explore_tick` of a service with shares: HR_SHARE_BITS.
 */
HR_GLOBAL __u32 hr_choose_now(__u32 config_id, __u32 exclude, __u32 explore_tick, __u32 client, __u64 now_ns) {
  __u32 service_id = HR_CONFIG_SERVICE(config_id);
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_service_policy *policy = hr_policy_of(service_id);
  __u32 zero = 0, target, target_id, open, share;
  struct hr_choice_view *view = bpf_map_lookup_elem(&choice_views, &zero);
  struct hr_backend_state *target_state;
  struct hr_choice choice;

  if (!config || !policy || !view) return HR_PACKED_CHOICE(HR_NO_BACKEND, HR_NO_BACKEND, HR_CHOSE_NONE, 0);
  __builtin_memset(view, 0, sizeof(*view));
  view->present = hr_open_places(config, policy, now_ns);
  open = view->present & ~exclude;
  open &= open - 1; /* not 0: there are several to compare */
  share = hr_has_shares(config) && explore_tick != HR_EXPLORE_NEVER;
  view->least_heard = open && !share && hr_takes_least_heard(service_id);
  view->explore_tick = explore_tick;
  view->exclude = exclude;
  view->leader = hr_leader_of(service_id);
  view->preferred = share ? explore_tick >> HR_SHARE_BITS : (__u32)READ_ONCE(policy->preferred);
  view->drained = READ_ONCE(policy->drained);
  view->shares = hr_has_shares(config);
  view->failing = hr_failing(policy, now_ns);
  view->spent = !exclude && !hr_debt_is_open(service_id, client, HR_DEBT_FAILOVERS);
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    __u32 backend_id = hr_backend_id(config, i);
    struct hr_backend_state *state;
    __u32 health;

    if (!((view->present >> i) & 1)) continue;
    state = bpf_map_lookup_elem(&backend_states, &backend_id);
    if (!state) continue;
    view->answer_us[i] = view->least_heard ? hr_choice_least_heard(state->last_receive_ns, now_ns)
                                           : hr_choice_by_load(hr_load_of(backend_id, now_ns), state->answer_ewma_ns);
    health = hr_health_of(config_id, backend_id, client, now_ns);
    if (health == HR_HEALTHY)
      view->healthy |= 1u << i;
    else if (health == HR_SUSPECT)
      view->suspect |= 1u << i;
    else if (health == HR_IMPAIRED)
      view->impaired |= 1u << i;
    else if (hr_is_retry_due(state, config->election_timeout_ns, now_ns))
      view->retry_due |= 1u << i;
  }
  view->retry_due |= view->impaired;
  /* Another one has not answered, or has refused: an impaired one may do better. */
  if (view->exclude) view->healthy |= view->impaired;
  view->failing &= view->healthy;
  view->healthy &= ~view->failing;
  view->impaired |= view->failing;
  if (view->exclude) view->retry_due |= view->failing; /* better than one that is down */
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE && (config_id & HR_OF_TCP); i++) {
    __u32 tcp_id = HR_TCP_STATE(hr_backend_id(config, i)), health;
    struct hr_backend_state *state;

    if (!(view->healthy >> i & 1)) continue;
    health = hr_health_of(config_id, tcp_id, client, now_ns);
    if (health == HR_HEALTHY) continue;
    view->healthy &= ~(1u << i);
    state = bpf_map_lookup_elem(&backend_states, &tcp_id);
    if (health == HR_SUSPECT)
      view->suspect |= 1u << i;
    else if (state && now_ns >= state->health_since_ns + HR_STANDBY_RETRY * config->election_timeout_ns)
      view->retry_due |= 1u << i;
  }
  /* Behind the loop, which the verifier would otherwise walk anew for each place that may be the target. */
  target = hr_choice_target(hr_choice_leader(view->leader, view->present, view->drained), view->preferred,
                            view->present, explore_tick) &
           (HR_MAX_BACKENDS_PER_SERVICE - 1);
  target_id = hr_backend_id(config, target);
  target_state = bpf_map_lookup_elem(&backend_states, &target_id);
  if (target_state) view->probe_tick = target_state->probe_counter;
  choice = hr_choose(view);
  return hr_pack_choice(&choice);
}

HR_INLINE struct hr_choice hr_unpack_choice(__u32 packed) {
  struct hr_choice choice = {.first = packed, .second = packed >> 8, .why = packed >> 16, .probe = packed >> 24};

  return choice;
}

/* The index of the backend that a nack named as the leader, if it was not asked yet; else HR_NO_BACKEND. */
HR_INLINE __u32 hr_open_hint(const struct hr_request *request, __u32 sent_mask) {
  __u32 index = (__u32)READ_ONCE(request->hint) - 1;

  if (index >= HR_MAX_BACKENDS_PER_SERVICE) return HR_NO_BACKEND;
  return sent_mask & (1u << index) ? HR_NO_BACKEND : index;
}

/* The backends whose next reply cannot be told from one to an older request with this key. */
HR_INLINE __u32 hr_owing(const struct hr_service_config *config, const struct hr_request *request) {
  return config->profile.echo == HR_ECHO_NONE ? HR_OUTSTANDING_NOW(READ_ONCE(request->outstanding)) : 0;
}

/* Those that no attempt of this request may go to. */
HR_INLINE __u32 hr_owing_two(const struct hr_service_config *config, const struct hr_request *request) {
  return hr_owing(config, request) & HR_OUTSTANDING_TWO(READ_ONCE(request->outstanding));
}

/*
 * The choice for a request's next attempt, among those that are not in `sent_mask`: a healthy backend that owes its key
 * nothing, or else any that does not owe it two. A global function: verified once.
 */
HR_GLOBAL __u32 hr_choose_next(__u32 config_id, __u32 index, __u32 sent_mask, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_request *request = hr_request_at(index);
  __u32 owing, packed;

  if (!config || !request) return HR_PACKED_CHOICE(HR_NO_BACKEND, HR_NO_BACKEND, HR_CHOSE_NONE, 0);
  owing = hr_owing(config, request);
  if (owing) {
    struct hr_choice choice;

    packed = hr_choose_now(config_id, sent_mask | owing, HR_EXPLORE_NEVER, request->client, now_ns);
    choice = hr_unpack_choice(packed);
    if (hr_choice_is_fair(&choice)) return packed;
    sent_mask |= hr_owing_two(config, request);
  }
  return hr_choose_now(config_id, sent_mask, HR_EXPLORE_NEVER, request->client, now_ns);
}

/* Counted by service. */
HR_INLINE __u32 hr_explore_tick(__u32 service_id) {
  struct hr_service_state *state = bpf_map_lookup_elem(&service_states, &service_id);

  return state ? __sync_fetch_and_add(&state->explored, 1) : 0;
}

/* hr_is_retry_due(), or (`untested`) the backend is healthy as far as is known, and was never heard. */
HR_INLINE int hr_is_probe_due(const struct hr_backend_state *state, __u64 election_timeout_ns, int untested,
                              __u64 now_ns) {
  return hr_is_retry_due(state, election_timeout_ns, now_ns) ||
         (untested && state->health == HR_HEALTHY && !READ_ONCE(state->last_receive_ns) &&
          now_ns >= READ_ONCE(state->health_since_ns) + HR_STANDBY_RETRY * election_timeout_ns);
}

/*
 * Takes the probe of a standby, and puts its next one off. 0 = it is not due, or another CPU has just taken it.
 * `untested`: only where a copy is the probe. A packet that can have none (TCP, flows, one-way) is no test of a backend
 * of which nothing bad is known.
 */
HR_INLINE int hr_take_retry(const struct hr_service_config *config, __u32 backend_id, int untested, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  __u64 since_ns;

  if (!state) return 0;
  since_ns = READ_ONCE(state->health_since_ns);
  if (!hr_is_probe_due(state, config->election_timeout_ns, untested, now_ns)) return 0;
  if (__sync_val_compare_and_swap(&state->health_since_ns, since_ns, now_ns) != since_ns) return 0;
  if (backend_id < HR_MAX_BACKENDS && config->profile.request_correlation.pairing == HR_PAIR_ONE_WAY)
    WRITE_ONCE(state->answered_ns, now_ns); /* no answer says how it went: hr_has_rested() */
  return 1;
}

/*
 * The place of a down backend that this packet, which has no copy, tries in place of the choice's, if it is time; else
 * HR_NO_BACKEND. Where no backend is healthy that may be the leader as well. A global function: rare.
 */
HR_GLOBAL __u32 hr_place_of_trial(__u32 config_id, __u32 packed, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  struct hr_choice choice = hr_unpack_choice(packed);
  __u32 place = choice.probe ? choice.second : hr_leader_of(HR_CONFIG_SERVICE(config_id)), backend_id;

  if (!config || !policy || place >= HR_MAX_BACKENDS_PER_SERVICE ||
      !(hr_open_places(config, policy, now_ns) >> place & 1))
    return HR_NO_BACKEND;
  backend_id = hr_backend_id(config, place);
  if (config_id & HR_OF_TCP) backend_id = HR_TCP_STATE(backend_id);
  return hr_take_retry(config, backend_id, /*untested=*/0, now_ns) ? place : HR_NO_BACKEND;
}

/*
 * Of `places` the first whose backend is due for a probe; else HR_NO_BACKEND. A request that goes to its healthy target
 * asks about no other backend, so without this a standby that has come back would be down until a hedge looks for one,
 * and the first hedge would find out that a standby has never answered. A global function: rare.
 */
HR_GLOBAL __u32 hr_place_to_probe(__u32 config_id, __u32 places, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);

  if (!config) return HR_NO_BACKEND;
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    __u32 backend_id = hr_backend_id(config, i);
    struct hr_backend_state *state;

    if (!((config->present & places) >> i & 1)) continue;
    /* Suspicion ends, or becomes more, when it is looked at. */
    hr_health_of(config_id, backend_id, HR_NO_CLIENT, now_ns);
    state = bpf_map_lookup_elem(&backend_states, &backend_id);
    if (state && hr_is_probe_due(state, config->election_timeout_ns, /*untested=*/1, now_ns)) return i;
  }
  return HR_NO_BACKEND;
}

/*
 * A new request's choice where its target is drained or not healthy. In a dry run a drained target is drained, and
 * nothing else is steered. A global function: verified once.
 */
HR_GLOBAL __u32 hr_choose_steered(__u32 config_id, __u32 target, __u32 explore_tick, __u32 client, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  __u32 packed = hr_choose_now(config_id, 0, explore_tick, client, now_ns);
  struct hr_choice choice = hr_unpack_choice(packed);

  if (!config || !policy || choice.first >= HR_MAX_BACKENDS_PER_SERVICE)
    return HR_PACKED_CHOICE(target, HR_NO_BACKEND, HR_CHOSE_LAST_RESORT, 0);
  if (hr_is_dry(policy)) {
    if (hr_choice_is_fair(&choice) || hr_is_drained(policy, target))
      return HR_PACKED_CHOICE(choice.first, HR_NO_BACKEND, HR_CHOSE_STANDBY, 0);
    return HR_PACKED_CHOICE(target, HR_NO_BACKEND, HR_CHOSE_DRY_RUN, 0);
  }
  if (hr_choice_goes_around(&choice)) {
    __u32 target_id = hr_backend_id(config, target);
    struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &target_id);
    if (state) __sync_fetch_and_add(&state->probe_counter, 1);
  }
  /* If the chosen backend is down too, the next request tries another. */
  if (choice.why != HR_CHOSE_STANDBY)
    hr_take_retry(config, hr_backend_id(config, choice.first), /*untested=*/0, now_ns);
  return packed;
}

/* A steered choice: what its target cannot take goes to the others by their shares. A global function: rare. */
HR_GLOBAL __u32 hr_share_steered(__u32 config_id, __u32 packed, __u32 explore_tick) {
  __u32 zero = 0, healthy;
  struct hr_choice_view *view = bpf_map_lookup_elem(&choice_views, &zero);
  struct hr_choice choice = hr_unpack_choice(packed);

  if (!view) return packed;
  healthy = hr_choice_narrow(view->healthy & view->present, ~(__u32)view->drained);
  if (choice.first < HR_MAX_BACKENDS_PER_SERVICE && (healthy >> choice.first & 1))
    choice.first = hr_share_of(config_id, healthy, explore_tick);
  return hr_pack_choice(&choice);
}

/* A backend's place in the service, if requests may go to it; else HR_NO_BACKEND. */
HR_INLINE __u32 hr_place_of_backend(const struct hr_service_config *config, __u32 backend_id) {
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);

  if (!backend || !hr_is_present(config, backend->index) || hr_backend_id(config, backend->index) != backend_id)
    return HR_NO_BACKEND;
  return backend->index;
}

/*
 * Where a new request goes that may go to any backend: to its healthy target, or while that one's load is full to the
 * best of the others, if its load is not. A global function: it has a stack of its own.
 */
HR_GLOBAL __u32 hr_cold_place(__u32 config_id, __u32 target, __u32 client, __u64 now_ns) {
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_choice choice;

  if (!config || !policy || hr_pinned_place(HR_CONFIG_SERVICE(config_id), 1u << target) == target ||
      hr_load_of(hr_backend_id(config, target), now_ns) < HR_LOAD_FULL)
    return target;
  choice = hr_unpack_choice(
      hr_choose_now(config_id, 1u << (target & (HR_MAX_BACKENDS_PER_SERVICE - 1)), HR_EXPLORE_NEVER, client, now_ns));
  /* Where all others are drained or impaired, the choice is one of those. */
  if (!hr_choice_is_fair(&choice) || hr_is_drained(policy, choice.first) ||
      hr_health_by(config_id, hr_backend_id(config, choice.first), client, now_ns) != HR_HEALTHY ||
      hr_load_of(hr_backend_id(config, choice.first), now_ns) >= HR_LOAD_FULL)
    return target;
  return choice.first;
}

/* A new request's choice. Nearly all go to a healthy target, which asks about no other backend. */
HR_INLINE struct hr_choice hr_choose_first(__u32 config_id, const struct hr_service_config *config,
                                           const struct hr_service_policy *policy, __u32 client, __u64 now_ns) {
  __u32 service_id = HR_CONFIG_SERVICE(config_id);
  __u32 preferred = READ_ONCE(policy->preferred), drained = READ_ONCE(policy->drained);
  __u32 explore_tick = preferred ? hr_explore_tick(service_id) : 0;
  __u32 open = hr_open_places(config, policy, now_ns);
  __u32 leader = hr_choice_leader(hr_leader_of(service_id), open, drained), target, packed;

  if (hr_has_shares(config)) {
    explore_tick = (config->spreads == HR_SPREAD_EACH ? bpf_get_prandom_u32() : client * 0x9e3779b1u) | 3;
    preferred = hr_share_of(config_id, open, explore_tick) + 1;
    explore_tick = preferred << HR_SHARE_BITS | (explore_tick & ((1u << HR_SHARE_BITS) - 1));
  }
  target = hr_choice_target(leader, preferred, open, explore_tick) & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  packed = HR_PACKED_CHOICE(target, HR_NO_BACKEND, target == leader ? HR_CHOSE_LEADER : HR_CHOSE_PREFERRED, 0);

  drained |= hr_failing(policy, now_ns);
  if (hr_has_standby(config) && ((drained >> target & 1) || hr_health_by(config_id, hr_backend_id(config, target),
                                                                         client, now_ns) != HR_HEALTHY)) {
    packed = hr_choose_steered(config_id, target, explore_tick, client, now_ns);
    if (hr_has_shares(config) && !hr_is_dry(policy)) packed = hr_share_steered(config_id, packed, explore_tick);
  } else if (config->spreads && config->spreads != HR_SPREAD_SOURCE && !hr_is_dry(policy) &&
             (preferred = hr_cold_place(config_id, target, client, now_ns)) != target)
    packed = HR_PACKED_CHOICE(preferred, HR_NO_BACKEND, HR_CHOSE_STANDBY, 0);
  return hr_unpack_choice(packed);
}

/*
 * The place of a packet that is to reach a backend that answers, and can have no copy: of a connection, a flow, or a
 * datagram that nothing answers. Where a request goes to a suspect backend and to another, that is the other one if it
 * is healthy, though it be drained. Nothing shows that such a packet was lost, so it is no probe: the next request has
 * its turn. A backend that is suspect to this client alone, for what may be owed no answer, is not gone around. A
 * global function: rare.
 */
HR_GLOBAL __u32 hr_sure_place(__u32 config_id, __u32 packed, __u32 client, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_choice choice = hr_unpack_choice(packed);
  struct hr_backend_state *state;
  __u32 target_id;

  if (!config || choice.second >= HR_MAX_BACKENDS_PER_SERVICE) return choice.first;
  if (choice.why == HR_CHOSE_BOTH) {
    target_id = hr_backend_id(config, choice.first);
    state = bpf_map_lookup_elem(&backend_states, &target_id);
    if (state && state->health == HR_HEALTHY && (READ_ONCE(state->wait_since) & HR_WAIT_UNPROVED) &&
        (!(config_id & HR_OF_TCP) || hr_health_of(config_id, HR_TCP_STATE(target_id), client, now_ns) == HR_HEALTHY))
      return choice.first;
    return hr_health_by(config_id, hr_backend_id(config, choice.second), client, now_ns) == HR_HEALTHY ? choice.second
                                                                                                       : choice.first;
  }
  if (choice.why != HR_CHOSE_PROBE) return choice.first;
  target_id = hr_backend_id(config, choice.second);
  state = bpf_map_lookup_elem(&backend_states, &target_id);
  if (state) __sync_fetch_and_sub(&state->probe_counter, 1);
  return choice.first;
}

/*
 * The load by which a backend is idle or not; one that is being drained never is. The functions here are global because
 * the splitter's frame is full: each has a stack of its own.
 */
#define HR_NEVER_IDLE (~0u)
HR_GLOBAL __u32 hr_load_at(__u32 config_id, __u32 place, __u64 now_ns) {
  struct hr_service_state *state = hr_service_state_of(HR_CONFIG_SERVICE(config_id));
  struct hr_service_policy *policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
  struct hr_service_config *config = hr_config_of(config_id);

  if (!config || !policy || !state || hr_is_drained(policy, place)) return HR_NEVER_IDLE;
  return hr_load_seen(hr_backend_id(config, place), READ_ONCE(state->copied), now_ns);
}

/* A copied request may be known until its retention ends. From this part of all requests on copies would keep others
 * from being tracked. */
#define HR_COPIES_PART 4

/* Both backends of a new request are idle: may a copy leave with its first send? A dry run counts it, and nothing
 * leaves. */
HR_GLOBAL int hr_owe_copy(__u32 service_id, __u32 client, __u64 now_ns) {
  struct hr_service_policy *policy = hr_policy_of(service_id);
  struct hr_wheel *wheel = hr_the_wheel();

  if (!policy || !wheel || hr_held_back_ns(service_id, now_ns, now_ns)) return 0;
  if (hr_is_dry(policy)) {
    hr_count(hr_stats_of(service_id), HR_WOULD_COPY);
    return 0;
  }
  if (HR_HELD_REQUESTS(READ_ONCE(wheel->held)) < load_config.max_requests / HR_COPIES_PART &&
      hr_debt_owe(service_id, client, HR_DEBT_COPIES))
    return 1;
  hr_reason(hr_stats_of(service_id), HR_REASON_NO_COPY_BUDGET);
  return 0;
}

/* Does a copy of this client's request leave at this load? The share that does is noted, for what servers report has
 * those copies in it. */
HR_GLOBAL int hr_is_copied(__u32 config_id, __u32 load, __u32 client, __u64 now_ns) {
  struct hr_service_state *state = hr_service_state_of(HR_CONFIG_SERVICE(config_id));
  struct hr_service_config *config = hr_config_of(config_id);
  int copied;

  if (!config || !state) return 0;
  copied = load != HR_NEVER_IDLE &&
           hr_load_is_idle(load, config->idle_share, load > config->idle_share ? bpf_get_prandom_u32() : 0) &&
           hr_owe_copy(HR_CONFIG_SERVICE(config_id), client, now_ns);
  state->copied = hr_smooth(state->copied, copied ? 65535 : 0, 6);
  return copied;
}

/*
 * The client of a request that may be copied; HR_NO_CLIENT: it may not. A request whose key is owed replies that look
 * like its own gets no copy: of two backends that each owe several, no reply could be told from an older one.
 */
HR_GLOBAL __u32 hr_copied_client(__u32 config_id, __u32 index) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_request *request = hr_request_at(index);

  if (!config || !request) return HR_NO_CLIENT;
  return hr_owing(config, request) ? HR_NO_CLIENT : request->client;
}

/*
 * The load of the place that would get the copy. A suspect backend may, since it may only have missed a datagram: its
 * answer shows that at once.
 */
HR_GLOBAL __u32 hr_load_of_copy(__u32 config_id, __u32 place, __u32 client, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);

  if (!config || place >= HR_MAX_BACKENDS_PER_SERVICE ||
      hr_health_of(config_id, hr_backend_id(config, place), client, now_ns) == HR_DOWN)
    return HR_NEVER_IDLE;
  return hr_load_at(config_id, place, now_ns);
}

/*
 * Where a second copy of a new request goes, which leaves with the first: to the best of the other backends, if that
 * one and `first` are idle. HR_NO_BACKEND: there is none.
 */
HR_GLOBAL __u32 hr_idle_place(__u32 config_id, __u32 index, __u32 first, __u64 now_ns) {
  __u32 load = hr_load_at(config_id, first, now_ns), client = hr_copied_client(config_id, index), other;
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_choice choice;

  if (client == HR_NO_CLIENT || !config) return HR_NO_BACKEND;
  if (hr_load_is_busy(load, config->idle_share)) { /* no other backend needs to be looked at */
    hr_is_copied(config_id, HR_NEVER_IDLE, client, now_ns);
    return HR_NO_BACKEND;
  }
  choice = hr_unpack_choice(
      hr_choose_now(config_id, 1u << (first & (HR_MAX_BACKENDS_PER_SERVICE - 1)), HR_EXPLORE_NEVER, client, now_ns));
  other = hr_load_of_copy(config_id, choice.first, client, now_ns);
  return hr_is_copied(config_id, load > other ? load : other, client, now_ns) ? choice.first : HR_NO_BACKEND;
}
