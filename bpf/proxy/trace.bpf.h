/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The events of a request, for a tracer. Without a tracer, a place that could emit one reads one word (hr_tracing());
 * that is the whole cost. All else stands in global functions, which have stack frames of their own, because hr_reply's
 * frame is full. Called by every program that decides something about a request.
 */
#pragma once

#include "bpf/abi/trace_abi.h"
#include "bpf/proxy/profile.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

/* The tracer's ring is made when it comes and gone when it goes: without a tracer events cost no memory. */
struct hr_trace_ring {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096); /* of the pattern that other rings are compared with; each has its own size */
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, __u32);
  __array(values, struct hr_trace_ring);
} trace_rings SEC(".maps") __weak;

/* What an event says, in one word: kind, reason, backend, flags. */
#define HR_TRACE_WHAT(kind, reason, backend, flags) \
  ((__u32)(kind) | (__u32)(reason) << 8 | (__u32)(backend) << 16 | (__u32)(flags) << 24)

HR_INLINE int hr_tracing(void) { return READ_ONCE(hr_live.trace.lease_ns) != 0; }

/* Of requests: a filter that matches none costs the splitter one comparison of each, and other programs nothing. */
HR_INLINE int hr_tracing_requests(void) { return hr_tracing() && READ_ONCE(hr_live.trace.matched); }

/* Does the tracer's lease hold? The first program that finds it expired clears it. */
HR_INLINE int hr_trace_alive(__u64 now_ns) {
  __u64 lease_ns = READ_ONCE(hr_live.trace.lease_ns);

  if (now_ns < lease_ns) return 1;
  /* Only this lease: another may be written at the same time. */
  if (lease_ns) __sync_val_compare_and_swap(&hr_live.trace.lease_ns, lease_ns, 0);
  return 0;
}

/* May events of one more request be emitted in this window? */
HR_INLINE int hr_trace_admit(__u64 now_ns) {
  __u64 window = now_ns >> HR_TRACE_WINDOW_SHIFT;
  __u64 before = READ_ONCE(hr_live.trace.window);

  if (before != window && __sync_val_compare_and_swap(&hr_live.trace.window, before, window) == before)
    __sync_lock_test_and_set(&hr_live.trace.admitted, 0);
  if (__sync_fetch_and_add(&hr_live.trace.admitted, 1) < hr_live.trace.filter.rate) return 1;
  __sync_fetch_and_add(&hr_live.trace.requests_lost, 1);
  return 0;
}

HR_INLINE struct hr_trace_event *hr_trace_reserve(void) {
  struct hr_trace_event *event = 0;
  __u32 zero = 0;
  void *ring = bpf_map_lookup_elem(&trace_rings, &zero);

  if (ring) event = bpf_ringbuf_reserve(ring, sizeof(*event), 0);
  if (!event) __sync_fetch_and_add(&hr_live.trace.events_lost, 1);
  return event;
}

/* Without a wake-up, because the daemon polls the ring while a client listens. */
HR_INLINE void hr_trace_submit(struct hr_trace_event *event, const struct hr_service_config *config, __u32 what,
                               __u64 now_ns) {
  event->key.pad = config->profile.request_correlation.length;
  event->time_ns = now_ns;
  event->kind = what;
  event->reason = what >> 8;
  event->backend = what >> 16;
  event->flags = what >> 24;
  event->session = hr_live.trace.session;
  bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

HR_INLINE __u32 hr_trace_backends(__u32 service_id) {
  HR_KEEP_BOUND(service_id);
  return hr_live.trace.filter.backends[service_id & (HR_MAX_SERVICES - 1)];
}

/* Compares client, port and service. The caller compares the key, which it has in one form or another. */
HR_INLINE int hr_trace_is_asked_about(const struct hr_address *client, __u16 client_port_be, __u32 service_id) {
  const struct hr_trace_filter *filter = &hr_live.trace.filter;

  if (!hr_trace_backends(service_id)) return 0;
  if (filter->client_port_be && filter->client_port_be != client_port_be) return 0;
  return (client->halves[0] & filter->client_mask.halves[0]) == filter->client.halves[0] &&
         (client->halves[1] & filter->client_mask.halves[1]) == filter->client.halves[1];
}

HR_INLINE int hr_trace_is_the_key(const __u8 correlation[HR_CORRELATION_BYTES]) {
  const struct hr_trace_filter *filter = &hr_live.trace.filter;
  const __u64 *words = (const __u64 *)correlation;

  return (words[0] & filter->key_mask[0]) == filter->key[0] && (words[1] & filter->key_mask[1]) == filter->key[1];
}

/*
 * Correlation bytes of the packet in hand; what is not there is zeros. Those without a fixed place the caller has
 * located: a call of hr_locate() from here would be beyond the 512 bytes of stack of a chain.
 */
HR_INLINE void hr_trace_key(struct __sk_buff *skb, const struct hr_packet *packet, const struct hr_field *field,
                            __u8 correlation[HR_CORRELATION_BYTES]) {
  if (field->pairing < HR_PAIR_PATH)
    hr_read_correlation(skb, hr_payload_of(packet), field, correlation);
  else
    hr_take_located(correlation);
}

/* The filter, once for each request: sets packet->trace to the tracer's session. Called by hr_trace_request(). */
HR_GLOBAL int hr_trace_match(struct __sk_buff *skb, struct hr_packet *packet, __u32 config_id, __u64 now_ns) {
  if (!packet || !hr_trace_alive(now_ns)) return 0;
  if (!hr_trace_is_asked_about(&packet->source, packet->source_port_be, HR_CONFIG_SERVICE(config_id))) return 0;
  if (hr_live.trace.filter.key_mask[0]) {
    struct hr_service_config *config = hr_config_of(config_id);
    struct hr_request_key key = {};

    if (!config) return 0;
    hr_trace_key(skb, packet, &config->profile.request_correlation, key.correlation);
    if (!hr_trace_is_the_key(key.correlation)) return 0;
  }
  if (!hr_live.trace.matched) WRITE_ONCE(hr_live.trace.matched, 1); /* its cache line is every processor's */
  packet->trace = hr_live.trace.session;
  return 0;
}

/* A request comes, while there is a tracer. The packet is as the client sent it. */
HR_INLINE void hr_trace_request(struct __sk_buff *skb, struct hr_packet *packet, const struct hr_service_config *config,
                                __u32 config_id, __u64 now_ns) {
  if (config->profile.request_correlation.pairing >= HR_PAIR_PATH)
    hr_locate(skb, config_id, hr_payload_of(packet).offset, packet->payload_bytes, 0);
  hr_trace_match(skb, packet, config_id, now_ns);
}

/* Does the request pass the filter by now? Asked at each event until it does. */
HR_INLINE int hr_trace_is_wanted(const struct hr_request *request, __u64 now_ns) {
  __u32 sent_mask = HR_SENT_MASK(READ_ONCE(request->masks));

  if (!(sent_mask & hr_trace_backends(request->key.service))) return 0;
  if (hr_live.trace.filter.only_hedged && !(sent_mask & (sent_mask - 1))) return 0;
  return now_ns - request->sent_ns >= hr_live.trace.filter.slower_ns;
}

/* Emits an event of a tracked request; see HR_TRACE_WHAT. */
HR_GLOBAL int hr_trace_event(__u32 index, __u32 config_id, __u32 what) {
  struct hr_request *request = hr_request_at(index);
  struct hr_trace_event *event;
  struct hr_service_config *config;
  __u64 now_ns, word;

  if (!request || !request->trace || request->trace != (__u8)hr_live.trace.session) return 0;
  now_ns = hr_now_ns();
  if (!hr_trace_alive(now_ns) || request->trace_emitted >= HR_TRACE_EVENTS_PER_REQUEST) return 0;
  if (!request->trace_emitted) {
    if (!hr_trace_is_wanted(request, now_ns)) return 0;
    if (!hr_trace_admit(now_ns)) {
      request->trace = 0; /* all events of a request or none */
      return 0;
    }
  }
  config = hr_config_of(config_id);
  if (!config) return 0;
  request->trace_emitted++;
  event = hr_trace_reserve();
  if (!event) return 0;
  word = READ_ONCE(request->word);
  event->request = (word & 0xffffffff00000000ull) | index;
  event->key = request->key;
  event->sent_ns = request->sent_ns;
  event->due_ns = request->due_ns;
  event->fire_ns = request->fire_ns;
  event->masks = request->masks;
  event->bytes = request->parked_bytes;
  event->state = HR_WORD_STATE(word);
  event->winner = HR_WORD_WINNER(word);
  event->first = request->first;
  event->attempts = request->attempts;
  event->sequence = request->trace_emitted;
  hr_trace_submit(event, config, what, now_ns);
  return 0;
}

/*
 * Emits the event of a packet that has no tracked request: a request that is passed through to a backend, or a
 * backend's datagram that answers no tracked request. Each is one event, and counts against the rate.
 */
HR_GLOBAL int hr_trace_untracked(struct __sk_buff *skb, struct hr_packet *packet, __u32 config_id, __u32 what) {
  struct hr_service_config *config = hr_config_of(config_id);
  int passed = (what & 0xff) == HR_TRACE_PASSED, late = (what & 0xff) == HR_TRACE_DROPPED;
  __u64 now_ns = hr_now_ns();
  struct hr_request_key key = {};
  struct hr_trace_event *event;
  __u32 service_id = HR_CONFIG_SERVICE(config_id);

  if (!packet || !config || !hr_trace_alive(now_ns)) return 0;
  /* What is dropped without a request is the loser of a hedge, long after. Nothing else here was hedged, or was slow.
   */
  if (!late && (hr_live.trace.filter.only_hedged || hr_live.trace.filter.slower_ns)) return 0;
  key.client = passed ? packet->source : packet->destination;
  key.client_port_be = passed ? packet->source_port_be : packet->destination_port_be;
  key.service = service_id;
  hr_trace_key(skb, packet, passed ? &config->profile.request_correlation : &config->profile.reply_correlation,
               key.correlation);
  if (!hr_trace_is_asked_about(&key.client, key.client_port_be, service_id) || !hr_trace_is_the_key(key.correlation) ||
      !(hr_trace_backends(service_id) & (1u << ((what >> 16) & (HR_MAX_BACKENDS_PER_SERVICE - 1)))))
    return 0;
  if (!hr_trace_admit(now_ns)) return 0;
  event = hr_trace_reserve();
  if (!event) return 0;
  __builtin_memset(event, 0, sizeof(*event));
  event->key = key;
  event->sent_ns = now_ns;
  event->bytes = packet->l3_bytes;
  event->winner = HR_NO_BACKEND;
  event->first = what >> 16;
  event->attempts = 1;
  event->sequence = 1;
  hr_trace_submit(event, config, what, now_ns);
  return 0;
}

/* ---- What the programs call: each one line at the place where the thing happens ---------------------------------- */

HR_INLINE void hr_trace_note(__u32 request, __u32 config_id, __u32 kind, __u32 reason, __u32 backend, __u32 flags) {
  if (hr_tracing_requests()) hr_trace_event(request, config_id, HR_TRACE_WHAT(kind, reason, backend, flags));
}
