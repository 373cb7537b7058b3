/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How loaded a backend is: how many requests it has in hand (in flight), as a share of how many it has when its answers begin to
 * take longer, or what it reports itself, whichever is more. After Prequal (Wydrowski et al., NSDI 2024), which compares requests in flight
 * and latency, and NetClone (Kim, SIGCOMM 2023), which sends two copies while both servers are idle. Pure: the kernel programs gather
 * (load.bpf.h), the daemon learns where answers slow down, both sides compute the same load.
 */
#pragma once

#include "bpf/abi/request_abi.h"

/* A load in 256ths. Full: as many in flight as slow its answers down, or as it says that it can have. */
#define HR_LOAD_FULL 256

/* What a backend reports counts for so long. */
#define HR_REPORT_LASTS_NS 1000000000ull

/* Before so many answers a level says nothing. */
#define HR_LEVEL_SAMPLES 64

/* Answers are slow from 1.5 times the median of the levels below. */
#define HR_SLOWS_NUMERATOR 3
#define HR_SLOWS_DENOMINATOR 2

/* The level of `in_flight`, which is at least 1: half an octave each: 1, 2, 3, 4 to 5, 6 to 7, 8 to 11, 12 to 15, ... */
HR_INLINE __u32 hr_load_level(__u32 in_flight) {
  __u32 exponent = 0, rest = in_flight, level;

  if (rest >> 16) return HR_LOAD_LEVELS - 1;
  if (rest >> 8) { rest >>= 8; exponent += 8; }
  if (rest >> 4) { rest >>= 4; exponent += 4; }
  if (rest >> 2) { rest >>= 2; exponent += 2; }
  if (rest >> 1) exponent += 1;
  if (!exponent) return 0;
  level = 2 * exponent - 1 + (in_flight >> (exponent - 1) & 1);
  return level < HR_LOAD_LEVELS ? level : HR_LOAD_LEVELS - 1;
}

/* The fewest in flight of a level. */
HR_INLINE __u32 hr_load_level_from(__u32 level) {
  if (!level) return 1;
  return (2 + ((level - 1) & 1)) << ((level - 1) / 2);
}

/*
 * One more answer time of a level: the median, by steps of an eighth at first and of a 64th later (a stochastic approximation: the step
 * up and the step down balance where half of the answers take longer). In units of 1,024 ns.
 */
HR_INLINE __u32 hr_next_median(__u32 median, __u32 samples, __u32 sample) {
  __u32 step;

  if (!median) return sample ? sample : 1;
  step = median >> (samples < HR_LEVEL_SAMPLES / 4 ? 3 : 6);
  if (!step) step = 1;
  if (sample > median) return sample - median < step ? sample : median + step;
  return median - sample <= step ? (sample ? sample : 1) : median - step;
}

/*
 * Requests in flight at which a backend's answers are slow: the fewest of the lowest level from which on each level that says something
 * is slow, by the median of the fastest level below it. 0 = none is. What a level says stands until it is reached again: a
 * level above that is fast again takes back what those below said.
 */
HR_INLINE __u32 hr_slow_at(const struct hr_backend_load *load) {
  __u32 fastest = 0, slow_at = 0;

  for (__u32 level = 0; level < HR_LOAD_LEVELS; level++) {
    const __u64 median = load->median[level];

    if (load->samples[level] < HR_LEVEL_SAMPLES || !median) continue;
    if (!fastest || median * HR_SLOWS_DENOMINATOR < (__u64)fastest * HR_SLOWS_NUMERATOR)
      slow_at = 0;
    else if (!slow_at)
      slow_at = hr_load_level_from(level);
    if (!fastest || median < fastest) fastest = median;
  }
  return slow_at;
}

/* In 256ths of a request. */
HR_INLINE __u32 hr_in_256ths(__s32 in_hand) { return in_hand <= 0 ? 0 : in_hand < (1 << 23) ? (__u32)in_hand << 8 : ~0u; }

/*
 * The average of what the last new requests saw (weight 1/16). A server with few workers has none or all of them at work at any
 * moment; how loaded it is, several moments show.
 */
HR_INLINE __u32 hr_smooth(__u32 smoothed, __s32 in_hand) {
  const __u32 now = hr_in_256ths(in_hand);

  return now > smoothed ? smoothed + ((now - smoothed + 15) >> 4) : smoothed - ((smoothed - now + 15) >> 4);
}

/*
 * A backend's load. `in_hand`: requests in 256ths, now or smoothed. `slow_at`: how many there are when its answers are slow; 0 = not known,
 * so they count for none.
 */
HR_INLINE __u32 hr_load(__u32 in_hand, __u32 slow_at, __u32 reported, __u64 reported_ns, __u64 now_ns) {
  const __u32 own = slow_at ? in_hand / slow_at : 0;

  if (now_ns > reported_ns + HR_REPORT_LASTS_NS || reported <= own) return own;
  return reported;
}

/*
 * Is a backend with this load idle? Up to `share` it is, from twice that it is not, and between it is with a probability that falls: several
 * proxies that see the same load do not all send and all stop at once. `random`: any 32 bits.
 */
HR_INLINE int hr_load_is_idle(__u32 load, __u32 share, __u32 random) {
  if (load <= share) return share != 0;
  if (load >= 2 * share) return 0;
  return (random & 0xffff) * share >> 16 >= load - share;
}
