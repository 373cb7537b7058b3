/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A backend that lives and fails: it answers some requests, and leaves unanswered, or refuses, what another backend
 * then answers (a resolver without its uplink, a server one of whose workers hangs). Only requests that another backend
 * has answered count against it, so neither slowness nor a request that no backend answers does; and only while it
 * answers others, because a silence is health.bpf.h's matter. What one user or interface alone brings counts once, as
 * long as others use the service.
 *
 * A request counts at the end of its retention, but for one that a pause may have held back, or an outage have lost
 * with others. Earlier, one at a time is looked at (`missing`): it has failed once the backend has answered a later
 * request, and this one not for longer than late answers take. Of an outage that is one. Its answer takes that back,
 * as long as the request is remembered (hr_late).
 *
 * From a 64th of its requests on, or three missed in a row, its hedges are failovers: free, if they are of use. From an
 * eighth on it is IMPAIRED, if another backend fails at half as many at most: requests go around it as around one that
 * is down, and it is back when it answers nearly all probes. It is down if it answers none. A cluster's leader never is
 * impaired, for only an announcement moves it. Called by the clock and the reply program.
 */
#pragma once

#include "bpf/proxy/choose.bpf.h"

#define HR_FAILING_SOME (65536 / 64)
#define HR_FAILING_MANY (65536 / 8)
#define HR_FAILING_FEW (65536 / 32)
#define HR_MISSED_SOME 3
#define HR_MISSED_PROBES 8

/* How much one request counts: of those that it was asked first, of probes while it is impaired, and of hedges, which
 * are no fair sample of what it answers. */
#define HR_OUTCOME_SHIFT 7
#define HR_PROBED_SHIFT 5
#define HR_HEDGED_SHIFT 10

/* A request is not missed before twice the delay, twice the time that late answers take, and so long. */
#define HR_MISSED_NS 50000000ull

/* In hr_request.rechecks, which is of use before, once another backend has answered: the first one has sent something
 * since it was asked, but no answer; or this is the request that is looked at. */
#define HR_SPOKEN_SINCE 0xff
#define HR_LOOKED_AT 0xfe

/* Are hedges of its requests free? */
HR_INLINE int hr_leaves_some(__u32 backend_id) {
  const struct hr_backend_load *load = hr_backend_load_of(backend_id);

  return load && (READ_ONCE(load->failing) >= HR_FAILING_SOME || READ_ONCE(load->missed) >= HR_MISSED_SOME);
}

/* Does another backend answer more? */
HR_INLINE int hr_is_outdone(const struct hr_service_config *config, __u32 backend_id, __u32 failing) {
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u32 other_id = hr_backend_id(config, place);
    struct hr_backend_state *other = bpf_map_lookup_elem(&backend_states, &other_id);
    const struct hr_backend_load *load = hr_backend_load_of(other_id);

    if (!hr_is_present(config, place) || other_id == backend_id || !other || !load) continue;
    if (other->health == HR_HEALTHY && 2 * READ_ONCE(load->failing) <= failing) return 1;
  }
  return 0;
}

/*
 * Of a request that this backend was sent, and that a backend has answered: the wait of the one that it has failed at;
 * 0: it has answered. Whether its client was alone is asked as of then. 1: it counts. A global function: rare.
 */
HR_GLOBAL int hr_note_outcome(__u32 config_id, __u32 backend_id, __u64 failed, __u32 shift) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  __u16 last, witness;
  __u32 failing;
  int impaired;

  if (!state || !load || !config) return 0;
  impaired = state->health == HR_IMPAIRED;
  if (failed && !impaired) {
    witness = (__u16)hr_witness_of(HR_WAIT_CLIENT(failed));
    last = READ_ONCE(load->failing_witness);
    WRITE_ONCE(load->failing_witness, witness);
    if (last == witness && !hr_is_alone(HR_CONFIG_SERVICE(config_id), failed)) return 0;
  }
  failing = hr_smooth(READ_ONCE(load->failing), failed ? 65535 : 0, impaired ? HR_PROBED_SHIFT : shift & 15);
  WRITE_ONCE(load->failing, failing);
  if (impaired) {
    WRITE_ONCE(load->missed, failed && state->last_receive_ns <= failed ? load->missed + 1 : 0);
    if (load->missed >= HR_MISSED_PROBES)
      hr_suspect(state, hr_stats_of(HR_CONFIG_SERVICE(config_id)), hr_now_ns());
    else if (failing < HR_FAILING_FEW)
      __sync_val_compare_and_swap(&state->health, HR_IMPAIRED, HR_HEALTHY);
  } else if (failing >= HR_FAILING_MANY && !config->cluster_id && hr_is_outdone(config, backend_id, failing)) {
    WRITE_ONCE(load->missed, 0);
    state->health_since_ns = hr_now_ns();
    if (__sync_val_compare_and_swap(&state->health, HR_HEALTHY, HR_IMPAIRED) == HR_HEALTHY)
      hr_count(hr_stats_of(HR_CONFIG_SERVICE(config_id)), HR_SUSPECTED);
  }
  return 1;
}

/*
 * What this backend was waited for since `wait` it has answered after all: it was looked at, or counted against it.
 * After the retention, `failed`: it counted when that ended, for no more than a request does now.
 */
HR_INLINE void hr_take_miss_back(struct hr_backend_load *load, __u64 wait, int failed) {
  __u32 failing = READ_ONCE(load->failing), share = (65535 - failing) >> HR_OUTCOME_SHIFT;

  if (__sync_val_compare_and_swap(&load->missing, wait, 0) == wait) return;
  if (__sync_val_compare_and_swap(&load->counted, wait, 0) == wait)
    share = READ_ONCE(load->counted_share);
  else if (!failed)
    return;
  WRITE_ONCE(load->failing, failing > share ? failing - share : 0);
}

/*
 * Another backend has answered this request: those in `places` have not, or have refused it. They have failed at it, if
 * they have sent something since it was sent: before the other one answered, or without a pause that may have held it
 * back. So has an impaired one, whatever it has sent. A global function: rare.
 */
HR_GLOBAL int hr_note_failures(__u32 config_id, __u32 request_index, __u32 places) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_service_config *config = hr_config_of(config_id);

  if (!request || !config) return 0;
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u32 backend_id = hr_backend_id(config, place), noted = place == request->first ? READ_ONCE(request->rechecks) : 0;
    struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

    if (!(places >> place & 1) || !state) continue;
    if (state->health != HR_IMPAIRED &&
        (state->health != HR_HEALTHY || noted == HR_LOOKED_AT ||
         (place == request->first && !(request->flags & HR_REQUEST_FIRST_HEALTHY)) ||
         READ_ONCE(state->last_receive_ns) <= request->sent_ns ||
         (noted != HR_SPOKEN_SINCE && request->sent_ns < HR_PAUSED_UNTIL_NS(READ_ONCE(state->paused_until)))))
      continue;
    hr_note_outcome(config_id, backend_id, HR_WAIT(request->sent_ns, request->client),
                    place == request->first ? HR_OUTCOME_SHIFT : HR_HEDGED_SHIFT);
  }
  return 0;
}

/* Another backend has answered this request. The one that was asked first may not have. A global function: rare. */
HR_GLOBAL int hr_note_missing(__u32 config_id, __u32 request_index) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_backend_state *state;
  struct hr_backend_load *load;
  __u32 backend_id;
  __u64 wait;

  if (!request || !config) return 0;
  backend_id = hr_backend_id(config, request->first);
  state = bpf_map_lookup_elem(&backend_states, &backend_id);
  load = hr_backend_load_of(backend_id);
  if (!state || !load || (request->masks >> 8 | request->masks >> 16) & 1u << request->first) return 0;
  if (state->last_receive_ns > request->sent_ns) WRITE_ONCE(request->rechecks, HR_SPOKEN_SINCE);
  wait = HR_WAIT(request->sent_ns, request->client);
  if (state->health > HR_SUSPECT || __sync_val_compare_and_swap(&load->missing, 0, wait)) return 0;
  WRITE_ONCE(request->rechecks, HR_LOOKED_AT);
  /* Its own answer may have come meanwhile, and seen neither. */
  if (__sync_fetch_and_add(&request->masks, 0) >> 8 & 1u << request->first)
    __sync_val_compare_and_swap(&load->missing, wait, 0);
  return 0;
}

/*
 * A backend has answered this request: perhaps the one that is looked at, or was until it counted, or one that came
 * later. A global function: rare.
 */
HR_GLOBAL int hr_note_answered(__u32 config_id, __u32 backend_id, __u32 request_index) {
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_request *request = hr_request_at(request_index);
  struct hr_service_policy *policy; /* asked for late: clang 14 keeps it on the stack */
  __u64 missing, late_ns, after_ns, now_ns = hr_now_ns();
  __u32 failing;
  int first;

  if (!load || !config || !request) return 0;
  first = hr_backend_id(config, request->first) == backend_id;
  missing = READ_ONCE(load->missing);
  late_ns = READ_ONCE(load->late_ns);
  if (first && READ_ONCE(request->rechecks) == HR_LOOKED_AT) {
    after_ns = now_ns - request->sent_ns;
    hr_take_miss_back(load, HR_WAIT(request->sent_ns, request->client), 0);
    WRITE_ONCE(load->missed, 0);
    WRITE_ONCE(load->late_ns, after_ns > late_ns ? after_ns : late_ns - (late_ns >> 6));
  } else if (missing && request->sent_ns > missing) {
    policy = hr_policy_of(HR_CONFIG_SERVICE(config_id));
    if (!policy) return 0;
    after_ns = 2 * READ_ONCE(policy->delay_ns);
    if (after_ns < 2 * late_ns) after_ns = 2 * late_ns;
    if (after_ns < HR_MISSED_NS) after_ns = HR_MISSED_NS;
    if (now_ns > missing + after_ns && __sync_val_compare_and_swap(&load->missing, missing, 0) == missing) {
      WRITE_ONCE(load->late_ns, late_ns - (late_ns >> 2));
      failing = READ_ONCE(load->failing);
      if (hr_note_outcome(config_id, backend_id, missing, HR_OUTCOME_SHIFT)) {
        WRITE_ONCE(load->missed, load->missed + 1);
        WRITE_ONCE(load->counted_share, READ_ONCE(load->failing) - failing);
        WRITE_ONCE(load->counted, missing);
      }
    }
  }
  if (READ_ONCE(load->failing)) {
    hr_note_outcome(config_id, backend_id, 0, first ? HR_OUTCOME_SHIFT : HR_HEDGED_SHIFT);
    if (READ_ONCE(load->failing) < HR_FAILING_SOME / 16) WRITE_ONCE(load->missed, 0); /* some 300 answers later */
  }
  return 0;
}

/* The same, where there is something to note. */
HR_INLINE void hr_note_success(__u32 config_id, __u32 backend_id, __u32 request_index,
                               const struct hr_request *request) {
  const struct hr_backend_load *load = hr_backend_load_of(backend_id);

  if (load && (READ_ONCE(load->failing) || READ_ONCE(load->missing) || READ_ONCE(request->rechecks) == HR_LOOKED_AT))
    hr_note_answered(config_id, backend_id, request_index);
}
