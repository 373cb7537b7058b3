// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/pushback.h"

#include "cluster/node/front_end/busy_share.h"

#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

constexpr uint64_t kMs = 1'000'000;

// 10,000 answers/s for half a second. Returns when it ends.
uint64_t Busy(Pushback& pushback, size_t waiting = 0) {
  uint64_t now_ns = 1000 * kMs;
  for (int i = 0; i < 5000; ++i) pushback.ForAnswer(now_ns += kMs / 10, waiting);
  return now_ns;
}

TEST(Pushback, SaysNothingWhileLittleWaits) {
  Pushback pushback(1000);
  const uint64_t now_ns = Busy(pushback);
  EXPECT_EQ(pushback.ForAnswer(now_ns, 0), 0u);
  EXPECT_EQ(pushback.ForAnswer(now_ns, 249), 0u);
}

TEST(Pushback, AsksForNoSoonerHedgeThanItsQueueTakes) {
  Pushback pushback(1000);
  const uint64_t now_ns = Busy(pushback);
  EXPECT_NEAR(pushback.ForAnswer(now_ns, 300), 30, 1);
  EXPECT_NEAR(pushback.ForAnswer(now_ns, 499), 50, 1);
}

TEST(Pushback, AsksForNoneWithAQueueThatIsHalfFull) {
  Pushback pushback(1000);
  const uint64_t now_ns = Busy(pushback);
  EXPECT_EQ(pushback.ForAnswer(now_ns, 500), wire::kHkvNeverHedge);
  EXPECT_EQ(pushback.ForAnswer(now_ns, 1000), wire::kHkvNeverHedge);
}

TEST(Pushback, ItsFirstAnswerAndOneAfterALongRestAreNoMeasureOfItsRate) {
  Pushback pushback(1000);
  EXPECT_LE(pushback.ForAnswer(5'000'000 * kMs, 300), 1000u);
  const uint64_t now_ns = 5'000'000 * kMs;
  const uint32_t after_rest = pushback.ForAnswer(now_ns + 60'000 * kMs, 300);
  EXPECT_GE(after_rest, 1u);
  EXPECT_LE(after_rest, 1000u);
}

// The shortest wait that there is holds back a copy that would leave with its request, and no hedge that waits anyway.
TEST(Pushback, ANodeThatWorksMostOfTheTimeAsksForNoCopiesAtOnce) {
  Pushback pushback(1000);
  const uint64_t now_ns = Busy(pushback);
  EXPECT_EQ(pushback.ForAnswer(now_ns, 0, 0.49), 0u);
  EXPECT_EQ(pushback.ForAnswer(now_ns, 0, 0.5), 1u);
  EXPECT_NEAR(pushback.ForAnswer(now_ns, 300, 0.9), 30, 1);
}

TEST(BusyShare, FollowsTheShareOfWorkWithinATenthOfASecond) {
  BusyShare busy;
  uint64_t now_ns = 1'000'000'000;
  busy.Works(now_ns);
  const auto run = [&](int turns, uint64_t work_ns, uint64_t rest_ns) {
    for (int i = 0; i < turns; ++i) {
      busy.Rests(now_ns += work_ns);
      busy.Works(now_ns += rest_ns);
    }
  };
  run(1000, 100'000, 900'000);
  EXPECT_NEAR(busy.share(), 0.1, 0.02);
  run(300, 900'000, 100'000);
  EXPECT_NEAR(busy.share(), 0.9, 0.06);
  busy.Rests(now_ns += 1'000'000'000);
  EXPECT_EQ(busy.share(), 1.0) << "one long turn";
  busy.Works(now_ns += 1'000'000'000);
  EXPECT_EQ(busy.share(), 0.0);
}

}  // namespace
}  // namespace hedgerow::node
