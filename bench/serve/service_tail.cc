// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/service_tail.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/serve/mix.h"

namespace hedgerow::bench {
namespace {

double ParetoMean(double shape, double shortest, double longest) {
  const double all = 1 - std::pow(shortest / longest, shape);
  return std::pow(shortest, shape) / all * shape / (shape - 1) *
         (std::pow(shortest, 1 - shape) - std::pow(longest, 1 - shape));
}

}  // namespace

ServiceTail::ServiceTail(int64_t base_ns, int64_t tail_mean_ns, uint64_t seed)
    : base_ns_(base_ns), tail_mean_ns_(static_cast<double>(tail_mean_ns)), seed_(Mix(seed)) {}

absl::StatusOr<ServiceTail> ServiceTail::BoundedPareto(int64_t mean_ns, double shape, int64_t longest_ns,
                                                       uint64_t seed) {
  if (!(shape > 1 && shape <= 10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape of a Pareto distribution with a mean is above 1 and at "
                     "most 10, not ",
                     shape));
  }
  if (mean_ns <= 0 || longest_ns <= mean_ns) {
    return absl::InvalidArgumentError("the longest time is longer than the mean, which is positive");
  }
  ServiceTail tail(0, 0, seed);
  tail.shape_ = shape;
  tail.longest_ns_ = static_cast<double>(longest_ns);
  // The mean grows with the shortest time, and is longer than it.
  double low = 1;
  double high = static_cast<double>(mean_ns);
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (ParetoMean(shape, middle, tail.longest_ns_) < static_cast<double>(mean_ns) ? low : high) = middle;
  }
  tail.shortest_ns_ = low;
  return tail;
}

int64_t ServiceTail::ServiceTimeNs(uint32_t id) const {
  // 53 bits of it, so that the uniform number lies in (0, 1].
  const double uniform = static_cast<double>((Mix(seed_ ^ id) >> 11) + 1) * 0x1p-53;
  if (shape_ > 0) {
    // The inverse of the distribution function, of a uniform number in [0, 1).
    const double all = 1 - std::pow(shortest_ns_ / longest_ns_, shape_);
    return static_cast<int64_t>(shortest_ns_ * std::pow(1 - (1 - uniform) * all, -1 / shape_));
  }
  return base_ns_ + static_cast<int64_t>(-std::log(uniform) * tail_mean_ns_);
}

}  // namespace hedgerow::bench
