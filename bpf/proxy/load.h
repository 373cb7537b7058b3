/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How loaded a backend is: how many requests it has in hand (in flight), as a share of how many it has when its answers
 * begin to take longer, or what it reports itself, whichever is more. After Prequal (Wydrowski et al., NSDI 2024),
 * which compares requests in flight and latency, and NetClone (Kim, SIGCOMM 2023), which sends two copies while both
 * servers are idle. Pure: the kernel programs gather (load.bpf.h), the daemon learns where answers slow down, both
 * sides compute the same load.
 */
#pragma once

#include "bpf/abi/request_abi.h"

/* A load in 256ths. Full: as many in flight as slow its answers down, or as it says that it can have. */
#define HR_LOAD_FULL 256

/* What a backend reports counts for so long. */
#define HR_REPORT_LASTS_NS 1000000000ull

/* Before so many answers a level says nothing. */
#define HR_LEVEL_SAMPLES 64

/* Answers are slow from 4/3 of what they take at the levels below. */
#define HR_SLOWS_NUMERATOR 4
#define HR_SLOWS_DENOMINATOR 3

/* The level of `in_flight`, which is at least 1: a quarter octave each: 1, 2, 3, 4, 5, 6, 7, 8 to 9, 10 to 11, ... */
HR_INLINE __u32 hr_load_level(__u32 in_flight) {
  __u32 exponent, level;

  if (in_flight < 4) return in_flight - 1;
  exponent = hr_log2(in_flight);
  level = 4 * exponent - 5 + (in_flight >> (exponent - 2) & 3);
  return level < HR_LOAD_LEVELS ? level : HR_LOAD_LEVELS - 1;
}

/* The fewest in flight of a level. */
HR_INLINE __u32 hr_load_level_from(__u32 level) {
  if (level < 3) return level + 1;
  return (4 + ((level - 3) & 3)) << ((level - 3) / 4);
}

/*
 * One more answer time of a level: the median, by steps of an eighth at first and of a 128th later (a stochastic
 * approximation: the step up and the step down balance where half of the answers take longer). In units of 1,024 ns.
 */
HR_INLINE __u32 hr_next_median(__u32 median, __u32 samples, __u32 sample) {
  __u32 step;

  if (!median) return sample ? sample : 1;
  step = median >> (samples < HR_LEVEL_SAMPLES / 4 ? 3 : samples < 8 * HR_LEVEL_SAMPLES ? 6 : 7);
  if (!step) step = 1;
  if (sample > median) return sample - median < step ? sample : median + step;
  return median - sample <= step ? (sample ? sample : 1) : median - step;
}

/*
 * Requests in flight at which a backend's answers are slow: the fewest of the lowest level from which on each level
 * that says something is slow, by the average of those that are not; 0 = none is. One such level alone may be chance:
 * it takes two. What a level says stands until it is reached again: a level above that is fast again takes back what
 * those below said.
 */
HR_INLINE __u32 hr_slow_at(const struct hr_backend_load *load) {
  __u32 fast_levels = 0, slow_levels = 0, slow_at = 0;
  __u64 fast_sum = 0;

  for (__u32 level = 0; level < HR_LOAD_LEVELS; level++) {
    const __u64 median = load->median[level];

    if (load->samples[level] < HR_LEVEL_SAMPLES || !median) continue;
    if (fast_levels && median * HR_SLOWS_DENOMINATOR * fast_levels >= fast_sum * HR_SLOWS_NUMERATOR) {
      if (!slow_levels++) slow_at = hr_load_level_from(level);
      continue;
    }
    fast_sum += median;
    fast_levels++;
    slow_levels = 0;
  }
  return slow_levels > 1 ? slow_at : 0;
}

/* A share of a load that several moments show better than one: the average of the last looks, weight 1/2^shift. */
HR_INLINE __u32 hr_smooth(__u32 smoothed, __u32 now, __u32 shift) {
  const __u32 round = (1u << shift) - 1;

  return now > smoothed ? smoothed + ((now - smoothed + round) >> shift)
                        : smoothed - ((smoothed - now + round) >> shift);
}

/*
 * What a server reports has the copies in it that this proxy and others like it send at once: without those it is so
 * much. `copied`: the share of this proxy's requests that leave with a copy, in 65,536ths.
 */
HR_INLINE __u32 hr_reported_without_copies(__u32 reported, __u32 copied) {
  return reported ? ((__u64)reported << 16) / (65536 + (__u64)copied) : 0;
}

/*
 * A backend's load. `slow_at`: in flight when its answers are slow; 0 = not known, so they count for none. `reported`:
 * 0 also if that is old.
 */
HR_INLINE __u32 hr_load(__s32 in_hand, __u32 slow_at, __u32 reported) {
  __u32 own = 0;

  if (slow_at && in_hand > 0) own = in_hand < (1 << 20) ? ((__u32)in_hand << 8) / slow_at : 1 << 28;
  return reported > own ? reported : own;
}

/* From half as much again as `share` on, a backend is never idle. */
HR_INLINE int hr_load_is_busy(__u32 load, __u32 share) { return 2 * (__u64)load >= 3 * (__u64)share; }

/*
 * Is a backend with this load idle? Up to `share` it is, from half as much again that it is not, and between it is with
 * a probability that falls: several proxies that see the same load do not all send and all stop at once. `random`: any
 * 32 bits.
 */
HR_INLINE int hr_load_is_idle(__u32 load, __u32 share, __u32 random) {
  if (load <= share) return share != 0;
  if (hr_load_is_busy(load, share)) return 0;
  return (random & 0xffff) * share >> 16 >= 2 * (load - share);
}
