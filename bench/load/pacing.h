// SPDX-License-Identifier: Apache-2.0
//
// When each request of an open-loop run is meant to leave. The times are fixed before the first send and never
// move: a generator that waits for answers before it sends again measures itself (coordinated omission), so
// latency is counted from these times, however late the send really was. Used by the load engine.
#pragma once

#include <cstdint>
#include <vector>

namespace hedgerow::bench {

class Pacing {
 public:
  // `rate_per_second` > 0. Request 0 is due at `start_ns`.
  Pacing(int64_t start_ns, double rate_per_second);

  // As often on average, at independent times: exponential gaps, the same for the same seed. Of
  // `count` requests; those beyond are never due.
  static Pacing Poisson(int64_t start_ns, double rate_per_second, uint64_t count, uint64_t seed);

  // When request `seq` is due. Computed from seq each time, not by adding intervals, so that rounding never
  // adds up.
  int64_t DueNs(uint64_t seq) const;

  // How many requests are due by `now_ns` (those with DueNs(seq) <= now_ns).
  uint64_t DueCount(int64_t now_ns) const;

  // How many requests a run of `seconds` has.
  static uint64_t RequestsIn(double seconds, double rate_per_second);

 private:
  int64_t start_ns_;
  double interval_ns_;
  std::vector<int64_t> drawn_ns_;  // Poisson: since the start.
};

}  // namespace hedgerow::bench
