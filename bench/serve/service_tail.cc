// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/service_tail.h"

#include <cmath>

namespace hedgerow::bench {
namespace {

// The finaliser of SplitMix64, as in stall_rule.cc.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

ServiceTail::ServiceTail(int64_t base_ns, int64_t tail_mean_ns, uint64_t seed)
    : base_ns_(base_ns), tail_mean_ns_(static_cast<double>(tail_mean_ns)), seed_(Mix(seed)) {}

int64_t ServiceTail::ServiceTimeNs(uint32_t id) const {
  // 53 bits of it, so that the uniform number lies in (0, 1].
  const double uniform = static_cast<double>((Mix(seed_ ^ id) >> 11) + 1) * 0x1p-53;
  return base_ns_ + static_cast<int64_t>(-std::log(uniform) * tail_mean_ns_);
}

}  // namespace hedgerow::bench
