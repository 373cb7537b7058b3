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
  EXPECT_TRUE(progress.Accepted(LogIndex(12), 1));
  for (uint64_t last = 13; last <= 15; ++last) {
    ASSERT_TRUE(progress.MaySend(options));
    EXPECT_EQ(progress.next(), LogIndex(last));
    progress.Sent(LogIndex(last), 100, 2);
  }
  EXPECT_FALSE(progress.MaySend(options));
  progress.Accepted(LogIndex(14), 3);
  EXPECT_TRUE(progress.MaySend(options)) << "acknowledgements are cumulative";
}

TEST(Progress, BytesInFlightAreBoundedToo) {
  Options options;
  options.inflight_max_bytes = 1000;
  Progress progress(LogIndex(), 0);
  progress.Sent(LogIndex(1), 10, 0);
  progress.Accepted(LogIndex(1), 0);
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
  progress.Accepted(LogIndex(8), 0);
  EXPECT_FALSE(progress.IsCurrentRefusal(LogIndex(7))) << "it has acknowledged more since";
}

TEST(Progress, WhatIsLostIsSentAgainAfterSomePatience) {
  Options options;
  Progress progress(LogIndex(), 0);
  progress.Sent(LogIndex(1), 10, 0);
  progress.Accepted(LogIndex(1), 0);
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
  progress.Accepted(LogIndex(1), 0);
  progress.Sent(LogIndex(2), 10, 0);
  progress.Sent(LogIndex(3), 10, 0);
  EXPECT_FALSE(progress.IsGapInFlight(LogIndex(1))) << "it has this";
  EXPECT_FALSE(progress.IsGapInFlight(LogIndex(4))) << "it was not sent";
  ASSERT_TRUE(progress.IsGapInFlight(LogIndex(2)));
  progress.NoteGap(LogIndex(2), LogIndex(3), 100);
  EXPECT_FALSE(progress.GapPersists(149, 50, 3));
  EXPECT_TRUE(progress.GapPersists(150, 50, 3)) << "for long enough";
  progress.NoteGap(LogIndex(2), LogIndex(3), 110);
  EXPECT_FALSE(progress.GapPersists(149, 50, 3));
  progress.NoteGap(LogIndex(2), LogIndex(2), 120);
  EXPECT_TRUE(progress.GapPersists(149, 50, 3)) << "said often enough";
  EXPECT_EQ(progress.gap_last(), LogIndex(2));
  progress.GapSentAgain();
  EXPECT_FALSE(progress.GapPersists(1000, 50, 3)) << "once";
  EXPECT_EQ(progress.state(), Progress::State::kReplicate);
  progress.Accepted(LogIndex(2), 1000);
  EXPECT_FALSE(progress.gap_open());
}

TEST(Progress, WhoAwaitsASnapshotIsSentNothingUntilItHasOne) {
  Options options;
  Progress progress(LogIndex(10), 0);
  progress.AwaitSnapshot(LogIndex(20));
  EXPECT_FALSE(progress.MaySend(options));
  EXPECT_FALSE(progress.IsCurrentRefusal(LogIndex(10)));
  progress.ForgetLost(1'000'000, 1);
  EXPECT_TRUE(progress.awaits_snapshot());
  EXPECT_TRUE(progress.Accepted(LogIndex(15), 1)) << "late, and true";
  EXPECT_TRUE(progress.awaits_snapshot());
  EXPECT_TRUE(progress.Accepted(LogIndex(25), 2));
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

}  // namespace
}  // namespace hedgerow::raft
