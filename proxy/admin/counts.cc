// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/counts.h"

#include <algorithm>

namespace hedgerow {

v1::Durations ToDurations(const Histogram& histogram) {
  v1::Durations out;
  for (uint32_t i = 0; i < HR_HISTOGRAM_BUCKETS; ++i) {
    if (histogram.buckets[i] == 0) continue;
    out.add_buckets(i);
    out.add_counts(histogram.buckets[i]);
  }
  out.set_sum_ns(histogram.sum_ns);
  out.set_max_ns(histogram.max_ns);
  return out;
}

Histogram FromDurations(const v1::Durations& durations) {
  Histogram histogram;
  const int buckets = std::min(durations.buckets_size(), durations.counts_size());
  for (int i = 0; i < buckets; ++i) {
    if (durations.buckets(i) < HR_HISTOGRAM_BUCKETS) histogram.buckets[durations.buckets(i)] = durations.counts(i);
  }
  histogram.sum_ns = durations.sum_ns();
  histogram.max_ns = durations.max_ns();
  return histogram;
}

v1::Counts BuildCounts(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot,
                       const std::vector<ProgramInfo>& programs) {
  v1::Counts out;
  out.set_taken_ns(static_cast<int64_t>(snapshot.taken_ns));
  *out.mutable_status() = BuildStatus(config, facts, snapshot);
  const int services = std::min<int>(config.services_size(), static_cast<int>(snapshot.services.size()));
  for (int i = 0; i < services; ++i) {
    v1::ServiceCounts& service = *out.add_services();
    service.set_name(config.services(i).name());
    service.set_budget_ppm(static_cast<uint32_t>(config.services(i).budget_ppm()));
    *service.mutable_latency() = ToDurations(snapshot.services[i].latency);
    for (const BackendSnapshot& backend : snapshot.services[i].backends)
      *service.add_answers() = ToDurations(backend.answer_times);
  }
  for (const ProgramInfo& program : programs) {
    v1::ProgramCounts& counts = *out.add_programs();
    counts.set_name(program.name);
    counts.set_runs(program.run_count);
    counts.set_run_time_ns(program.run_time_ns);
    counts.set_verified_instructions(program.verified_instructions);
  }
  return out;
}

}  // namespace hedgerow
