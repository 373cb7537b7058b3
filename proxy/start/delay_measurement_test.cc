// SPDX-License-Identifier: Apache-2.0
//
// Judging a measured clock.

#include "proxy/start/delay_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow {
namespace {

TEST(DelayMeasurement, TheWorstErrorCountsWhateverItsSign) {
  DelayMeasurement measured;
  EXPECT_EQ(measured.WorstErrorNs(), 0);
  measured.periods = {{100'000, 160'000, 5}, {1'000'000, 700'000, 5}, {10'000'000, 10'100'000, 5}};
  EXPECT_EQ(measured.WorstErrorNs(), -300'000);
}

TEST(DelayMeasurement, TheToleranceIsInclusiveAndBothFiguresAreNamed) {
  DelayMeasurement measured;
  measured.periods = {{1'000'000, 3'000'000, 5}};
  EXPECT_TRUE(measured.Check(2'000'000).ok());
  const absl::Status status = measured.Check(1'999'999);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "the kernel clock is too far off: asked for 1ms, measured 3.00ms, which exceeds clock.tolerance of "
            "1999.999us");
}

}  // namespace
}  // namespace hedgerow
