// SPDX-License-Identifier: Apache-2.0
//
// Open-loop send times from a rate.
#include "bench/load/pacing.h"

#include <cmath>

namespace hedgerow::bench {

// A double holds integers up to 2^53 exactly: in nanoseconds that is 104 days, far beyond any bounded run.
Pacing::Pacing(int64_t start_ns, double rate_per_second)
    : start_ns_(start_ns), interval_ns_(1e9 / rate_per_second) {}

int64_t Pacing::DueNs(uint64_t seq) const {
  return start_ns_ + static_cast<int64_t>(std::floor(static_cast<double>(seq) * interval_ns_));
}

uint64_t Pacing::DueCount(int64_t now_ns) const {
  if (now_ns < start_ns_) return 0;
  auto count = static_cast<uint64_t>(static_cast<double>(now_ns - start_ns_) / interval_ns_) + 1;
  // The division and DueNs() may round differently at the edge; DueNs() is the definition.
  while (count > 0 && DueNs(count - 1) > now_ns) --count;
  while (DueNs(count) <= now_ns) ++count;
  return count;
}

uint64_t Pacing::RequestsIn(double seconds, double rate_per_second) {
  return static_cast<uint64_t>(std::llround(seconds * rate_per_second));
}

}  // namespace hedgerow::bench
