// SPDX-License-Identifier: Apache-2.0
//
// Answer times with a tail: a constant part and an exponential one, drawn from a request's id. Two servers with
// different seeds are slow for different requests, which is what makes a hedge worth sending. Used by the tail
// server.
#pragma once

#include <cstdint>

namespace hedgerow::bench {

class ServiceTail {
 public:
  ServiceTail(int64_t base_ns, int64_t tail_mean_ns, uint64_t seed);

  int64_t ServiceTimeNs(uint32_t id) const;

 private:
  int64_t base_ns_;
  double tail_mean_ns_;
  uint64_t seed_;
};

}  // namespace hedgerow::bench
