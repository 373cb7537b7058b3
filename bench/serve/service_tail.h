// SPDX-License-Identifier: Apache-2.0
//
// Answer times with a tail, drawn from a request's id: a constant part and an exponential one, or a bounded
// Pareto distribution. Two servers with different seeds are slow for different requests, which is what makes a
// hedge worth sending. Used by the echo server.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

class ServiceTail {
 public:
  ServiceTail(int64_t base_ns, int64_t tail_mean_ns, uint64_t seed);

  // Heavy: of x >= the shortest time, as many take longer than x as x^-shape, up to `longest_ns`. The shortest
  // time follows from the mean. An error where the parts do not fit together.
  static absl::StatusOr<ServiceTail> BoundedPareto(int64_t mean_ns, double shape, int64_t longest_ns, uint64_t seed);

  int64_t ServiceTimeNs(uint32_t id) const;

 private:
  int64_t base_ns_;
  double tail_mean_ns_;
  uint64_t seed_;
  // Bounded Pareto, where the shape is not 0.
  double shape_ = 0;
  double shortest_ns_ = 0;
  double longest_ns_ = 0;
};

}  // namespace hedgerow::bench
