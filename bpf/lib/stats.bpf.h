/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counting. A program looks its service's counters up once and passes the pointer on; adding is then a plain add,
 * since the values are per CPU and programs run with bottom halves off.
 */
#ifndef HEDGEROW_BPF_LIB_STATS_BPF_H_
#define HEDGEROW_BPF_LIB_STATS_BPF_H_

#include "bpf/lib/maps.bpf.h"

/* Counters of a service; HR_MAX_SERVICES for what belongs to none. NULL only for an index out of range. */
HR_INLINE struct hr_stats *hr_stats_of(__u32 service) { return bpf_map_lookup_elem(&stats, &service); }

HR_INLINE void hr_count(struct hr_stats *service_stats, enum hr_counter counter) {
  if (service_stats) service_stats->counters[counter]++;
}

HR_INLINE void hr_reason(struct hr_stats *service_stats, __u32 reason) {
  if (service_stats && reason < HR_REASON_COUNT) service_stats->reasons[reason]++;
}

/* A reason that belongs to no service. */
HR_INLINE void hr_host_reason(__u32 reason) { hr_reason(hr_stats_of(HR_MAX_SERVICES), reason); }

HR_INLINE void hr_record(void *histograms, __u32 index, __u64 duration_ns) {
  struct hr_histogram *histogram = bpf_map_lookup_elem(histograms, &index);
  __u32 bucket = hr_histogram_bucket(duration_ns);

  if (!histogram || bucket >= HR_HISTOGRAM_BUCKETS) return;
  histogram->buckets[bucket]++;
  histogram->sum_ns += duration_ns;
  if (duration_ns > histogram->max_ns) histogram->max_ns = duration_ns;
}

HR_INLINE void hr_record_service(__u32 service, enum hr_service_histogram kind, __u64 duration_ns) {
  hr_record(&service_histograms, service * HR_SERVICE_HISTOGRAMS + kind, duration_ns);
}

#endif /* HEDGEROW_BPF_LIB_STATS_BPF_H_ */
