// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/silences.h"

#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMillisecond;
constexpr Silences::Listening kFollower{.term = Term(3), .leader = NodeId(1)};

constexpr uint64_t kMost_ns = 100 * kMillisecond;

// Looked at every millisecond of `silent_ms`, and then heard again.
uint64_t Listen(Silences& silences, uint64_t now_ns, uint64_t silent_ms) {
  for (uint64_t ms = 0; ms < silent_ms; ++ms) silences.Look(now_ns += kMillisecond);
  silences.Heard(now_ns, now_ns, kMost_ns);
  return now_ns;
}

class SilencesTest : public testing::Test {
 protected:
  SilencesTest() {
    silences_.ListenTo(kFollower);
    silences_.Heard(now_ns_, now_ns_, kMost_ns);
  }
  Silences silences_;
  uint64_t now_ns_ = kSecond;
};

TEST_F(SilencesTest, TheLongestCountsOnceItHasEnded) {
  now_ns_ = Listen(silences_, now_ns_, 4);
  for (int ms = 0; ms < 15; ++ms) silences_.Look(now_ns_ += kMillisecond);
  EXPECT_NEAR(silences_.Longest_ns(now_ns_), 4 * kMillisecond, kMillisecond / 10) << "it may never end";
  silences_.Heard(now_ns_, now_ns_, kMost_ns);
  EXPECT_EQ(silences_.Longest_ns(now_ns_), 15 * kMillisecond);
  now_ns_ = Listen(silences_, now_ns_, 7);
  EXPECT_NEAR(silences_.Longest_ns(now_ns_), 15 * kMillisecond, kMillisecond / 10);
}

TEST_F(SilencesTest, WhoeverGivesUpOrFindsAnotherLearnsNothing) {
  for (const Silences::Listening& next :
       {Silences::Listening{.term = Term(4), .leader = NodeId(1)},
        Silences::Listening{.term = Term(3), .leader = NodeId()},
        Silences::Listening{.term = Term(3), .leader = NodeId(1), .leads = true}}) {
    Silences silences = silences_;
    for (int ms = 0; ms < 50; ++ms) silences.Look(now_ns_ += kMillisecond);
    silences.ListenTo(next);
    silences.ListenTo(kFollower);
    silences.Heard(now_ns_, now_ns_, kMost_ns);
    EXPECT_EQ(silences.Longest_ns(now_ns_), 0u);
  }
}

TEST_F(SilencesTest, VeryLongOnesCountAsLong) {
  now_ns_ = Listen(silences_, now_ns_, 10'000);
  EXPECT_EQ(silences_.Longest_ns(now_ns_), kMost_ns);
}

TEST_F(SilencesTest, TheyFade) {
  now_ns_ = Listen(silences_, now_ns_, 16);
  EXPECT_EQ(silences_.Longest_ns(now_ns_), 16 * kMillisecond);
  EXPECT_EQ(silences_.Longest_ns(now_ns_ + Silences::kFade_ns / 2), 8 * kMillisecond);
  EXPECT_EQ(silences_.Longest_ns(now_ns_ + Silences::kFade_ns), 0u);
  EXPECT_EQ(silences_.Longest_ns(now_ns_ + 2 * Silences::kFade_ns), 0u);
}

TEST_F(SilencesTest, AShorterOneCountsOnceTheLongerHasFaded) {
  now_ns_ = Listen(silences_, now_ns_, 20);
  now_ns_ = Listen(silences_, now_ns_, 12);
  EXPECT_NEAR(silences_.Longest_ns(now_ns_), 20 * kMillisecond, kMillisecond / 10);
  now_ns_ += Silences::kFade_ns / 2;
  silences_.Heard(now_ns_, now_ns_, kMost_ns);
  EXPECT_NEAR(silences_.Longest_ns(now_ns_), 10 * kMillisecond, kMillisecond / 10);
  now_ns_ = Listen(silences_, now_ns_, 12);
  EXPECT_EQ(silences_.Longest_ns(now_ns_), 12 * kMillisecond);
}

// A kernel part hears while its process does not turn, and says only when it heard last.
TEST_F(SilencesTest, WhoDidNotLookDoesNotTakeItForSilence) {
  silences_.Heard(2 * kSecond, 2 * kSecond - kMillisecond, kMost_ns);
  EXPECT_EQ(silences_.Longest_ns(2 * kSecond), 0u);
  silences_.Heard(2 * kSecond, 2 * kSecond, kMost_ns);
  EXPECT_EQ(silences_.Longest_ns(2 * kSecond), 0u);
}

}  // namespace
}  // namespace hedgerow::raft
