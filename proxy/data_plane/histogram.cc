// SPDX-License-Identifier: Apache-2.0
//
// User space's half of the log-linear histograms: merging and quantiles.
#include <algorithm>
#include <cmath>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

uint64_t Histogram::Count() const {
  uint64_t count = 0;
  for (uint64_t bucket : buckets) count += bucket;
  return count;
}

uint64_t Histogram::QuantileNs(double q) const {
  const uint64_t count = Count();
  if (count == 0) return 0;
  // The rank of the quantile, counted from 1.
  const uint64_t rank =
      std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(q * static_cast<double>(count))), 1, count);
  uint64_t seen = 0;
  for (uint32_t i = 0; i < HR_HISTOGRAM_BUCKETS; ++i) {
    seen += buckets[i];
    if (seen < rank) continue;
    if (i + 1 == HR_HISTOGRAM_BUCKETS) return max_ns;
    return std::min<uint64_t>(hr_histogram_lower_ns(i + 1), max_ns);
  }
  return max_ns;
}

Histogram Histogram::Since(const Histogram& earlier) const {
  Histogram difference = *this;
  for (uint32_t i = 0; i < HR_HISTOGRAM_BUCKETS; ++i) difference.buckets[i] -= earlier.buckets[i];
  difference.sum_ns -= earlier.sum_ns;
  return difference;
}

void Histogram::Add(const Histogram& other) {
  for (uint32_t i = 0; i < HR_HISTOGRAM_BUCKETS; ++i) buckets[i] += other.buckets[i];
  sum_ns += other.sum_ns;
  max_ns = std::max(max_ns, other.max_ns);
}

}  // namespace hedgerow
