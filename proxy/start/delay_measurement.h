// SPDX-License-Identifier: Apache-2.0
//
// How long the clock's queueing discipline really holds a packet back, on this
// machine, now. Some kernels and virtual machines give a delay far from the
// one asked for; a proxy whose hedges leave at the wrong time is worse than
// none, so the daemon measures before it attaches anything and refuses where
// the error exceeds clock.tolerance.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/tc/clock_qdisc.h"
#include "net/netlink/link.h"

namespace hedgerow {

struct DelayMeasurement {
  struct Period {
    uint64_t nominal_ns = 0;
    uint64_t median_ns = 0;  // of what packets really waited
    uint64_t samples = 0;
  };
  std::vector<Period> periods;

  int64_t WorstErrorNs() const;
  // FailedPrecondition with both figures when a period is off by more than `tolerance_ns`.
  absl::Status Check(int64_t tolerance_ns) const;
};

// Sends a few packets through the clock's queueing discipline on `clock.link`, for each of its periods, and
// times their arrival on `clock.peer`. The programs are not attached yet. Takes some 100 ms; needs CAP_NET_RAW.
absl::StatusOr<DelayMeasurement> MeasureClock(const net::VethPair& clock, const net::ClockQdiscOptions& options);

// The same for a kind of clock, in a network namespace made for it: what doctor shows. NotFound: the kernel
// lacks it.
absl::StatusOr<DelayMeasurement> TryClockKind(net::ClockKind kind);

}  // namespace hedgerow
