// SPDX-License-Identifier: Apache-2.0
//
// How long the clock's queueing discipline really holds a packet back, on this
// machine, now. Some kernels and virtual machines give a delay far from the
// one asked for; a proxy whose hedges leave at the wrong time is worse than
// none, so the daemon measures before it attaches anything and refuses where
// the error exceeds clock.tolerance.

#ifndef HEDGEROW_PROXY_DAEMON_CLOCK_MEASUREMENT_H_
#define HEDGEROW_PROXY_DAEMON_CLOCK_MEASUREMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/net/link.h"

namespace hedgerow {

struct ClockMeasurement {
  struct Period {
    uint64_t nominal_ns = 0;
    uint64_t median_ns = 0;  // of the gaps between packets let through
    uint64_t samples = 0;
  };
  std::vector<Period> periods;

  int64_t WorstErrorNs() const;
  // FailedPrecondition with both figures when a period is off by more than `tolerance_ns`.
  absl::Status Check(int64_t tolerance_ns) const;
};

// Sends a few packets into each class of the clock's queueing discipline on `clock.link` and times their
// arrival on `clock.peer`. The programs are not attached yet. Takes some 100 ms; needs CAP_NET_RAW.
absl::StatusOr<ClockMeasurement> MeasureClock(const net::VethPair& clock,
                                              const std::vector<uint64_t>& period_ns);

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_CLOCK_MEASUREMENT_H_
