/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A backend's health: the one place that judges it. Silence makes a backend suspect, slowness never does, and a silence
 * counts only as far as it is evidence about the backend: what one client sent may be that client's own fault. It may
 * have died on its way (a small TTL), been dropped as it came in (a wrong checksum) or have no answer (a name that a
 * policy drops).
 *
 * - A silence counts only where an answer is owed: another backend has answered a request that waits there, or the
 * client of a flow repeats itself (asking.bpf.h). What every backend that was asked leaves unanswered, while one of
 * them answers others, is the request's fault; its client's next ones go to another backend too for an election
 * timeout, and then the wait begins anew.
 * - Then it is evidence for the client that waits. Its own requests go around the backend once its suspicion timeout
 * has passed.
 * - It is evidence for all clients once it has a second witness: a client of another user or interface that waits in
 * vain as long, or the other backend's answer, if no other user or interface has used the service of late; where others
 * ask as well, they must miss the backend too. For a user has as many addresses as it likes, and so has a container.
 * - An ICMP "unreachable" is evidence like a silence of the same client: for all at once where that client is alone.
 * So it is in services without requests (hr_note_undeliverable).
 *
 * Failover is not hedging: it costs no budget and is bounded in time. Called by the splitter, the clock and the reply
 * program.
 */
#pragma once

#include "bpf/proxy/choose.h"
#include "bpf/proxy/steer.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

HR_INLINE __u32 hr_witness_of(__u32 client_index) {
  const struct hr_client *client = hr_client_at(client_index);

  return client ? READ_ONCE(client->witness) : 0;
}

/* Are the clients of two waits one witness? */
HR_INLINE int hr_is_same_witness(__u64 wait, __u64 other) {
  return hr_witness_of(HR_WAIT_CLIENT(wait)) == hr_witness_of(HR_WAIT_CLIENT(other));
}

/* Does a silence rest on one witness's requests alone? */
HR_INLINE int hr_has_one_witness(__u64 wait, __u64 second) {
  second = hr_second_wait(wait, second);
  return wait && (!second || hr_is_same_witness(wait, second));
}

HR_INLINE __u64 hr_silence_limit_ns(const struct hr_service_config *config, __u32 backend_id) {
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);

  if (backend_id >= HR_MAX_BACKENDS) return HR_SYN_ANSWERED_NS;
  return hr_suspicion_timeout_ns(config, tuning ? tuning->p95_ns : 0);
}

/* A request of this client has come to the service. */
HR_INLINE void hr_note_client(__u32 service_id, __u32 client, __u64 now_ns) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  __u16 last, witness = (__u16)hr_witness_of(client);

  if (!state) return;
  last = READ_ONCE(state->last_witness);
  if (last == witness) return;
  WRITE_ONCE(state->last_witness, witness);
  if (last) WRITE_ONCE(state->mixed_ns, now_ns);
}

/* An impaired backend leads no longer, so it is down at once. */
HR_INLINE void hr_suspect(struct hr_backend_state *state, struct hr_stats *service_stats, __u64 now_ns) {
  __u32 health = READ_ONCE(state->health);

  if (health != HR_HEALTHY && health != HR_IMPAIRED) return;
  state->health_since_ns = now_ns; /* before the swap: a program that sees SUSPECT also reads since when */
  if (__sync_val_compare_and_swap(&state->health, health, health == HR_HEALTHY ? HR_SUSPECT : HR_DOWN) != health)
    return;
  hr_count(service_stats, HR_SUSPECTED);
}

/* The client's own wait, the first or the second of this silence; 0: it does not wait. */
HR_INLINE __u64 hr_own_wait(const struct hr_backend_state *state, __u32 client) {
  __u64 wait = READ_ONCE(state->wait_since), second;

  if (!wait || HR_WAIT_CLIENT(wait) == client) return wait;
  second = hr_second_wait(wait, READ_ONCE(state->attested_since));
  return second && HR_WAIT_CLIENT(second) == client ? second | (wait & HR_WAIT_UNPROVED) : 0;
}

/* The silence that counts for this client: its own, or an attested one. 0: none. HR_NO_CLIENT: attested ones only. */
HR_INLINE __u64 hr_wait_of(const struct hr_backend_state *state, __u32 client) {
  __u64 own = hr_own_wait(state, client);

  return own ? own : hr_attested(READ_ONCE(state->wait_since), READ_ONCE(state->attested_since));
}

/*
 * To the client that waits since `own`: hr_health_by_wait(). Where that has ended, the client waits anew, and its next
 * request tries the backend again.
 */
HR_INLINE __u32 hr_health_to_waiting(struct hr_backend_state *state, __u64 own, __u64 suspect_ns,
                                     __u64 election_timeout_ns, __u64 now_ns) {
  __u32 health = hr_health_by_wait(own, suspect_ns, election_timeout_ns, now_ns), client = HR_WAIT_CLIENT(own);

  if (health != HR_HEALTHY || now_ns <= suspect_ns) return health;
  if (__sync_val_compare_and_swap(&state->wait_since, own, HR_WAIT(now_ns, client) | HR_WAIT_UNPROVED) != own)
    __sync_val_compare_and_swap(&state->attested_since, own & ~HR_WAIT_UNPROVED, HR_WAIT(now_ns, client));
  return health;
}

/*
 * A backend's health as of now, to this client. One that is down by the word of a single client is no more than suspect
 * to any other: a request of that other client asks it too, and so finds out. One that is impaired is as good as down
 * while it is silent. A global function: verified once.
 */
HR_GLOBAL __u32 hr_health_of(__u32 config_id, __u32 backend_id, __u32 client, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  __u64 wait, own, attested, limit_ns;

  if (!state || !config || (state->health == HR_HEALTHY && !READ_ONCE(state->wait_since))) return HR_HEALTHY;
  limit_ns = hr_silence_limit_ns(config, backend_id);
  wait = READ_ONCE(state->wait_since);
  attested = hr_attested(wait, READ_ONCE(state->attested_since));
  if (state->health == HR_IMPAIRED)
    return attested && now_ns > attested + limit_ns + config->election_timeout_ns ? HR_DOWN : HR_IMPAIRED;
  if (state->health == HR_HEALTHY && attested && now_ns > attested + limit_ns)
    hr_suspect(state, hr_stats_of(HR_CONFIG_SERVICE(config_id)), now_ns);
  if (state->health == HR_HEALTHY) {
    own = hr_own_wait(state, client);
    return own ? hr_health_to_waiting(state, own, own + limit_ns, config->election_timeout_ns, now_ns) : HR_HEALTHY;
  }
  if (hr_has_rested(config, state, limit_ns, now_ns)) __sync_lock_test_and_set(&state->health, HR_HEALTHY);
  if (state->health == HR_SUSPECT && now_ns > state->health_since_ns + config->election_timeout_ns)
    __sync_val_compare_and_swap(&state->health, HR_SUSPECT, HR_DOWN);
  if (state->health == HR_DOWN && HR_WAIT_CLIENT(wait) != client &&
      hr_has_one_witness(wait, READ_ONCE(state->attested_since)))
    return HR_SUSPECT;
  return state->health;
}

/* The same, for a choice: to a TCP connection a backend is no healthier than its SYNs are answered. */
HR_INLINE __u32 hr_health_by(__u32 config_id, __u32 backend_id, __u32 client, __u64 now_ns) {
  __u32 health = hr_health_of(config_id, backend_id, client, now_ns);

  if (health != HR_HEALTHY || !(config_id & HR_OF_TCP)) return health;
  return hr_health_of(config_id, HR_TCP_STATE(backend_id), client, now_ns);
}

/* ---- What moves it down -------------------------------------------------------------------------------------------
 */

/*
 * Nothing has shown for so long that what waits here is owed an answer. It is, if no backend of the service has sent
 * anything since: then nothing works. A global function: rare.
 */
#define HR_ALL_SILENT_NS 10000000000ull
HR_GLOBAL int hr_prove_if_all_are_silent(__u32 config_id, __u32 backend_id, __u64 wait) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id), *other;
  struct hr_service_config *config = hr_config_of(config_id);

  if (!config || !state) return 0;
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u32 other_id = hr_backend_id(config, place);

    other = bpf_map_lookup_elem(&backend_states, &other_id);
    if (config->present >> place & 1 && other && other->last_receive_ns > wait) return 0;
  }
  __sync_val_compare_and_swap(&state->wait_since, wait, wait & ~HR_WAIT_UNPROVED);
  return 0;
}

/* A tracked request of this client, or a SYN, was sent to the backend: from now on its silence counts, if an answer is
 * owed (hr_attest). */
HR_INLINE void hr_note_wait(__u32 config_id, __u32 backend_id, __u32 client, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  __u64 wait = state ? READ_ONCE(state->wait_since) : 0;

  if (state && !wait)
    __sync_val_compare_and_swap(&state->wait_since, 0, HR_WAIT(now_ns, client) | HR_WAIT_UNPROVED);
  else if (state && !hr_is_same_witness(wait, client) && hr_has_one_witness(wait, READ_ONCE(state->attested_since)))
    WRITE_ONCE(state->attested_since, HR_WAIT(now_ns, client));
  else if (state && (wait & HR_WAIT_UNPROVED) && now_ns > wait + HR_ALL_SILENT_NS)
    hr_prove_if_all_are_silent(config_id, backend_id, wait);
}

HR_INLINE void hr_note_send(__u32 config_id, __u32 backend_id, __u32 client, __u64 now_ns) {
  hr_note_wait(config_id, backend_id, client, now_ns);
  hr_count_backend(backend_id, HR_BACKEND_SENDS);
}

/*
 * This wait is owed an answer: it is the first of the silence, in place of one that may not be, or the second. `alone`:
 * its client is the service's only one, and another backend's answer the second witness. A global function: rare.
 */
HR_GLOBAL int hr_prove(__u32 backend_id, __u64 proved, __u32 alone) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  __u32 client = HR_WAIT_CLIENT(proved);
  __u64 wait, second;

  if (!state) return 0;
  wait = READ_ONCE(state->wait_since);
  second = READ_ONCE(state->attested_since);
  if (!wait || (wait & HR_WAIT_UNPROVED)) {
    if (__sync_val_compare_and_swap(&state->wait_since, wait, proved) != wait) return 0;
    wait = proved;
  }
  if (hr_is_same_witness(wait, client)
          ? alone && !hr_second_wait(wait, second)
          : hr_has_one_witness(wait, second) || (HR_WAIT_CLIENT(second) == client && proved < second))
    WRITE_ONCE(state->attested_since, proved);
  return 0;
}

/*
 * The network cannot deliver this client's datagram to a backend of a service without requests and replies. Nothing can
 * be asked for again there, so the backend is down to it at once, and to all clients once a second witness hears the
 * same, or where there is none. Where nothing is ever answered, what a first one heard is forgotten when its own
 * datagrams go there again. A global function: rare.
 */
HR_GLOBAL int hr_note_undeliverable(__u32 config_id, __u32 backend_id, __u32 client, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  __u64 proved, wait;

  if (!state || !config) return 0;
  proved = HR_WAIT(now_ns - hr_silence_limit_ns(config, backend_id) - config->election_timeout_ns - HR_WAIT_MASK - 1,
                   client);
  wait = READ_ONCE(state->wait_since);
  if (config->profile.request_correlation.pairing == HR_PAIR_ONE_WAY &&
      wait + HR_STANDBY_RETRY * config->election_timeout_ns < proved)
    __sync_val_compare_and_swap(&state->wait_since, wait, 0);
  hr_prove(backend_id, proved, hr_is_alone(HR_CONFIG_SERVICE(config_id), now_ns));
  if (state->health == HR_HEALTHY && !hr_attested(READ_ONCE(state->wait_since), READ_ONCE(state->attested_since)))
    return 0;
  state->health_since_ns = now_ns;
  WRITE_ONCE(state->wait_since, 0); /* it rests on no client's silence */
  WRITE_ONCE(state->attested_since, 0);
  if (__sync_lock_test_and_set(&state->health, HR_DOWN) == HR_HEALTHY)
    hr_count(hr_stats_of(HR_CONFIG_SERVICE(config_id)), HR_SUSPECTED);
  return 0;
}

/*
 * A backend has answered this request, so the silence of the others that have it is no fault of the request. Only a
 * silence that is no older than the request is attested: a backend that has spoken since has lost one datagram.
 */
HR_GLOBAL int hr_attest(__u32 config_id, __u32 request_index, __u64 now_ns) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_service_config *config = hr_config_of(config_id);
  __u32 masks, silent, alone;

  if (!request || !config) return 0;
  alone = hr_is_alone(HR_CONFIG_SERVICE(config_id), now_ns);
  masks = READ_ONCE(request->masks);
  silent = HR_SENT_MASK(masks) & ~HR_ANSWERED_MASK(masks);
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u64 sent_ns = place == request->first ? request->sent_ns : request->fire_ns;
    __u32 backend_id = hr_backend_id(config, place);
    struct hr_backend_state *state;
    __u64 wait;

    if (!(silent >> place & 1)) continue;
    state = bpf_map_lookup_elem(&backend_states, &backend_id);
    if (!state) continue;
    wait = READ_ONCE(state->wait_since);
    /* A client that waits in vain may have begun its wait anew since (hr_health_to_waiting). */
    if (wait && ((wait & HR_WAIT_UNPROVED) ? state->last_receive_ns <= sent_ns : wait <= sent_ns + HR_ATTEST_SLACK_NS))
      hr_prove(backend_id, HR_WAIT(sent_ns, request->client), alone);
  }
  return 0;
}

/*
 * A flow has waited for its backend since `wait`, as its client's repetitions show; HR_WAIT_UNPROVED: the backend never
 * answered the flow, which proves nothing. Counted from the backend's last datagram, and for no longer than until it is
 * down. Returns 1 if it is by then. A global function: it has a stack of its own.
 */
HR_GLOBAL int hr_note_owed(__u32 config_id, __u32 backend_id, __u64 wait, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service_config *config = hr_config_of(config_id);
  __u64 since = wait & ~HR_WAIT_MASK, known, second, down_ns;

  if (!state || !config) return 0;
  down_ns = hr_silence_limit_ns(config, backend_id) + config->election_timeout_ns + HR_WAIT_MASK +
            1; /* a wait is later by its low bits */
  if (since < state->last_receive_ns) since = state->last_receive_ns;
  if (since + down_ns < now_ns) since = now_ns - down_ns;
  wait = HR_WAIT(since, wait & HR_WAIT_MASK);
  known = READ_ONCE(state->wait_since);
  second = READ_ONCE(state->attested_since);
  if (!known || (known & HR_WAIT_UNPROVED) ||
      (HR_WAIT_CLIENT(known) == HR_WAIT_CLIENT(wait) && !(wait & HR_WAIT_UNPROVED)))
    __sync_val_compare_and_swap(&state->wait_since, known, wait);
  else if (!(wait & HR_WAIT_UNPROVED) &&
           (!hr_is_same_witness(known, wait) || hr_is_alone(HR_CONFIG_SERVICE(config_id), now_ns)) &&
           (hr_has_one_witness(known, second) || HR_WAIT_CLIENT(second) == HR_WAIT_CLIENT(wait)))
    WRITE_ONCE(state->attested_since, wait);
  return since + down_ns <= now_ns;
}

/*
 * What this client's SYNs have waited for until their repetition is owed an answer: a SYN's is the kernel's, whatever
 * the server does. A global function: rare.
 */
HR_GLOBAL int hr_prove_syns(__u32 config_id, __u32 client, __u64 now_ns) {
  __u32 alone = hr_is_alone(HR_CONFIG_SERVICE(config_id), now_ns);
  struct hr_service_config *config = hr_config_of(config_id);

  if (!config) return 0;
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    __u32 tcp_id = HR_TCP_STATE(hr_backend_id(config, place));
    struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &tcp_id);
    __u64 own = state ? hr_own_wait(state, client) : 0;

    if (own && now_ns > own + HR_SYN_ANSWERED_NS) hr_prove(tcp_id, own & ~HR_WAIT_UNPROVED, alone);
  }
  return 0;
}

/* ---- What moves it up ---------------------------------------------------------------------------------------------
 */

/*
 * Ends a pause: the silence since `since` (hr_wait_of), where `wait` is the first that waited. Returns 1 if this CPU
 * ended it. Global: rare, with a stack of its own.
 */
HR_GLOBAL int hr_end_pause(__u32 backend_id, __u64 wait, __u64 since, __u64 now_ns) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);

  if (!state || __sync_val_compare_and_swap(&state->wait_since, wait, 0) != wait) return 0;
  WRITE_ONCE(state->attested_since, 0);
  WRITE_ONCE(state->paused_until, now_ns | HR_CATCHING_UP);
  hr_record_backend(backend_id, HR_HISTOGRAM_PAUSES, now_ns - since);
  return 1;
}

/* An average of the answer times of a backend that was not heard for so long says nothing about its next answer. */
#define HR_AVERAGE_LASTS_NS 5000000000ull

/*
 * A datagram that names a request which the backend was sent (of a service without requests: a flow) and that the
 * kernel will deliver is a sign of life: the backend is not silent. Returns 1 where it ends a pause, a
 * silence that counts for this client and is longer than suspect_min. That measure does not depend on what was learned:
 * a timeout that has become too long must not hide the pauses that would make it longer.
 */
HR_INLINE int hr_note_life(const struct hr_service_config *config, struct hr_backend_state *state, __u32 backend_id,
                           __u32 client, __u64 now_ns) {
  __u64 wait = READ_ONCE(state->wait_since), since = hr_wait_of(state, client);

  if (now_ns > state->last_receive_ns + HR_AVERAGE_LASTS_NS)
    state->answer_ewma_ns = 0; /* the next sample stands for itself */
  state->last_receive_ns = now_ns;
  if (wait && since && now_ns > since + config->suspect_min_ns) return hr_end_pause(backend_id, wait, since, now_ns);
  if (wait) WRITE_ONCE(state->wait_since, 0);
  if (READ_ONCE(state->attested_since)) WRITE_ONCE(state->attested_since, 0);
  return 0;
}

/*
 * An unhealthy backend has answered a request that was sent at `sent_ns`. It becomes HEALTHY if it answered within its
 * suspicion timeout, or if the request was sent after its pause. Before that it works off what the pause held back, and
 * a request that went to it alone would queue behind that. Its first answer after a pause moves it from DOWN to
 * SUSPECT: requests then go to it and to another backend, so that they find out. A global function: rare.
 */
HR_GLOBAL int hr_recover(__u32 config_id, __u32 backend_id, __u64 sent_ns, __u64 now_ns, __u32 ends_pause) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_service_config *config = hr_config_of(config_id);

  if (!state || !config || state->health == HR_IMPAIRED) return 0; /* one answer is none of the others that it owes */
  if (sent_ns >= HR_PAUSED_UNTIL_NS(READ_ONCE(state->paused_until)) ||
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
 * Was this answer held back by a pause? It was, if its request was sent before the pause ended, or before the first
 * answer to a request that was sent after the pause. That request had to queue behind what the pause held back, and so
 * had all requests that were sent before its answer came.
 */
HR_INLINE int hr_was_held_back(struct hr_backend_state *state, __u64 sent_ns, __u64 now_ns) {
  __u64 paused_until = READ_ONCE(state->paused_until);

  if (sent_ns < HR_PAUSED_UNTIL_NS(paused_until)) return 1;
  if (!(paused_until & HR_CATCHING_UP)) return 0;
  WRITE_ONCE(state->paused_until, now_ns & ~HR_CATCHING_UP);
  return 1;
}

#define HR_ANSWER_HELD_BACK 1u
#define HR_ANSWER_ENDS_PAUSE 2u

/*
 * An answer to a request that this client sent at `sent_ns`; only a datagram that names a request moves health up.
 * Returns HR_ANSWER_...
 */
HR_INLINE __u32 hr_note_answer(const struct hr_service_config *config, __u32 config_id, struct hr_backend_state *state,
                               __u32 backend_id, __u32 client, __u64 sent_ns, __u64 now_ns) {
  __u32 about = hr_note_life(config, state, backend_id, client, now_ns) ? HR_ANSWER_ENDS_PAUSE : 0;

  if (state->health != HR_HEALTHY) hr_recover(config_id, backend_id, sent_ns, now_ns, about);
  if (hr_was_held_back(state, sent_ns, now_ns)) about |= HR_ANSWER_HELD_BACK;
  return about;
}

/* The backend is newly announced as the leader, so it is tried at once: its earlier silence no longer counts. */
HR_INLINE void hr_trust(struct hr_backend_state *state) {
  WRITE_ONCE(state->wait_since, 0);
  WRITE_ONCE(state->attested_since, 0);
  if (state->health != HR_HEALTHY) __sync_lock_test_and_set(&state->health, HR_HEALTHY);
}

/*
 * A router's error says that a datagram sent at `sent_ns` never came to the backend: the silence that began with it is
 * none. What another client waits for, or another backend has shown, stands as before.
 */
HR_INLINE void hr_forgive(struct hr_backend_state *state, __u32 client, __u64 sent_ns) {
  __u64 wait = READ_ONCE(state->wait_since), second = READ_ONCE(state->attested_since);

  if ((wait & ~HR_WAIT_UNPROVED) != HR_WAIT(sent_ns, client)) return;
  if (__sync_val_compare_and_swap(&state->wait_since, wait, second ? second | HR_WAIT_UNPROVED : 0) != wait) return;
  WRITE_ONCE(state->attested_since, 0);
}
