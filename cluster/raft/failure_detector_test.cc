// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/failure_detector.h"

#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMillisecond;
constexpr uint64_t kFade_ns = FailureDetector::kFade_ns;
constexpr uint64_t kMost_ns = 100 * kMillisecond;  // five floors
constexpr FailureDetector::Watched kFollower{.term = Term(3), .leader = NodeId(1)};
constexpr FailureDetector::Watched kLeader{.term = Term(3), .leader = NodeId(3), .leads = true};

// Node 3 of three, at slot 2.
class FailureDetectorTest : public testing::Test {
 protected:
  FailureDetectorTest() {
    detector_.SetVoters(2, 0b111, 0);
    Follow();
  }

  void Follow() {
    detector_.Watch(now_ns_, kFollower);
    detector_.LeaderHeard(now_ns_, now_ns_);
  }
  void Lead() { detector_.Watch(now_ns_, kLeader); }

  void Poll(uint64_t for_ms) {
    for (uint64_t ms = 0; ms < for_ms; ++ms) detector_.Poll(now_ns_ += kMillisecond);
  }
  // Polled every millisecond, and then heard again.
  void Pause(uint64_t for_ms) {
    Poll(for_ms);
    detector_.LeaderHeard(now_ns_, now_ns_);
  }
  // What the timeout makes of pauses is twice the longest.
  uint64_t Longest_ns() {
    detector_.LeaderHeard(now_ns_, now_ns_);
    return detector_.tolerated_pause_ns() / 2;
  }
  // A peer turns: its loop_seq changes.
  void HearPeer(size_t member) { detector_.PeerHeard(member, now_ns_, ++loop_seq_); }

  const Options options_;
  FailureDetector detector_{options_};
  uint64_t now_ns_ = kSecond;
  uint64_t loop_seq_ = 0;
};

TEST_F(FailureDetectorTest, APauseCountsOnceItHasEnded) {
  Pause(4);
  Poll(15);
  EXPECT_NEAR(detector_.tolerated_pause_ns(), 8 * kMillisecond, kMillisecond / 10) << "it may never end";
  detector_.LeaderHeard(now_ns_, now_ns_);
  EXPECT_EQ(Longest_ns(), 15 * kMillisecond);
  Pause(7);
  EXPECT_NEAR(Longest_ns(), 15 * kMillisecond, kMillisecond / 10) << "a shorter one changes nothing";
}

TEST_F(FailureDetectorTest, APauseBeforeAnotherLeaderTeachesNothing) {
  for (const FailureDetector::Watched& next :
       {FailureDetector::Watched{.term = Term(4), .leader = NodeId(1)},
        FailureDetector::Watched{.term = Term(3), .leader = NodeId()}, kLeader}) {
    Follow();
    Poll(50);
    detector_.Watch(now_ns_, next);
    Follow();
    EXPECT_EQ(Longest_ns(), 0u);
  }
}

TEST_F(FailureDetectorTest, AVeryLongPauseCountsAsFiveFloors) {
  Pause(10'000);
  EXPECT_EQ(Longest_ns(), kMost_ns);
}

TEST_F(FailureDetectorTest, PausesFade) {
  Pause(16);
  const uint64_t ended_ns = now_ns_;
  EXPECT_EQ(Longest_ns(), 16 * kMillisecond);
  now_ns_ = ended_ns + kFade_ns / 2;
  EXPECT_EQ(Longest_ns(), 8 * kMillisecond);
  for (const uint64_t fades : {1, 2}) {
    now_ns_ = ended_ns + fades * kFade_ns;
    EXPECT_EQ(Longest_ns(), 0u);
  }
}

TEST_F(FailureDetectorTest, AShorterPauseCountsOnceTheLongerHasFaded) {
  Pause(20);
  Pause(12);
  EXPECT_NEAR(Longest_ns(), 20 * kMillisecond, kMillisecond / 10);
  now_ns_ += kFade_ns / 2;
  EXPECT_NEAR(Longest_ns(), 10 * kMillisecond, kMillisecond / 10);
  Pause(12);
  EXPECT_EQ(Longest_ns(), 12 * kMillisecond);
}

// A kernel part hears while its process does not turn, and tells only when it heard last.
TEST_F(FailureDetectorTest, APauseThatTheProcessDidNotSeeIsNone) {
  now_ns_ += kSecond;
  detector_.LeaderHeard(now_ns_, now_ns_ - kMillisecond);
  EXPECT_EQ(detector_.tolerated_pause_ns(), 0u);
  EXPECT_EQ(Longest_ns(), 0u);
}

TEST_F(FailureDetectorTest, ALeaderIsSuspectAfterTheTimeout) {
  EXPECT_EQ(detector_.timeout_ns(), options_.election_floor_ns);
  EXPECT_EQ(detector_.suspected_from_ns(), now_ns_ + options_.election_floor_ns);
  EXPECT_FALSE(detector_.Suspects(now_ns_ + options_.election_floor_ns - 1));
  EXPECT_TRUE(detector_.Suspects(now_ns_ + options_.election_floor_ns));
  EXPECT_EQ(detector_.pause_ns(now_ns_ + 7), 7u);
  Pause(15);
  EXPECT_EQ(detector_.suspected_from_ns(), now_ns_ + 30 * kMillisecond) << "twice the longest pause";
  EXPECT_EQ(detector_.network_timeout_ns(), options_.election_floor_ns) << "which the network is not to blame for";
}

TEST_F(FailureDetectorTest, WithoutALeaderNoNodeIsTrusted) {
  detector_.Watch(now_ns_, {.term = Term(4), .leader = NodeId()});
  EXPECT_TRUE(detector_.Suspects(now_ns_));
  EXPECT_EQ(detector_.pause_ns(now_ns_ + kSecond), 0u);
  EXPECT_EQ(detector_.next_poll_ns(), UINT64_MAX);
}

TEST_F(FailureDetectorTest, AStalledLeaderIsTrustedForUpToThreeFloors) {
  const uint64_t heard_ns = now_ns_;
  const uint64_t floor_ns = options_.election_floor_ns;
  Poll(15);
  EXPECT_TRUE(detector_.LeaderStalled(now_ns_));
  EXPECT_EQ(detector_.stalled_by_ns(), 15 * kMillisecond);
  EXPECT_EQ(detector_.suspected_from_ns(), now_ns_ + floor_ns);
  EXPECT_EQ(detector_.leader_heard_ns(), heard_ns) << "the pause goes on";
  EXPECT_TRUE(detector_.LeaderStalled(heard_ns + 3 * floor_ns - 1));
  EXPECT_FALSE(detector_.LeaderStalled(heard_ns + 3 * floor_ns));
  EXPECT_EQ(detector_.suspected_from_ns(), heard_ns + 4 * floor_ns - 1);
  now_ns_ = heard_ns + 3 * floor_ns;
  detector_.LeaderHeard(now_ns_, now_ns_);
  EXPECT_EQ(detector_.stalled_by_ns(), 0u);
}

TEST_F(FailureDetectorTest, ALeaderWatchesAMajority) {
  Lead();
  const uint64_t led_ns = now_ns_;
  EXPECT_EQ(detector_.suspected_from_ns(), led_ns + options_.election_floor_ns);
  now_ns_ += 5 * kMillisecond;
  HearPeer(0);
  EXPECT_EQ(detector_.heard_ns(), now_ns_) << "one of two others is enough";
  detector_.PeerHeard(0, now_ns_ + kMillisecond, loop_seq_);
  EXPECT_EQ(detector_.heard_ns(), now_ns_) << "an echo: its loop has not turned";
  detector_.SetVoters(2, 0b11111, 0);
  EXPECT_EQ(detector_.heard_ns(), led_ns) << "two of four others are needed";
  detector_.WatchPeer(3, now_ns_);
  EXPECT_EQ(detector_.heard_ns(), now_ns_);
  detector_.SetVoters(2, 0b101, 0b110);
  EXPECT_EQ(detector_.heard_ns(), led_ns) << "a majority of both configurations";
  detector_.SetVoters(2, 0b100, 0);
  EXPECT_FALSE(detector_.Suspects(now_ns_ + kFade_ns)) << "a majority of one has nobody to lose";
  EXPECT_EQ(detector_.pause_ns(now_ns_), 0u);
}

TEST_F(FailureDetectorTest, AConfirmationPutsSuspicionOffAndEndsNoPause) {
  Lead();
  const uint64_t led_ns = now_ns_;
  Poll(19);
  detector_.PeerConfirmed(1, now_ns_);
  EXPECT_EQ(detector_.suspected_from_ns(), now_ns_ + options_.election_floor_ns);
  EXPECT_EQ(detector_.heard_ns(), led_ns);
  Poll(5);
  EXPECT_EQ(detector_.tolerated_pause_ns(), 0u);
  HearPeer(1);
  Poll(1);
  EXPECT_EQ(detector_.tolerated_pause_ns(), 2 * 24 * kMillisecond);
}

// What came to its socket meanwhile makes no difference.
TEST_F(FailureDetectorTest, ALeaderThatDidNotTurnWasItselfSilent) {
  Lead();
  Poll(1);
  now_ns_ += 15 * kMillisecond;
  detector_.Poll(now_ns_);
  HearPeer(0);
  Poll(1);
  EXPECT_EQ(detector_.tolerated_pause_ns(), 2 * 16 * kMillisecond);
}

TEST_F(FailureDetectorTest, TheNetworksPartIsTheSlowestOfItselfItsLeaderAndFailedElections) {
  for (int i = 0; i < 100; ++i) detector_.AddRoundTrip(0, 2 * kMillisecond);
  EXPECT_NEAR(detector_.network_timeout_ns(), 40 * kMillisecond, kMillisecond);
  detector_.SetLeaderTimeout(70 * kMillisecond);
  EXPECT_EQ(detector_.network_timeout_ns(), 70 * kMillisecond);
  detector_.ElectionFailed();
  EXPECT_EQ(detector_.network_timeout_ns(), 70 * kMillisecond) << "one may fail by chance";
  detector_.ElectionFailed();
  EXPECT_EQ(detector_.network_timeout_ns(), 140 * kMillisecond);
  for (int i = 0; i < 100; ++i) detector_.ElectionFailed();
  EXPECT_EQ(detector_.network_timeout_ns(), 8 * 70 * kMillisecond);
  detector_.SetLeaderTimeout(100 * kSecond);
  EXPECT_EQ(detector_.network_timeout_ns(), options_.election_cap_ns);
  detector_.LeaderHeard(now_ns_, now_ns_);
  detector_.SetLeaderTimeout(70 * kMillisecond);
  EXPECT_EQ(detector_.network_timeout_ns(), 70 * kMillisecond) << "a leader was found";
  Lead();
  EXPECT_LT(detector_.network_timeout_ns(), 50 * kMillisecond) << "its own word now";
}

TEST_F(FailureDetectorTest, TheLeaseIsAsLongAsAPauseIsTolerated) {
  EXPECT_EQ(detector_.LeaseEnd_ns(now_ns_, 20 * kMillisecond), now_ns_ + 20 * kMillisecond);
  Pause(15);
  EXPECT_EQ(detector_.LeaseEnd_ns(now_ns_, 20 * kMillisecond), now_ns_ + 30 * kMillisecond);
}

TEST_F(FailureDetectorTest, CalmNodesArePolledForNothing) {
  EXPECT_EQ(detector_.next_poll_ns(), now_ns_ + options_.election_floor_ns / 2);
  Poll(12);
  EXPECT_EQ(detector_.next_poll_ns(), now_ns_ + FailureDetector::kPoll_ns);
}

}  // namespace
}  // namespace hedgerow::raft
