// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/app_hedging.h"

#include <gtest/gtest.h>

namespace hedgerow::chaos {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(AppHedging, CopiesGoToOneServerAfterTheOtherAtTimesThatDoNotMove) {
  AppHedging hedging(3, {.delay_ns = 5 * kMs, .attempts_max = 4});
  Attempts attempts;
  EXPECT_EQ(hedging.First(100 * kMs, attempts), 0u);
  EXPECT_EQ(attempts.next_ns, 105 * kMs);
  EXPECT_EQ(hedging.Next(attempts), 1u);
  EXPECT_EQ(attempts.next_ns, 115 * kMs);
  EXPECT_EQ(hedging.Next(attempts), 2u);
  EXPECT_EQ(attempts.next_ns, 135 * kMs);
  EXPECT_EQ(hedging.Next(attempts), 0u);
  EXPECT_EQ(attempts.next_ns, UINT64_MAX);
  EXPECT_EQ(attempts.total(), 4u);
}

TEST(AppHedging, TheLeaderThatIsNamedIsFollowedAndRemembered) {
  AppHedging hedging(3, {.follow_max = 2});
  Attempts attempts;
  hedging.First(1, attempts);
  EXPECT_EQ(hedging.NotLeader(0, 2, attempts), 2u);
  EXPECT_EQ(hedging.leader(), 2u);
  EXPECT_EQ(hedging.NotLeader(2, 1, attempts), 1u);
  EXPECT_EQ(hedging.NotLeader(1, 2, attempts), std::nullopt) << "two that name each other are not followed for ever";
  EXPECT_EQ(hedging.leader(), 2u);
  EXPECT_EQ(attempts.total(), 3u);
}

TEST(AppHedging, TheFirstLeaderIsAskedFirst) {
  AppHedging hedging(3, {.attempts_max = 2, .first_leader = 2});
  Attempts attempts;
  EXPECT_EQ(hedging.First(1, attempts), 2u);
  EXPECT_EQ(hedging.Next(attempts), 0u);
}

TEST(AppHedging, AServerThatKnowsNoLeaderIsNotAskedFirstAgain) {
  AppHedging hedging(3, {});
  Attempts attempts;
  hedging.First(1, attempts);
  EXPECT_EQ(hedging.NotLeader(0, std::nullopt, attempts), std::nullopt);
  EXPECT_EQ(hedging.leader(), 1u);
  EXPECT_EQ(hedging.NotLeader(1, 7, attempts), std::nullopt) << "there is no such server";
  EXPECT_EQ(hedging.leader(), 2u);
}

TEST(AppHedging, ARequestWhoseCopiesWereAllRefusedIsSentAgainInAWhile) {
  AppHedging hedging(3, {.attempts_max = 2, .again_ns = 7});
  Attempts attempts;
  hedging.First(1, attempts);
  attempts.refused = 1;
  EXPECT_FALSE(attempts.stranded()) << "a copy is due";
  EXPECT_EQ(hedging.Next(attempts), 1u);
  EXPECT_FALSE(attempts.stranded()) << "it is under way";
  attempts.refused = 2;
  EXPECT_TRUE(attempts.stranded());
  hedging.Again(100, attempts);
  EXPECT_EQ(attempts.next_ns, 107u);
  EXPECT_EQ(hedging.Next(attempts), 2u);
  EXPECT_EQ(attempts.next_ns, UINT64_MAX) << "and not once more, unless it is refused, too";
}

TEST(AppHedging, ALeaderThatIsSilentSinceTheRequestLeftIsReplaced) {
  AppHedging hedging(2, {});
  Attempts attempts;
  hedging.First(10, attempts);
  hedging.Heard(1, 20);
  hedging.Answered(1, attempts);
  EXPECT_EQ(hedging.leader(), 1u);
}

TEST(AppHedging, ALeaderThatIsOnlySlowerStays) {
  AppHedging hedging(2, {});
  Attempts attempts;
  hedging.First(10, attempts);
  hedging.Heard(0, 15);  // the answer to something else
  hedging.Heard(1, 20);
  hedging.Answered(1, attempts);
  EXPECT_EQ(hedging.leader(), 0u);
}

}  // namespace
}  // namespace hedgerow::chaos
