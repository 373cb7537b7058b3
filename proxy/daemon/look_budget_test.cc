// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/look_budget.h"

#include <gtest/gtest.h>

namespace hedgerow {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStartNs = 1'000'000 * kMs;

TEST(LookBudgetTest, TheFirstLooksDoNotWait) {
  LookBudget budget;
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(budget.WaitNs(kStartNs + i), 0) << i;
    budget.Spend(kStartNs + i, 2 * kMs);
  }
}

TEST(LookBudgetTest, LooksWithoutEndTakeATenthOfTheTime) {
  LookBudget budget;
  int64_t now_ns = kStartNs, spent_ns = 0;
  while (now_ns < kStartNs + 100'000 * kMs) {
    now_ns += budget.WaitNs(now_ns);
    now_ns += 2 * kMs;
    spent_ns += 2 * kMs;
    budget.Spend(now_ns, 2 * kMs);
  }
  EXPECT_NEAR(static_cast<double>(spent_ns), 10'000.0 * kMs, 100.0 * kMs);
}

TEST(LookBudgetTest, NoLookWaitsLongerThanASecondHoweverSlowTheLastOneWas) {
  LookBudget budget;
  for (int i = 0; i < 5; ++i) budget.Spend(kStartNs, 60'000 * kMs);
  EXPECT_LE(budget.WaitNs(kStartNs), LookBudget::kLongestWaitNs);
  EXPECT_EQ(budget.WaitNs(kStartNs + LookBudget::kLongestWaitNs + 10), 0);
}

}  // namespace
}  // namespace hedgerow
