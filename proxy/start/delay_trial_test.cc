// SPDX-License-Identifier: Apache-2.0
//
// The clocks of this kernel, tried for real: none lets a packet out before its time, and one that the kernel
// lacks says so.

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "proxy/start/delay_measurement.h"

namespace hedgerow {
namespace {

// Generous: the machine may be busy with other tests.
constexpr uint64_t kLatestNs = 20'000'000;

void ExpectKept(const absl::StatusOr<DelayMeasurement>& measured, const std::string& what, bool everywhere) {
  if (absl::IsNotFound(measured.status())) {
    EXPECT_FALSE(everywhere) << what << ": " << measured.status();
    return;
  }
  ASSERT_TRUE(measured.ok()) << what << ": " << measured.status();
  ASSERT_FALSE(measured->periods.empty()) << what;
  for (const DelayMeasurement::Period& period : measured->periods) {
    // htb rounds its rate, and two stamps are taken: 1 % is no early packet.
    EXPECT_GE(period.median_ns, period.nominal_ns - period.nominal_ns / 100) << what;
    EXPECT_LE(period.median_ns, period.nominal_ns + kLatestNs) << what;
  }
}

TEST(DelayTrial, NoKindOfClockIsEarly) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const net::ClockKind kind : {net::ClockKind::kHtb, net::ClockKind::kFq}) {
    ExpectKept(TryClockKind(kind), std::string(net::ToString(kind)), kind == net::ClockKind::kHtb);
  }
}

}  // namespace
}  // namespace hedgerow
