// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/names.h"

#include <gtest/gtest.h>

#include <set>

namespace hedgerow {
namespace {

TEST(NamesTest, EveryNameIsUnique) {
  std::set<absl::string_view> names;
  for (const CounterRow& counter : kCounters) EXPECT_TRUE(names.insert(counter.name).second) << counter.name;
  names.clear();
  for (const ReasonRow& reason : kReasons) EXPECT_TRUE(names.insert(reason.name).second) << reason.name;
}

TEST(NamesTest, ANumberWithoutAReasonHasNoName) {
  EXPECT_EQ(ReasonName(HR_REASON_NO_BUDGET), "no_budget");
  EXPECT_EQ(ReasonName(HR_REASON_NONE), "");
  EXPECT_EQ(ReasonName(-1), "");
  EXPECT_EQ(ReasonName(HR_REASON_COUNT), "");
}

// Pinned maps and dashboards live longer than a build: a number keeps its meaning.
TEST(NamesTest, NumbersAreStable) {
  static_assert(HR_PASSED_THROUGH == 8 && HR_LOSERS_DROPPED == 12 && HR_PUSHBACKS == 28);
  static_assert(HR_REASON_NO_BUDGET == 24 && HR_REASON_LOSER == 32 && HR_REASON_ANNOUNCE_STALE == 72);
}

TEST(NamesTest, OutcomesAreSummedByFamily) {
  hr_stats stats{};
  stats.counters[HR_REQUESTS] = 100;
  stats.counters[HR_WON_BY_FIRST] = 3;
  stats.counters[HR_PASSED_THROUGH] = 4;
  stats.counters[HR_HEDGES] = 50;
  stats.reasons[HR_REASON_NO_BUDGET] = 60;
  EXPECT_EQ(Outcomes(stats), 7u);
}

}  // namespace
}  // namespace hedgerow
