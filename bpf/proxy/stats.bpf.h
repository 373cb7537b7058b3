/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counting. A program looks its service's counters up once and passes the pointer on; adding is then a plain add,
 * since the values are per CPU and programs run with bottom halves off.
 */
#pragma once

#include "bpf/proxy/time.bpf.h"

/* Counters of a service; HR_MAX_SERVICES for what belongs to none. NULL only for an index out of range. */
HR_INLINE struct hr_stats *hr_stats_of(__u32 service) { return bpf_map_lookup_elem(&stats, &service); }

HR_INLINE void hr_count(struct hr_stats *service_stats, enum hr_counter counter) {
  if (service_stats) service_stats->counters[counter]++;
}

HR_INLINE void hr_reason(struct hr_stats *service_stats, __u32 reason) {
  if (!__builtin_constant_p(reason)) HR_KEEP_BOUND(reason);
  if (service_stats && reason < HR_REASON_COUNT) service_stats->reasons[reason]++;
}

/* A reason that belongs to no service. */
HR_INLINE void hr_host_reason(__u32 reason) { hr_reason(hr_stats_of(HR_MAX_SERVICES), reason); }

HR_INLINE void hr_record(struct hr_histogram *histogram, __u64 duration_ns) {
  __u32 bucket = hr_histogram_bucket(duration_ns);

  if (!histogram || bucket >= HR_HISTOGRAM_BUCKETS) return;
  histogram->buckets[bucket]++;
  histogram->sum_ns += duration_ns;
  if (duration_ns > histogram->max_ns) histogram->max_ns = duration_ns;
}

/* Global functions: the search for the bucket is verified once. */
HR_GLOBAL int hr_record_service(__u32 service, __u32 kind, __u64 duration_ns) {
  __u32 index = service * HR_SERVICE_HISTOGRAMS + kind;

  hr_record(bpf_map_lookup_elem(&service_histograms, &index), duration_ns);
  return 0;
}

HR_GLOBAL int hr_record_backend(__u32 backend_id, __u32 kind, __u64 duration_ns) {
  __u32 index = backend_id * HR_BACKEND_HISTOGRAMS + kind;

  hr_record(bpf_map_lookup_elem(&backend_histograms, &index), duration_ns);
  return 0;
}

HR_INLINE void hr_count_backend(__u32 backend_id, enum hr_backend_counter counter) {
  struct hr_backend_stats *backend = bpf_map_lookup_elem(&backend_stats, &backend_id);

  if (backend) backend->counters[counter]++;
}
