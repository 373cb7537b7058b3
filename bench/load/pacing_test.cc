// SPDX-License-Identifier: Apache-2.0
//
// The send times of an open-loop run neither drift nor lose a request.
#include "bench/load/pacing.h"

#include <gtest/gtest.h>

namespace hedgerow::bench {
namespace {

TEST(Pacing, FirstRequestIsDueAtTheStart) { EXPECT_EQ(Pacing(1'000, 10).DueNs(0), 1'000); }

TEST(Pacing, DoesNotDriftOverAnHourOfAnAwkwardRate) {
  const Pacing pacing(0, 3'000);  // An interval of 333,333.33.. ns: adding rounded intervals would lose 1.2 ms an hour.
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

TEST(Pacing, PoissonHasTheRateExponentialGapsAndAgreesAtEveryEdge) {
  constexpr uint64_t kCount = 100'000;
  const Pacing pacing = Pacing::Poisson(1'000, 10'000, kCount, 7);
  EXPECT_EQ(pacing.DueNs(0), 1'000);
  EXPECT_NEAR(static_cast<double>(pacing.DueNs(kCount - 1)), 10e9, 0.1e9);
  uint64_t long_gaps = 0;
  for (uint64_t seq = 1; seq < kCount; ++seq) {
    const int64_t due_ns = pacing.DueNs(seq);
    ASSERT_GE(due_ns, pacing.DueNs(seq - 1));
    ASSERT_GT(pacing.DueCount(due_ns), seq);
    ASSERT_LE(pacing.DueCount(due_ns - 1), seq);
    long_gaps += due_ns - pacing.DueNs(seq - 1) > 230'259;  // the mean times ln 10
  }
  EXPECT_NEAR(static_cast<double>(long_gaps), kCount / 10, 500);
  EXPECT_EQ(pacing.DueCount(int64_t{1} << 62), kCount);
  EXPECT_EQ(Pacing::Poisson(1'000, 10'000, 10, 7).DueNs(5), pacing.DueNs(5));
  EXPECT_NE(Pacing::Poisson(1'000, 10'000, 10, 8).DueNs(5), pacing.DueNs(5));
}

TEST(Pacing, RequestsInARun) {
  EXPECT_EQ(Pacing::RequestsIn(10, 1'000), 10'000u);
  EXPECT_EQ(Pacing::RequestsIn(0.5, 3), 2u);
}

}  // namespace
}  // namespace hedgerow::bench
