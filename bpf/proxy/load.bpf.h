/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The load of each backend: its requests in flight, its answer times by how many they are, and what it reports. A
 * request counts at a backend from its send until the answer, the nack, the deadline, or the end of its retention where
 * another backend has won. A bit in the request says that it counts, so that each is taken back once, by whichever
 * program comes first. Called by the splitter, the clock and the reply program.
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/load.h"
#include "bpf/proxy/steer.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

/*
 * The request's mask is one byte of a word whose other bytes are written by plain stores: an atomic operation that
 * leaves them as they are loses none of those.
 */
#define HR_FLIGHT_SHIFT 24
#define HR_FLIGHTS_OF(request) ((__u32 *)&(request)->flags)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hr_request.in_flight is the high byte of its word on little-endian machines only"
#endif
HR_STATIC_ASSERT(__builtin_offsetof(struct hr_request, flags) % 4 == 0 &&
                     __builtin_offsetof(struct hr_request, in_flight) ==
                         __builtin_offsetof(struct hr_request, flags) + 3,
                 "the fourth byte of an aligned word");

HR_INLINE struct hr_backend_load *hr_backend_load_of(__u32 backend_id) {
  return bpf_map_lookup_elem(&backend_loads, &backend_id);
}

HR_INLINE void hr_flight_end(struct hr_request *request, __u32 place, __u32 backend_id) {
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  __u32 bit = 1u << (HR_FLIGHT_SHIFT + (place & (HR_MAX_BACKENDS_PER_SERVICE - 1)));

  if (!(READ_ONCE(request->in_flight) >> (place & (HR_MAX_BACKENDS_PER_SERVICE - 1)) & 1)) return;
  if (load && (__sync_fetch_and_and(HR_FLIGHTS_OF(request), ~bit) & bit)) __sync_fetch_and_sub(&load->in_flight, 1);
}

/* After a send, which may have been answered already: an answer is noted in the masks before its flight ends. */
HR_INLINE void hr_flight_begin(struct hr_request *request, __u32 place, __u32 backend_id) {
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  __u32 bit = 1u << (HR_FLIGHT_SHIFT + (place & (HR_MAX_BACKENDS_PER_SERVICE - 1)));

  if (!load || (__sync_fetch_and_or(HR_FLIGHTS_OF(request), bit) & bit)) return;
  __sync_fetch_and_add(&load->in_flight, 1);
  if (READ_ONCE(request->masks) & HR_MASKS_ANSWERED(1u << (place & (HR_MAX_BACKENDS_PER_SERVICE - 1))))
    hr_flight_end(request, place, backend_id);
}

/* What a backend really has in hand: not those that were lost. */
HR_INLINE __s32 hr_in_hand(const struct hr_backend_load *load, const struct hr_backend_tuning *tuning) {
  return READ_ONCE(load->in_flight) - READ_ONCE(tuning->lost);
}

/*
 * A new request's first send. Its bit has stood in the request since before that was published, so an answer that came
 * already has taken this back.
 */
HR_INLINE void hr_flight_begin_first(__u32 backend_id) {
  struct hr_backend_load *load = hr_backend_load_of(backend_id);

  if (load) __sync_fetch_and_add(&load->in_flight, 1);
}

/*
 * The request is waited for no longer, wherever it still is. `lost`: those backends have lost it; else a newer request
 * has its key, and their replies are outstanding. A global function: rare.
 */
HR_GLOBAL int hr_flights_end(__u32 config_id, __u32 index, __u32 lost) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_request *request = hr_request_at(index);
  __u64 age_ns;

  if (!request || !config || !READ_ONCE(request->in_flight)) return 0;
  age_ns = hr_now_ns() - request->sent_ns;
  for (__u32 place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; place++) {
    struct hr_backend_load *load = hr_backend_load_of(hr_backend_id(config, place));

    if (!load || !(READ_ONCE(request->in_flight) >> place & 1)) continue;
    hr_flight_end(request, place, hr_backend_id(config, place));
    if (lost) __sync_fetch_and_add(&load->lost_ns, age_ns);
  }
  return 0;
}

/* What it has reported within the last second. */
HR_INLINE __u32 hr_reported_lately(const struct hr_backend_load *load, __u64 now_ns) {
  return now_ns > READ_ONCE(load->reported_ns) + HR_REPORT_LASTS_NS ? 0 : READ_ONCE(load->reported);
}

/* A backend's load at this moment, in 256ths. A global function: its callers' frames are full. */
HR_GLOBAL __u32 hr_load_of(__u32 backend_id, __u64 now_ns) {
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);

  if (!load || !tuning) return 0;
  return hr_load(hr_in_hand(load, tuning), READ_ONCE(tuning->slow_at), hr_reported_lately(load, now_ns));
}

/*
 * Its load without copies at once, as new requests have seen it lately, of which this is one: a server of few workers
 * has none or all of them at work at any moment. A lost update between two CPUs costs one of sixteen looks.
 */
HR_INLINE __u32 hr_load_seen(__u32 backend_id, __u32 copied, __u64 now_ns) {
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);
  __u32 reported, now;

  if (!load || !tuning) return 0;
  reported = hr_reported_without_copies(hr_reported_lately(load, now_ns), copied);
  now = hr_load(hr_in_hand(load, tuning), READ_ONCE(tuning->slow_at), reported);
  load->smoothed = hr_smooth(load->smoothed, now < (1u << 24) ? now << 8 : ~0u, 4);
  return load->smoothed >> 8;
}

/* An answer time that is a fair sample, of a request that still counts as in flight. A lost update costs one sample. */
HR_GLOBAL int hr_load_note(__u32 backend_id, __u64 took_ns) {
  struct hr_backend_tuning *tuning = bpf_map_lookup_elem(&backend_tuning, &backend_id);
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  __u32 level, samples;
  __s32 in_hand;

  if (!load || !tuning) return 0;
  in_hand = hr_in_hand(load, tuning);
  level = hr_load_level(in_hand < 1 ? 1 : in_hand);
  HR_KEEP_BOUND(level);
  if (level >= HR_LOAD_LEVELS) return 0;
  samples = load->samples[level];
  load->median[level] = hr_next_median(load->median[level], samples, took_ns >> 42 ? ~0u : (__u32)(took_ns >> 10));
  load->samples[level] = samples + 1;
  return 0;
}

/* Takes the load that a reply reports of its server. A global function, because it needs a stack of its own. */
HR_GLOBAL int hr_load_reported(struct __sk_buff *skb, __u32 config_id, __u32 backend_id, __u32 payload_offset,
                               __u32 payload_bytes) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_backend_load *load = hr_backend_load_of(backend_id);
  __u8 bytes[2] = {};
  __u32 offset, full = 0xff;

  if (!config || !load) return 0;
  offset = config->profile.load_offset;
  if (offset + config->profile.load_bytes > payload_bytes) return 0;
  if (config->profile.load_bytes == 2) {
    if (bpf_skb_load_bytes(skb, payload_offset + offset, bytes, 2)) return 0;
    full = 0xffff;
  } else if (bpf_skb_load_bytes(skb, payload_offset + offset, bytes + 1, 1)) {
    return 0;
  }
  WRITE_ONCE(load->reported, ((__u32)bytes[0] << 8 | bytes[1]) * HR_LOAD_FULL / full);
  WRITE_ONCE(load->reported_ns, hr_now_ns());
  return 0;
}
