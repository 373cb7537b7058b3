// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/progress.h"

#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

TEST(Progress, ProbesWithOneAndPipelinesOnceTheLogsAgree) {
  Options options;
  options.inflight_max_appends = 3;
  Progress progress(LogIndex(10), 0);
  EXPECT_EQ(progress.next(), LogIndex(11));
  progress.Sent(LogIndex(12), 100, 0);
  EXPECT_FALSE(progress.MaySend(options));
  EXPECT_TRUE(progress.Accepted(LogIndex(12), 0, 1));
  for (uint64_t last = 13; last <= 15; ++last) {
    ASSERT_TRUE(progress.MaySend(options));
    EXPECT_EQ(progress.next(), LogIndex(last));
    progress.Sent(LogIndex(last), 100, 2);
  }
  EXPECT_FALSE(progress.MaySend(options));
  progress.Accepted(LogIndex(14), 0, 3);
  EXPECT_TRUE(progress.MaySend(options)) << "acknowledgements are cumulative";
}

// An answer to a heartbeat and an acknowledgement of one follower overtake each other.
TEST(Progress, WhatWasSaidBeforeAnAcknowledgementShowsNoRestart) {
  Progress progress(LogIndex(10), 0);
  progress.Sent(LogIndex(12), 100, 0);
  progress.Accepted(LogIndex(12), /*round=*/5, 1);
  EXPECT_FALSE(progress.HasForgotten(LogIndex(10), 4));
  EXPECT_FALSE(progress.HasForgotten(LogIndex(10), 5));
  EXPECT_FALSE(progress.HasForgotten(LogIndex(12), 6));
  EXPECT_TRUE(progress.HasForgotten(LogIndex(10), 6)) << "asked after it had said that it holds 12";
  progress.Accepted(LogIndex(12), /*round=*/7, 2);
  EXPECT_TRUE(progress.HasForgotten(LogIndex(10), 6)) << "nothing new was said since";
}

TEST(Progress, BytesInFlightAreBoundedToo) {
  Options options;
  options.inflight_max_bytes = 1000;
  Progress progress(LogIndex(), 0);
  progress.Sent(LogIndex(1), 10, 0);
  progress.Accepted(LogIndex(1), 0, 0);
  progress.Sent(LogIndex(2), 1000, 0);
  EXPECT_FALSE(progress.MaySend(options));
}

TEST(Progress, LateRefusalsAreToldFromCurrentOnes) {
  Progress progress(LogIndex(10), 0);
  EXPECT_TRUE(progress.IsCurrentRefusal(LogIndex(10)));
  EXPECT_FALSE(progress.IsCurrentRefusal(LogIndex(9))) << "not what was probed";
  progress.GoBackTo(LogIndex(5));
  EXPECT_EQ(progress.next(), LogIndex(5));
  EXPECT_FALSE(progress.IsCurrentRefusal(LogIndex(10)));
  progress.Sent(LogIndex(8), 10, 0);
  progress.Accepted(LogIndex(8), 0, 0);
  EXPECT_FALSE(progress.IsCurrentRefusal(LogIndex(7))) << "it has acknowledged more since";
}

TEST(Progress, WhatIsLostIsSentAgainAfterSomeTimeout) {
  Options options;
  Progress progress(LogIndex(), 0);
  progress.Sent(LogIndex(1), 10, 0);
  progress.Accepted(LogIndex(1), 0, 0);
  progress.Sent(LogIndex(2), 10, 100);
  progress.Sent(LogIndex(3), 10, 150);
  progress.ForgetLost(199, 100);
  EXPECT_EQ(progress.next(), LogIndex(4));
  progress.ForgetLost(200, 100);
  EXPECT_EQ(progress.next(), LogIndex(2));
  EXPECT_EQ(progress.state(), Progress::State::kProbe);
  EXPECT_TRUE(progress.MaySend(options));
}

TEST(Progress, WhatIsInFlightAndMissingIsLateBeforeItIsLost) {
  Progress progress(LogIndex(), 0);
  progress.Sent(LogIndex(1), 10, 0);
  progress.Accepted(LogIndex(1), 0, 0);
  progress.Sent(LogIndex(2), 10, 0);
  progress.Sent(LogIndex(3), 10, 0);
  EXPECT_FALSE(progress.IsHoleInFlight(LogIndex(1))) << "it has this";
  EXPECT_FALSE(progress.IsHoleInFlight(LogIndex(4))) << "it was not sent";
  ASSERT_TRUE(progress.IsHoleInFlight(LogIndex(2)));
  progress.NoteGap(LogIndex(2), LogIndex(3), 100);
  EXPECT_FALSE(progress.HolePersists(149, 50, 3));
  EXPECT_TRUE(progress.HolePersists(150, 50, 3)) << "for long enough";
  progress.NoteGap(LogIndex(2), LogIndex(3), 110);
  EXPECT_FALSE(progress.HolePersists(149, 50, 3));
  progress.NoteGap(LogIndex(2), LogIndex(2), 120);
  EXPECT_TRUE(progress.HolePersists(149, 50, 3)) << "said often enough";
  EXPECT_EQ(progress.hole_last(), LogIndex(2));
  progress.HoleSentAgain();
  EXPECT_FALSE(progress.HolePersists(1000, 50, 3)) << "once";
  EXPECT_EQ(progress.state(), Progress::State::kReplicate);
  progress.Accepted(LogIndex(2), 0, 1000);
  EXPECT_FALSE(progress.hole_open());
}

TEST(Progress, APeerThatAwaitsASnapshotIsSentNothingUntilItHasOne) {
  Options options;
  Progress progress(LogIndex(10), 0);
  progress.AwaitSnapshot(LogIndex(20));
  EXPECT_FALSE(progress.MaySend(options));
  EXPECT_FALSE(progress.IsCurrentRefusal(LogIndex(10)));
  progress.ForgetLost(1'000'000, 1);
  EXPECT_TRUE(progress.awaits_snapshot());
  EXPECT_TRUE(progress.Accepted(LogIndex(15), 0, 1)) << "late, and true";
  EXPECT_TRUE(progress.awaits_snapshot());
  EXPECT_TRUE(progress.Accepted(LogIndex(25), 0, 2));
  EXPECT_FALSE(progress.awaits_snapshot());
  EXPECT_EQ(progress.state(), Progress::State::kReplicate);
  EXPECT_EQ(progress.next(), LogIndex(26));
}

TEST(Progress, ASnapshotThatFailedIsAFailureUntilItIsAskedForAgain) {
  Progress progress(LogIndex(10), 0);
  progress.SnapshotFailed();
  EXPECT_FALSE(progress.snapshot_failed()) << "nobody waited for one";
  progress.AwaitSnapshot(LogIndex(20));
  progress.SnapshotFailed();
  EXPECT_TRUE(progress.snapshot_failed());
  progress.AwaitSnapshot(LogIndex(21));
  EXPECT_FALSE(progress.snapshot_failed());
}

// A follower whose log is known to be equal up to `last`.
Progress Pipelined(uint64_t last) {
  Progress progress(LogIndex(last), 0);
  progress.Accepted(LogIndex(last), 0, 0);
  return progress;
}

// What the invariant checker asks after each step: each part shows it one broken rule.
TEST(Progress, EachBrokenRuleIsSeen) {
  const LogIndex last(9);
  EXPECT_EQ(Pipelined(9).BrokenRule(last), nullptr);
  EXPECT_STREQ(Pipelined(9).BrokenRule(LogIndex(8)), "the next append begins behind the log's end");
  Progress sent_again = Pipelined(3);
  sent_again.Sent(LogIndex(2), 10, 0);
  EXPECT_STREQ(sent_again.BrokenRule(last), "what was acknowledged is sent again");
  Progress acknowledged = Pipelined(3);
  acknowledged.Sent(LogIndex(3), 10, 0);
  EXPECT_STREQ(acknowledged.BrokenRule(last), "an acknowledged append is in flight");
  Progress out_of_order = Pipelined(3);
  out_of_order.Sent(LogIndex(5), 10, 0);
  out_of_order.Sent(LogIndex(4), 10, 0);
  EXPECT_STREQ(out_of_order.BrokenRule(last), "appends in flight are out of order");
  Progress probing(LogIndex(3), 0);
  probing.Sent(LogIndex(4), 10, 0);
  EXPECT_EQ(probing.BrokenRule(last), nullptr);
  probing.Sent(LogIndex(4), 10, 0);
  EXPECT_STREQ(probing.BrokenRule(last), "more than a probe is in flight");
  Progress hole(LogIndex(3), 0);
  hole.NoteGap(LogIndex(2), LogIndex(3), 0);
  EXPECT_STREQ(hole.BrokenRule(last), "a hole is noted without a pipeline");
  Progress waiting(LogIndex(3), 0);
  waiting.AwaitSnapshot(LogIndex(5));
  EXPECT_EQ(waiting.BrokenRule(last), nullptr);
  waiting.Sent(LogIndex(4), 10, 0);
  EXPECT_STREQ(waiting.BrokenRule(last), "more than a probe is in flight");
}

}  // namespace
}  // namespace hedgerow::raft
