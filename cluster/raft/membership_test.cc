// SPDX-License-Identifier: Apache-2.0
//
// Changes of membership, one test a rule, named after the dissertation's section: when a configuration holds,
// who joins and who has left. The leader's own removal is in membership_leader_test.cc, joint consensus in
// membership_joint_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/membership_testing.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Dissertation_4_1_Safety = Membership;
using Dissertation_4_2_1_CatchingUp = Membership;
using Dissertation_4_2_3_RemovedServers = Membership;

TEST_F(Dissertation_4_1_Safety, AConfigurationHoldsFromTheMomentThatItIsInTheLog) {
  cluster_.Join(4);
  cluster_.Change(1, {Add(4)});
  EXPECT_EQ(cluster_.At(1).configuration().epoch, 1u);
  EXPECT_EQ(cluster_.At(2).configuration().epoch, 0u);
  cluster_.DeliverOnce(1, 2);
  EXPECT_EQ(cluster_.At(2).configuration().epoch, 1u) << "and nothing of it is committed";
  EXPECT_LT(cluster_.At(2).commit(), cluster_.At(2).log().last_index());
}

TEST_F(Dissertation_4_1_Safety, ATruncatedConfigurationIsGoneBackFrom) {
  cluster_.Isolate(1);
  cluster_.Change(1, {Remove(3)});
  ASSERT_TRUE(cluster_.At(1).configuration().joint());
  cluster_.Elect(2);
  cluster_.Heal();
  Done(2);
  EXPECT_EQ(cluster_.At(1).configuration().epoch, 0u);
  EXPECT_FALSE(cluster_.At(1).configuration().joint());
  EXPECT_THAT(Voters(cluster_, 1), ElementsAre(1, 2, 3));
}

TEST_F(Dissertation_4_1_Safety, OneChangeAtATime) {
  cluster_.Join(4);
  ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
  EXPECT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kUnfinished);
  cluster_.Deliver();
  EXPECT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  EXPECT_EQ(Ask(1, {Remove(2)}), ChangeRefusal::kUnfinished) << "joint";
}

// The mistake of single-server changes that was found in 2015.
TEST_F(Dissertation_4_1_Safety, NoChangeBeforeAnEntryOfTheLeadersOwnTermIsCommitted) {
  for (const uint64_t id : {2, 3}) cluster_.Isolate(id);
  cluster_.Wait(10'000'000'000);
  cluster_.Heal();
  cluster_.Tick(2);
  while (cluster_.At(2).role() != Role::kLeader) cluster_.Exchange(2, 3);
  EXPECT_EQ(Ask(2, {Remove(3)}), ChangeRefusal::kUnfinished);
  Done(2);
  EXPECT_EQ(Ask(2, {Remove(3)}), ChangeRefusal::kNone);
}

TEST_F(Dissertation_4_1_Safety, AVoteIsGivenToWhomOnesConfigurationDoesNotKnow) {
  cluster_.Isolate(3);
  AddFour();
  ASSERT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNone);
  Done(1);
  ASSERT_THAT(Voters(cluster_, 4), ElementsAre(1, 2, 3, 4));
  ASSERT_THAT(Voters(cluster_, 3), ElementsAre(1, 2, 3)) << "it has not heard of it";
  cluster_.Crash(1);
  cluster_.Heal();
  cluster_.Elect(4);
  EXPECT_EQ(cluster_.At(4).role(), Role::kLeader) << "by 2, 3 and itself";
}

// It has overtaken another append on its way: it is not in the log before that is.
TEST_F(Dissertation_4_1_Safety, AConfigurationThatCameEarlyDoesNotHoldYet) {
  cluster_.Join(4);
  cluster_.ProposeAndLose(1, "lost");
  ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
  cluster_.DeliverOnce(1, 2);
  ASSERT_EQ(cluster_.At(2).reordered_appends(), 1u);
  EXPECT_EQ(cluster_.At(2).configuration().epoch, 0u);
  for (int i = 0; i < 5; ++i) Done(1);
  EXPECT_EQ(cluster_.At(2).configuration().epoch, 1u);
  EXPECT_THAT(cluster_.Applied(2), ElementsAre("lost"));
  EXPECT_EQ(cluster_.At(2).reordered_appends(), 0u);
}

TEST_F(Dissertation_4_2_1_CatchingUp, ALearnerGetsEverythingAndCountsForNothing) {
  AddFour();
  cluster_.Crash(2);
  cluster_.Crash(3);
  cluster_.Propose(1, "a");
  cluster_.Deliver();
  EXPECT_THAT(cluster_.Applied(1), IsEmpty()) << "one voter of three, and a learner";
  EXPECT_EQ(cluster_.At(4).log().last_index(), cluster_.At(1).log().last_index());
  cluster_.Wait(10'000'000'000);
  cluster_.Tick(4);
  EXPECT_EQ(cluster_.At(4).role(), Role::kFollower) << "it never stands";
  cluster_.Tick(1);
  cluster_.Deliver();
  EXPECT_TRUE(cluster_.At(1).checks_quorum()) << "nor is it a majority that listens";
  while (cluster_.At(1).checks_quorum()) {
    cluster_.TickAtDeadline(1);
    cluster_.Deliver();
  }
  EXPECT_EQ(cluster_.At(1).role(), Role::kPreCandidate);
}

TEST_F(Dissertation_4_2_1_CatchingUp, ALearnerIsPromotedOnlyOnceItHasCaughtUp) {
  cluster_.Join(4);
  cluster_.Isolate(4);
  ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
  Done(1);
  EXPECT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNotCaughtUp) << "it has heard nothing yet";
  cluster_.Heal();
  Done(1);
  EXPECT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNone);
}

TEST_F(Dissertation_4_2_1_CatchingUp, ALearnerThatIsSilentHasNotCaughtUp) {
  AddFour();
  cluster_.Crash(4);
  cluster_.HeartbeatRounds(1, 20);
  EXPECT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNotCaughtUp);
}

TEST_F(Dissertation_4_2_1_CatchingUp, AFollowersAppliedStateIsALearnersToo) {
  cluster_.Propose(1, "before");
  cluster_.Deliver();
  AddFour();
  cluster_.Propose(1, "after");
  Done(1);
  EXPECT_THAT(cluster_.Applied(4), ElementsAre("before", "after"));
}

TEST_F(Dissertation_4_2_3_RemovedServers, NothingIsSaidToThemAnyMore) {
  ASSERT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  Done(1);
  EXPECT_EQ(cluster_.At(3).configuration().epoch, 2u) << "it was told that it leaves";
  cluster_.Propose(1, "a");
  cluster_.TickAtDeadline(1);
  for (const Message& message : cluster_.network()) EXPECT_NE(message.to, NodeId(3));
  EXPECT_FALSE(cluster_.network().empty());
}

TEST_F(Dissertation_4_2_3_RemovedServers, TheyDisturbNobodyAndAreCounted) {
  cluster_.Isolate(3);
  ASSERT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  Done(1);
  cluster_.Heal();
  const Term term = cluster_.At(1).term();
  cluster_.Wait(10'000'000'000);  // long enough that nobody clings to the leader
  cluster_.Tick(3);
  ASSERT_EQ(cluster_.At(3).role(), Role::kPreCandidate) << "it does not know";
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(2).term(), term);
  EXPECT_EQ(cluster_.At(3).role(), Role::kPreCandidate);
  EXPECT_GT(cluster_.At(2).refused_messages(), 0u);
}

TEST_F(Dissertation_4_2_3_RemovedServers, TheirAnswersDoNotDeposeALeader) {
  ASSERT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  Done(1);
  cluster_.Inject({.from = NodeId(3), .to = NodeId(1), .term = Term(99), .body = AppendReply{}});
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(1).role(), Role::kLeader);
}

TEST_F(Dissertation_4_2_3_RemovedServers, OneThatComesBackIsALearnerFirst) {
  ASSERT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  Done(1);
  cluster_.Propose(1, "meanwhile");
  Done(1);
  ASSERT_EQ(Ask(1, {Add(3)}), ChangeRefusal::kNone);
  Done(1);
  EXPECT_THAT(cluster_.Applied(3), ElementsAre("meanwhile"));
  ASSERT_EQ(Ask(1, {Promote(3)}), ChangeRefusal::kNone);
  Done(1);
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(1, 2, 3));
}

// R1: of whose slot it was before, nothing counts.
TEST_F(Membership, WhatTheKernelCountedForAFormerMemberIsNotTheNextOnes) {
  ASSERT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  Done(1);
  cluster_.Join(4);
  ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
  ASSERT_EQ(cluster_.At(1).configuration().SlotOf(NodeId(4)), 2u) << "the slot of node 3";
  cluster_.DropAll();
  KernelCounted counted{.term = cluster_.At(1).term()};
  counted.members[2] = {.match = cluster_.At(1).log().last_index(), .round = 1, .node = NodeId(3)};
  cluster_.Step(1, counted);
  EXPECT_EQ(cluster_.At(1).progress()[2].match(), LogIndex());
  counted.members[2].node = NodeId(4);
  cluster_.Step(1, counted);
  EXPECT_NE(cluster_.At(1).progress()[2].match(), LogIndex());
}

TEST(Membership_Snapshots, AMemberThatLeavesDuringATransferAndComesBackIsSentAnotherSnapshot) {
  TestCluster cluster(3, WithTail(0));
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  cluster.TakeSnapshot(1);
  SnapshotsNeeded needed(cluster);
  const auto go_on = [&cluster] {
    cluster.Deliver();
    cluster.HeartbeatRounds(1, 5);
  };
  cluster.Join(4);
  cluster.Change(1, {Add(4)});
  go_on();
  ASSERT_THAT(needed.asked, ElementsAre(4));
  cluster.Change(1, {Remove(4)});
  go_on();
  cluster.Step(1, SnapshotSent{.to = NodeId(4), .index = LogIndex(2), .delivered = true});
  cluster.Change(1, {Add(4)});
  ASSERT_EQ(cluster.At(1).configuration().SlotOf(NodeId(4)), 3u) << "the slot that it had";
  go_on();
  EXPECT_THAT(needed.asked, ElementsAre(4, 4));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

// Else a cluster that has lost too many to commit what fills its log could not be mended once some are back.
TEST(Membership_Bounds, AChangeHasRoomInALogThatIsFull) {
  Options options;
  options.uncommitted_max_entries = 3;
  TestCluster full(3, options);
  full.Elect(1);
  full.Isolate(1);
  for (int i = 0; i < 4; ++i) full.Propose(1, "x");
  ASSERT_EQ(full.Last().refused_proposals.size(), 1u);
  full.Join(4);
  full.Change(1, {Add(4)});
  EXPECT_EQ(full.Answer().refusal, ChangeRefusal::kNone);
  full.Heal();
  full.HeartbeatRounds(1, 20);
  EXPECT_EQ(full.Applied(2).size(), 3u);
  EXPECT_EQ(full.At(4).configuration().epoch, 1u);
  EXPECT_TRUE(full.At(1).configuration_committed());
  EXPECT_THAT(full.violation(), IsEmpty());
}

}  // namespace
}  // namespace hedgerow::raft
