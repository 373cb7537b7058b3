// SPDX-License-Identifier: Apache-2.0
//
// Log compaction, one test a rule: Raft section 7 and figure 13, dissertation chapter 5. How it reads as a
// whole is told by testdata/snapshot*.txt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/check.h"
#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Node 3 misses two writes, which node 1 then compacts.
void LeaveThirdBehind(TestCluster& cluster) {
  cluster.Elect(1);
  cluster.Isolate(3);
  cluster.Propose(1, "a");
  cluster.Propose(1, "b");
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  cluster.Heal();
}

// Until the leader has given up what it believes in flight.
void LetItProbe(TestCluster& cluster, uint64_t leader) { cluster.HeartbeatRounds(leader, 4); }

TEST(Raft_7_Compaction, TheLogBeginsAfterTheSnapshotAndKeepsATail) {
  TestCluster cluster(3, WithTail(2));
  cluster.Elect(1);
  for (const char* text : {"a", "b", "c"}) cluster.Propose(1, text);
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  const Log& log = cluster.At(1).log();
  EXPECT_EQ(log.start(), (EntryId{.index = LogIndex(2), .term = Term(1)}));
  EXPECT_EQ(log.last_index(), LogIndex(4));
  EXPECT_EQ(log.TermAt(LogIndex(2)), Term(1)) << "a follower may be asked for it";
  EXPECT_EQ(cluster.At(1).snapshot().last.index, LogIndex(4));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_Compaction, ATailIsBoundedInBytesToo) {
  Options options;
  options.tail_max_bytes = 250;
  TestCluster cluster(1, options);
  cluster.Elect(1);
  for (int i = 0; i < 5; ++i) cluster.Propose(1, std::string(100, 'x'));
  cluster.TakeSnapshot(1);
  EXPECT_EQ(cluster.At(1).log().start().index, LogIndex(4)) << "two entries of 121 bytes";
}

TEST(Raft_7_Compaction, EachNodeCompactsByItself) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  cluster.TakeSnapshot(2);
  EXPECT_EQ(cluster.At(2).log().start().index, LogIndex(2));
  EXPECT_EQ(cluster.At(1).log().start().index, LogIndex());
  cluster.Propose(1, "b");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(cluster.Applied(2), ElementsAre("a", "b"));
}

TEST(Raft_7_Compaction, ANodeStartsWithItsSnapshotAndTheLogAfterIt) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  cluster.Propose(1, "b");
  cluster.Deliver();
  cluster.Crash(1);
  cluster.Restart(1);
  EXPECT_EQ(cluster.At(1).commit(), LogIndex(2)) << "what is in a snapshot is committed";
  EXPECT_THAT(cluster.Applied(1), ElementsAre("a"));
  cluster.Elect(1);
  EXPECT_THAT(cluster.Applied(1), ElementsAre("a", "b"));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_Compaction, AnElectionIsWonWithACompactedLog) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  for (const uint64_t id : {1, 2, 3}) cluster.TakeSnapshot(id);
  cluster.Crash(1);
  cluster.Elect(2);
  cluster.Propose(2, "b");
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(2), ElementsAre("a", "b"));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_InstallSnapshot, AFollowerGetsWhatTheLogNoLongerHoldsAndThenAppends) {
  TestCluster cluster(3, WithTail(0));
  SnapshotsNeeded needed(cluster);
  LeaveThirdBehind(cluster);
  LetItProbe(cluster, 1);
  ASSERT_THAT(needed.asked, ElementsAre(3));
  cluster.SendSnapshot(1, 3);
  cluster.Propose(1, "c");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a", "b", "c"));
  EXPECT_EQ(cluster.At(3).log().start().index, LogIndex(3));
  EXPECT_FALSE(cluster.At(1).progress()[2].awaits_snapshot());
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_InstallSnapshot, ALogThatConflictsIsDiscarded) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(3);
  cluster.Isolate(3);
  for (const char* text : {"x", "y", "z", "never"}) cluster.Propose(3, text);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  cluster.Heal();
  ASSERT_GT(cluster.At(3).log().last_index(), cluster.At(1).snapshot().last.index);
  cluster.SendSnapshot(1, 3);
  EXPECT_EQ(cluster.At(3).log().last_index(), cluster.At(1).snapshot().last.index) << "figure 13, step 7";
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a"));
  cluster.Crash(3);
  cluster.Restart(3);
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a"));
  EXPECT_EQ(cluster.At(3).log().last_index(), cluster.At(1).snapshot().last.index);
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_InstallSnapshot, WhatFollowsAnEntryOfTheSnapshotIsKept) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Propose(1, "b");
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  // It has more, and has not heard yet that anything of it is committed.
  const AppendRequest more{.prev_index = LogIndex(3),
                           .prev_term = Term(1),
                           .commit = LogIndex(1),
                           .entries = {{.term = Term(1), .index = LogIndex(4), .payload = Payload("c")}}};
  cluster.Inject({.from = NodeId(1), .to = NodeId(3), .term = Term(1), .body = more});
  cluster.DeliverOnce(1, 3);
  const LogIndex last = cluster.At(3).log().last_index();
  ASSERT_LT(cluster.At(3).commit(), cluster.At(1).snapshot().last.index);
  cluster.SendSnapshot(1, 3);
  EXPECT_EQ(last, LogIndex(4));
  EXPECT_EQ(cluster.At(3).log().last_index(), last) << "figure 13, step 6";
  EXPECT_EQ(cluster.At(3).commit(), cluster.At(1).snapshot().last.index);
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a", "b"));
}

TEST(Raft_7_InstallSnapshot, WhatIsAppliedAlreadyIsOnlyAcknowledged) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  cluster.Propose(1, "b");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  ASSERT_THAT(cluster.Applied(3), ElementsAre("a", "b"));
  cluster.SendSnapshot(1, 3);
  EXPECT_FALSE(cluster.Last().install.has_value());
  ASSERT_EQ(cluster.Last().send.size(), 1u);
  EXPECT_EQ(std::get<AppendReply>(cluster.Last().send[0].body).index, LogIndex(3));
}

TEST(Raft_7_InstallSnapshot, OneOfAnOlderTermIsRefused) {
  TestCluster cluster(3, WithTail(0));
  LeaveThirdBehind(cluster);
  const Snapshot snapshot = cluster.At(1).snapshot();
  cluster.Isolate(1);
  cluster.Elect(2);
  ASSERT_GT(cluster.At(3).term(), Term(1));
  cluster.Crash(3);
  cluster.Restart(3);
  const LogIndex commit = cluster.At(3).commit();
  cluster.SendSnapshot(1, 3);
  EXPECT_EQ(cluster.At(3).commit(), commit) << "figure 13, step 1";
  EXPECT_THAT(cluster.Last().send, IsEmpty());
}

TEST(Raft_7_InstallSnapshot, OneOfANewerTermMakesAFollowerOfItsLeader) {
  TestCluster cluster(3, WithTail(0));
  cluster.Isolate(3);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  cluster.Heal();
  ASSERT_LT(cluster.At(3).term(), cluster.At(1).term());
  cluster.SendSnapshot(1, 3);
  EXPECT_EQ(cluster.At(3).term(), cluster.At(1).term());
  EXPECT_EQ(cluster.At(3).leader(), NodeId(1));
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a"));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_InstallSnapshot, IsAcknowledgedOnceTheNewStartIsDurable) {
  TestCluster cluster(3, WithTail(0));
  LeaveThirdBehind(cluster);
  cluster.HoldDisk(3);
  cluster.SendSnapshot(1, 3);
  EXPECT_THAT(cluster.Last().send, IsEmpty());
  EXPECT_LT(cluster.At(3).durable(), LogIndex(3));
  cluster.Crash(3);
  cluster.Restart(3);
  EXPECT_EQ(cluster.At(3).log().start().index, LogIndex()) << "received, and not installed";
  cluster.HoldDisk(3);
  cluster.SendSnapshot(1, 3);
  cluster.ReleaseDisk(3);
  EXPECT_EQ(cluster.At(3).durable(), LogIndex(3));
  ASSERT_EQ(cluster.Last().send.size(), 1u);
  EXPECT_EQ(std::get<AppendReply>(cluster.Last().send[0].body).index, LogIndex(3));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_7_InstallSnapshot, ReadsThatWaitedForItAreAnswered) {
  TestCluster cluster(3, WithTail(0));
  LeaveThirdBehind(cluster);
  LetItProbe(cluster, 1);
  ReadLog reads(cluster);
  const uint64_t tag = cluster.Read(3);
  cluster.Deliver();
  EXPECT_THAT(reads.ready, IsEmpty()) << "the leader has committed what this node lacks";
  cluster.SendSnapshot(1, 3);
  EXPECT_THAT(reads.ready, ElementsAre(tag));
}

// What was on its way when the log was compacted, and comes again.
TEST(Raft_7_InstallSnapshot, AnAppendFromBeforeTheLogsStartStillCounts) {
  TestCluster cluster(3, WithTail(0));
  LeaveThirdBehind(cluster);
  cluster.SendSnapshot(1, 3);
  cluster.DropAll();
  AppendRequest request{.prev_index = LogIndex(1), .prev_term = Term(1), .commit = LogIndex(3)};
  for (const uint64_t index : {2, 3, 4}) {
    request.entries.push_back({.term = Term(1),
                               .index = LogIndex(index),
                               .payload = Payload(index == 2   ? "a"
                                                  : index == 3 ? "b"
                                                               : "c")});
  }
  cluster.Inject({.from = NodeId(1), .to = NodeId(3), .term = Term(1), .body = request});
  cluster.DeliverOnce(1, 3);
  EXPECT_EQ(cluster.At(3).log().last_index(), LogIndex(4));
  request.entries.resize(1);
  cluster.Inject({.from = NodeId(1), .to = NodeId(3), .term = Term(1), .body = request});
  cluster.DeliverOnce(1, 3);
  EXPECT_EQ(cluster.At(3).log().last_index(), LogIndex(4));
  const auto& reply = std::get<AppendReply>(cluster.Last().send.at(0).body);
  EXPECT_TRUE(reply.accepted);
  EXPECT_EQ(reply.index, LogIndex(3)) << "committed, so the leader has it, too";
}

TEST(Raft_7_InstallSnapshot, SoDoesOneThatTheKernelPartAccepted) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  cluster.TakeSnapshot(3);
  AppendRequest request{.prev_index = LogIndex(1), .prev_term = Term(1), .commit = {}};
  request.entries.push_back({.term = Term(1), .index = LogIndex(2), .payload = Payload("a")});
  request.entries.push_back({.term = Term(1), .index = LogIndex(3), .payload = Payload("b")});
  cluster.Step(3, KernelAppended{.leader = NodeId(1), .term = Term(1), .request = request, .arrived_ns = 1});
  EXPECT_EQ(cluster.At(3).log().last_index(), LogIndex(3));
}

TEST(Dissertation_5_Snapshots, AFollowerThatWaitsForOneIsSentHeartbeatsAndNothingElse) {
  TestCluster cluster(3, WithTail(0));
  SnapshotsNeeded needed(cluster);
  LeaveThirdBehind(cluster);
  LetItProbe(cluster, 1);
  ASSERT_TRUE(cluster.At(1).progress()[2].awaits_snapshot());
  for (int i = 0; i < 20; ++i) {
    cluster.Propose(1, "x");
    for (const Message& message : cluster.network()) {
      EXPECT_FALSE(message.to == NodeId(3) && std::holds_alternative<AppendRequest>(message.body));
    }
    cluster.HeartbeatRounds(1);
  }
  EXPECT_EQ(cluster.At(1).applied(), cluster.At(1).log().last_index()) << "the others go on";
  EXPECT_THAT(needed.asked, ElementsAre(3)) << "once";
  EXPECT_EQ(cluster.At(1).role(), Role::kLeader);
}

TEST(Dissertation_5_Snapshots, OneThatFailedIsAskedForAgainWithTheNextHeartbeat) {
  TestCluster cluster(3, WithTail(0));
  SnapshotsNeeded needed(cluster);
  LeaveThirdBehind(cluster);
  LetItProbe(cluster, 1);
  cluster.Step(1, SnapshotSent{.to = NodeId(3), .index = {}, .delivered = false});
  cluster.Propose(1, "x");
  EXPECT_THAT(needed.asked, ElementsAre(3));
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(needed.asked, ElementsAre(3, 3));
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(needed.asked, ElementsAre(3, 3));
}

TEST(Dissertation_5_Snapshots, ALostAcknowledgementOfOneIsAskedForByAnAppend) {
  TestCluster cluster(3, WithTail(0));
  LeaveThirdBehind(cluster);
  LetItProbe(cluster, 1);
  cluster.SendSnapshot(1, 3);
  cluster.DropAll();
  cluster.Step(1, SnapshotSent{.to = NodeId(3), .index = LogIndex(3), .delivered = true});
  cluster.Deliver();
  EXPECT_EQ(cluster.At(1).progress()[2].match(), LogIndex(3));
}

TEST(Dissertation_5_Snapshots, ALogThatWasCompactedOnceMoreMeanwhileTakesAnother) {
  TestCluster cluster(3, WithTail(0));
  SnapshotsNeeded needed(cluster);
  LeaveThirdBehind(cluster);
  LetItProbe(cluster, 1);
  cluster.SendSnapshot(1, 3);
  cluster.Propose(1, "c");
  cluster.Cut(1, 3);
  cluster.Deliver();
  cluster.TakeSnapshot(1);
  cluster.Heal();
  LetItProbe(cluster, 1);
  EXPECT_THAT(needed.asked, ElementsAre(3, 3));
  cluster.SendSnapshot(1, 3);
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a", "b", "c"));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(SnapshotDeathTest, OfWhatIsNotAppliedIsABrokenInvariant) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Isolate(1);
  cluster.Propose(1, "a");
  const Snapshot snapshot{.last = {.index = LogIndex(2), .term = Term(1)}, .configuration = {}};
  EXPECT_DEATH(cluster.Step(1, SnapshotTaken{.snapshot = snapshot}), "broken invariant");
}

}  // namespace
}  // namespace hedgerow::raft
