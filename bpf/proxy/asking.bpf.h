/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Does the client of a flow wait for an answer? A flow has no requests, and most of what its client sends needs no
 * answer: acknowledgements, keep-alives, uploads. A client that waits repeats itself: it sends the same datagram again,
 * or sends at ever longer distances (QUIC, TURN, DTLS back off), or begins anew as it once began and was answered
 * (WireGuard). Called by the splitter, and by the reply program when an answer comes.
 */
#pragma once

#include "bpf/proxy/flow.bpf.h"
#include "bpf/proxy/health.bpf.h"

#define HR_ASKING_TICKS(ms) ((__u32)(((ms)*1000000ull) >> HR_ASKING_TICK_SHIFT))
#define HR_ASKING_BURST HR_ASKING_TICKS(16) /* closer datagrams are one question */
/* The same datagram is repeated at such distances: a keep-alive's are longer, an upload's shorter. */
#define HR_ASKING_SAME_MIN HR_ASKING_TICKS(120)
#define HR_ASKING_SAME_MAX HR_ASKING_TICKS(3000)
#define HR_ASKING_ANEW_MIN HR_ASKING_TICKS(2000)                  /* one like the first at such distances at least */
#define HR_ASKING_LONGER(gap, before) (4 * (gap) >= 7 * (before)) /* a distance that is 7/4 of the one before */

/*
 * How sure it is: the same datagram again, or one like the first, counts 2, a longer distance 1. Distances that vary by
 * chance grow by 7/4 five times in a row once in 140,000 datagrams.
 */
#define HR_ASKING_OWED 5

#define HR_ASKING_BYTES 256 /* of a payload that are compared, beside its length */

/* A hash of a payload in the upper half, of its length and first bytes in the lower one. A QUIC packet's first four
 * bits alone are the same in each. */
HR_INLINE __u32 hr_payload_hash(struct __sk_buff *skb, const struct hr_packet *packet) {
  __u64 words[4], hash = packet->payload_bytes, kind = 0;

  for (__u32 at = 0; at < HR_ASKING_BYTES; at += sizeof(words)) {
    __u64 chunk =
        READ_ONCE(packet->payload_bytes); /* read anew in each round: all that the verifier knows of one is `at` */

    if (chunk <= at) break;
    chunk -= at;
    if (chunk > sizeof(words)) chunk = sizeof(words);
    __builtin_memset(words, 0, sizeof(words));
    chunk--; /* one comparison for both bounds, as in hr_read_correlation() */
    HR_KEEP_BOUND(chunk);
    if (chunk >= sizeof(words)) break;
    HR_KEEP_BOUND(chunk);
    chunk++;
    if (bpf_skb_load_bytes(skb, READ_ONCE(packet->l4_offset) + sizeof(struct udphdr) + at, words, chunk)) break;
    if (!at) kind = (words[0] & 0xfffffff0) << 16 | packet->payload_bytes;
    for (int i = 0; i < 4; i++) hash = (hash ^ words[i]) * 0xbf58476d1ce4e5b9ull; /* as hr_key_hash() */
  }
  return (__u32)(hash >> 48) << 16 | (__u32)(kind * 0x94d049bb133111ebull >> 48);
}

/*
 * Notes a datagram of a flow's client. 1: it has waited for an answer since `asking.since`. The same datagrams from a
 * client whose backend has never been heard are a stream that nothing answers.
 */
HR_GLOBAL int hr_flow_asks(struct __sk_buff *skb, struct hr_packet *packet, struct hr_flow *flow, __u64 now_ns) {
  __u32 now = (__u32)(now_ns >> HR_ASKING_TICK_SHIFT), hash, gap, add = 0, backend_id, heard;
  struct hr_backend_state *state;
  struct hr_asking *asking;

  if (!packet || !flow) return 0;
  asking = &flow->asking;
  gap = asking->last ? now - asking->last : 0;
  if (asking->last && gap < HR_ASKING_BURST) return 0;
  backend_id = flow->id;
  state = bpf_map_lookup_elem(&backend_states, &backend_id);
  heard = (asking->state & HR_ASKING_ANSWERED) || (state && state->last_receive_ns);
  hash = hr_payload_hash(skb, packet);
  if (!asking->opening) asking->opening = hash | 1;
  asking->state &= ~HR_ASKING_OPENING;
  if (asking->opening == (__u16)(hash | 1)) {
    asking->state |= HR_ASKING_OPENING;
    if ((asking->state & HR_ASKING_OPENING_ANSWERED) && (!asking->last || gap >= HR_ASKING_ANEW_MIN)) add = 2;
  }
  if (asking->last && asking->gap && HR_ASKING_LONGER(gap, asking->gap)) add = add ? add : 1;
  if (asking->last && heard && asking->hash == hash >> 16 && gap >= HR_ASKING_SAME_MIN && gap <= HR_ASKING_SAME_MAX)
    add = 2;
  if (!asking->last || !add) {
    asking->since = now;
    asking->repeats = 0;
  }
  asking->repeats += asking->repeats < 250 ? add : 0;
  asking->last = now ? now : 1;
  asking->gap = gap < 0xffff ? gap : 0xffff;
  asking->hash = hash >> 16;
  return asking->repeats >= HR_ASKING_OWED;
}

/* The first datagram of a flow. A global function: it has a stack of its own. */
HR_GLOBAL int hr_flow_opens(struct __sk_buff *skb, struct hr_packet *packet, __u32 service_id, __u64 now_ns) {
  struct hr_flow_key key;
  struct hr_flow *flow;

  if (!packet) return 0;
  hr_flow_key_of(&key, &packet->source, packet->source_port_be, IPPROTO_UDP, HR_FLOW_CONNECTION, service_id);
  flow = hr_flow_look_up(&key, now_ns);
  return flow ? hr_flow_asks(skb, packet, flow, now_ns) : 0;
}

/* Where the flow's wait stands, as hr_note_owed() takes it. */
HR_INLINE __u64 hr_flow_wait(const struct hr_flow *flow, __u32 client, __u64 now_ns) {
  __u64 waited = (__u32)(now_ns >> HR_ASKING_TICK_SHIFT) - flow->asking.since;

  return HR_WAIT(now_ns - (waited << HR_ASKING_TICK_SHIFT), client) |
         (flow->asking.state & HR_ASKING_ANSWERED ? 0 : HR_WAIT_UNPROVED);
}

/* The flow goes on at another backend, which knows nothing of it; `former`: the place that it never had an answer of,
 * or HR_NO_BACKEND. */
HR_INLINE void hr_flow_moves(struct hr_flow *flow, __u32 backend_id, __u32 former) {
  flow->id = backend_id;
  flow->asking.last = 0;
  flow->asking.gap = 0;
  flow->asking.hash = 0;
  flow->asking.state = former == HR_NO_BACKEND ? 0 : (former + 1) << HR_ASKING_FORMER_SHIFT;
}

/*
 * The first answer to a flow that another backend has left without one for more than its suspicion timeout: what waits
 * there is owed an answer. A global function: rare.
 */
HR_GLOBAL int hr_flow_proves(__u32 config_id, __u32 former, __u64 now_ns) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_backend_state *state;
  __u32 backend_id;
  __u64 wait, since;

  if (!config) return 0;
  backend_id = hr_backend_id(config, former);
  state = bpf_map_lookup_elem(&backend_states, &backend_id);
  wait = state ? READ_ONCE(state->wait_since) : 0;
  if (!wait) return 0;
  since = now_ns - hr_silence_limit_ns(config, backend_id) - 1;
  if (since < state->last_receive_ns) since = state->last_receive_ns;
  return hr_prove(backend_id, HR_WAIT(since, HR_WAIT_CLIENT(wait)), hr_is_alone(HR_CONFIG_SERVICE(config_id), now_ns));
}

/* Its backend has sent the flow's client something. */
HR_INLINE void hr_flow_answered(struct hr_flow *flow, __u32 config_id, __u64 now_ns) {
  struct hr_asking *asking = &flow->asking;
  __u32 state = asking->state;

  if (!asking->last) return;
  asking->last = 0;
  if (state & HR_ASKING_ANSWERED) return;
  if (state >> HR_ASKING_FORMER_SHIFT) hr_flow_proves(config_id, (state >> HR_ASKING_FORMER_SHIFT) - 1, now_ns);
  asking->state = HR_ASKING_ANSWERED | (state & HR_ASKING_OPENING ? HR_ASKING_OPENING_ANSWERED : 0);
}
