// SPDX-License-Identifier: Apache-2.0
//
// The send times of an open-loop run neither drift nor lose a request.
#include "bench/load/pacing.h"

#include <gtest/gtest.h>

namespace hedgerow::bench {
namespace {

TEST(Pacing, FirstRequestIsDueAtTheStart) { EXPECT_EQ(Pacing(1'000, 10).DueNs(0), 1'000); }

TEST(Pacing, DoesNotDriftOverAnHourOfAnAwkwardRate) {
  const Pacing pacing(
      0, 3'000);  // An interval of 333,333.33.. ns: adding rounded intervals would lose 1.2 ms an hour.
  EXPECT_NEAR(static_cast<double>(pacing.DueNs(3'000ull * 3'600)), 3'600e9, 2);
}

TEST(Pacing, DueCountAgreesWithDueNsAtEveryEdge) {
  for (double rate : {1.0, 7.0, 1'000.0, 3'000.0, 99'999.0}) {
    const Pacing pacing(123'456'789, rate);
    for (uint64_t seq = 0; seq < 5'000; ++seq) {
      const int64_t due_ns = pacing.DueNs(seq);
      ASSERT_EQ(pacing.DueCount(due_ns), seq + 1) << rate;
      ASSERT_EQ(pacing.DueCount(due_ns - 1), seq) << rate;
    }
  }
}

TEST(Pacing, NothingIsDueBeforeTheStart) { EXPECT_EQ(Pacing(1'000, 1e6).DueCount(999), 0u); }

TEST(Pacing, RequestsInARun) {
  EXPECT_EQ(Pacing::RequestsIn(10, 1'000), 10'000u);
  EXPECT_EQ(Pacing::RequestsIn(0.5, 3), 2u);
}

}  // namespace
}  // namespace hedgerow::bench
