// SPDX-License-Identifier: Apache-2.0
#include "bench/load/pacing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace hedgerow::bench {

// A double holds integers up to 2^53 exactly: in nanoseconds that is 104 days, far beyond any bounded run.
Pacing::Pacing(int64_t start_ns, double rate_per_second) : start_ns_(start_ns), interval_ns_(1e9 / rate_per_second) {}

Pacing Pacing::Poisson(int64_t start_ns, double rate_per_second, uint64_t count, uint64_t seed) {
  Pacing pacing(start_ns, rate_per_second);
  std::mt19937_64 random(seed);
  double at_ns = 0;
  pacing.drawn_ns_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    pacing.drawn_ns_.push_back(static_cast<int64_t>(at_ns));
    // 53 bits of it, so that the uniform number lies in (0, 1].
    at_ns -= std::log(static_cast<double>((random() >> 11) + 1) * 0x1p-53) * pacing.interval_ns_;
  }
  return pacing;
}

int64_t Pacing::DueNs(uint64_t seq) const {
  if (!drawn_ns_.empty())
    return seq < drawn_ns_.size() ? start_ns_ + drawn_ns_[seq] : std::numeric_limits<int64_t>::max();
  return start_ns_ + static_cast<int64_t>(std::floor(static_cast<double>(seq) * interval_ns_));
}

uint64_t Pacing::DueCount(int64_t now_ns) const {
  if (now_ns < start_ns_) return 0;
  if (!drawn_ns_.empty()) {
    return static_cast<uint64_t>(std::upper_bound(drawn_ns_.begin(), drawn_ns_.end(), now_ns - start_ns_) -
                                 drawn_ns_.begin());
  }
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
