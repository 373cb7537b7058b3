/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A backend that lives and fails: it answers some requests, and leaves unanswered, or refuses, what another backend
 * then answers (a resolver without its uplink, a server one of whose workers hangs). Only requests that another backend
 * has answered count against it, so neither slowness nor a request that no backend answers does; and only while it
 * answers others, because a silence is health.bpf.h's matter. What one user or interface alone brings counts once, as
 * long as others use the service.
 *
 * From a 64th of its requests on, its hedges are failovers: free, if they are of use. From an eighth on it is IMPAIRED,
 * if another backend fails at half as many at most: requests go around it as around one that is down, and it is back
 * when it answers nearly all probes. A cluster's leader never is, for only an announcement moves it. Called by the
 * clock and the reply program.
 */
#pragma once

#include "bpf/proxy/choose.bpf.h"

#define HR_FAILING_SOME (65536 / 64)
#define HR_FAILING_MANY (65536 / 8)
#define HR_FAILING_FEW (65536 / 32)

/* How much one request counts: of those that it was asked first, of probes while it is impaired, and of hedges, which
 * are no fair sample of what it answers. */
#define HR_OUTCOME_SHIFT 7
#define HR_PROBED_SHIFT 5
#define HR_HEDGED_SHIFT 10

HR_INLINE __u32 hr_failing(__u32 backend_id) {
  const struct hr_backend_load *load = hr_backend_load_of(backend_id);

  return load ? READ_ONCE(load->failing) : 0;
}

/* Does another backend answer more? */
HR_INLINE int hr_is_outdone(const struct hr_service_config *config, __u32 backend_id, __u32 failing) {
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u32 other_id = hr_backend_id(config, place);
    struct hr_backend_state *other = bpf_map_lookup_elem(&backend_states, &other_id);

    if (!hr_is_present(config, place) || other_id == backend_id || !other) continue;
    if (other->health == HR_HEALTHY && 2 * hr_failing(other_id) <= failing) return 1;
  }
  return 0;
}

/*
 * Of a request that this backend was sent, and that a backend has answered: which one it has failed at; 0: it has
 * answered. Whether its client was alone is asked as of then. A global function: rare.
 */
HR_GLOBAL int hr_note_outcome(__u32 config_id, __u32 backend_id, __u32 failed, __u32 shift) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  const struct hr_request *request;
  __u16 last, witness;
  __u32 failing;
  int impaired;

  if (!state || !load || !config) return 0;
  impaired = state->health == HR_IMPAIRED;
  if (failed && !impaired) {
    request = hr_request_at(failed);
    if (!request) return 0;
    witness = (__u16)hr_witness_of(request->client);
    last = READ_ONCE(load->failing_witness);
    WRITE_ONCE(load->failing_witness, witness);
    if (last == witness && !hr_is_alone(HR_CONFIG_SERVICE(config_id), request->sent_ns)) return 0;
  }
  failing = hr_smooth(READ_ONCE(load->failing), failed ? 65535 : 0, impaired ? HR_PROBED_SHIFT : shift & 15);
  WRITE_ONCE(load->failing, failing);
  if (impaired && failing < HR_FAILING_FEW) {
    __sync_val_compare_and_swap(&state->health, HR_IMPAIRED, HR_HEALTHY);
  } else if (!impaired && failed && failing >= HR_FAILING_MANY && !config->cluster_id &&
             hr_is_outdone(config, backend_id, failing)) {
    state->health_since_ns = hr_now_ns();
    if (__sync_val_compare_and_swap(&state->health, HR_HEALTHY, HR_IMPAIRED) == HR_HEALTHY)
      hr_count(hr_stats_of(HR_CONFIG_SERVICE(config_id)), HR_SUSPECTED);
  }
  return 0;
}

/*
 * Another backend has answered this request: those in `places` have not, or have refused it. They have failed at it, if
 * they have sent something since it was sent: before the other one answered, or without a pause that may have held it
 * back. A global function: rare.
 */
HR_GLOBAL int hr_note_failures(__u32 config_id, __u32 request_index, __u32 places) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_service_config *config = hr_config_of(config_id);

  if (!request || !config) return 0;
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u32 backend_id = hr_backend_id(config, place);
    struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

    if (!(places >> place & 1) || !state) continue;
    if (state->health != HR_IMPAIRED &&
        (state->health != HR_HEALTHY || (place == request->first && !(request->flags & HR_REQUEST_FIRST_HEALTHY))))
      continue;
    if (READ_ONCE(state->last_receive_ns) > request->sent_ns &&
        (state->health == HR_IMPAIRED || (place == request->first && READ_ONCE(request->rechecks) == HR_SPOKEN_SINCE) ||
         request->sent_ns >= HR_PAUSED_UNTIL_NS(READ_ONCE(state->paused_until))))
      hr_note_outcome(config_id, backend_id, request_index,
                      place == request->first ? HR_OUTCOME_SHIFT : HR_HEDGED_SHIFT);
  }
  return 0;
}

/* It has answered a request. */
HR_INLINE void hr_note_success(__u32 config_id, __u32 backend_id, const struct hr_request *request, __u32 place) {
  if (hr_failing(backend_id))
    hr_note_outcome(config_id, backend_id, 0, place == request->first ? HR_OUTCOME_SHIFT : HR_HEDGED_SHIFT);
}
