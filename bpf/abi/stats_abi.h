/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters, reasons and histograms, kept per CPU by the kernel programs and summed by user space. counters_abi.h and
 * reasons_abi.h list them.
 */
#pragma once

#include "bpf/abi/base_abi.h"
#include "bpf/abi/counters_abi.h"
#include "bpf/abi/reasons_abi.h"

#define HR_ENUMERATOR(number, enumerator, ...) enumerator = number,
enum hr_counter { HR_COUNTERS(HR_ENUMERATOR) HR_COUNTER_COUNT = 40 };
enum hr_reason { HR_REASON_NONE = 0, HR_REASONS(HR_ENUMERATOR) HR_REASON_COUNT = 96 };
#undef HR_ENUMERATOR

/* Map `stats`, per CPU; index = service id, and HR_MAX_SERVICES for what belongs to no service. */
struct hr_stats {
  __u64 counters[HR_COUNTER_COUNT];
  __u64 reasons[HR_REASON_COUNT];
};
HR_STATIC_ASSERT(sizeof(struct hr_stats) == 1088, "hr_stats is 17 cache lines");

/*
 * Log-linear histogram of durations: unit 64 ns, 16 linear buckets an octave (6.25 % wide), up to 2^29 units
 * (34 s); what is longer lands in the last bucket.
 */
#define HR_HISTOGRAM_UNIT_SHIFT 6
#define HR_HISTOGRAM_SUB_SHIFT 4
#define HR_HISTOGRAM_MAX_EXPONENT 29
#define HR_HISTOGRAM_BUCKETS ((HR_HISTOGRAM_MAX_EXPONENT - HR_HISTOGRAM_SUB_SHIFT + 2) << HR_HISTOGRAM_SUB_SHIFT)

/* Map `backend_stats`, per CPU; index = backend id. */
enum hr_backend_counter {
  HR_BACKEND_SENDS, /* datagrams sent to it, copies included */
  HR_BACKEND_WINS,
  HR_BACKEND_UNANSWERED, /* first sends not answered before their deadline, or their retention when another won */
  HR_BACKEND_COUNTERS,
};
struct hr_backend_stats {
  __u64 counters[HR_BACKEND_COUNTERS];
};

struct hr_histogram {
  __u64 buckets[HR_HISTOGRAM_BUCKETS];
  __u64 sum_ns;
  __u64 max_ns;
};
HR_STATIC_ASSERT(HR_HISTOGRAM_BUCKETS == 432, "432 buckets");

/* Map `service_histograms`, per CPU; index = service id * HR_SERVICE_HISTOGRAMS + kind. */
enum hr_service_histogram {
  HR_HISTOGRAM_LATENCY = 0,    /* request seen by the splitter -> first answer given to the client */
  HR_HISTOGRAM_FIRE_ERROR = 1, /* copy handed to the uplink - due */
  HR_SERVICE_HISTOGRAMS = 2,
};
/* Map `backend_histograms`, per CPU; index = backend id * HR_BACKEND_HISTOGRAMS + kind. */
enum hr_backend_histogram {
  HR_HISTOGRAM_ANSWERS = 0,   /* answer times of first attempts sent while healthy */
  HR_HISTOGRAM_HELD_BACK = 1, /* those of them that a pause held back; recorded after HR_HISTOGRAM_ANSWERS */
  HR_HISTOGRAM_PAUSES = 2, /* silences longer than suspect_min, one sample each, however many answers they held back */
  HR_BACKEND_HISTOGRAMS = 3,
};

/* Bucket of a duration. Pure; compiled by both sides. */
HR_INLINE __u32 hr_histogram_bucket(__u64 duration_ns) {
  __u64 units = duration_ns >> HR_HISTOGRAM_UNIT_SHIFT;
  __u32 exponent;

  if (units < (1u << HR_HISTOGRAM_SUB_SHIFT)) return (__u32)units;
  if (units >> (HR_HISTOGRAM_MAX_EXPONENT + 1)) return HR_HISTOGRAM_BUCKETS - 1;
  exponent = hr_log2(units);
  return ((exponent - HR_HISTOGRAM_SUB_SHIFT + 1) << HR_HISTOGRAM_SUB_SHIFT) +
         (__u32)((units >> (exponent - HR_HISTOGRAM_SUB_SHIFT)) & ((1u << HR_HISTOGRAM_SUB_SHIFT) - 1));
}

/* Smallest duration that falls into a bucket, in ns. */
HR_INLINE __u64 hr_histogram_lower_ns(__u32 bucket) {
  __u32 octave = bucket >> HR_HISTOGRAM_SUB_SHIFT;
  __u64 sub = bucket & ((1u << HR_HISTOGRAM_SUB_SHIFT) - 1);

  if (octave == 0) return sub << HR_HISTOGRAM_UNIT_SHIFT;
  return ((1ull << HR_HISTOGRAM_SUB_SHIFT) + sub) << (octave - 1 + HR_HISTOGRAM_UNIT_SHIFT);
}
