// SPDX-License-Identifier: Apache-2.0
//
// Changes of membership, one test a rule, named after the dissertation's section. Who decides is checked by the
// invariants after each step; the simulator does all of this in bad weather.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/test_cluster.h"

namespace hedgerow::raft {
namespace {

using Kind = MemberChange::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

MemberChange Add(uint64_t node) { return {.kind = Kind::kAddLearner, .node = NodeId(node)}; }
MemberChange Promote(uint64_t node) { return {.kind = Kind::kPromote, .node = NodeId(node)}; }
MemberChange Remove(uint64_t node) { return {.kind = Kind::kRemove, .node = NodeId(node)}; }

std::vector<uint64_t> Voters(const TestCluster& cluster, uint64_t id) {
  const Configuration& now = cluster.At(id).configuration();
  std::vector<uint64_t> voters;
  for (const Member& member : now.members) {
    if (((now.deciding() >> member.position) & 1) != 0) voters.push_back(member.id.value());
  }
  std::sort(voters.begin(), voters.end());
  return voters;
}

class Membership : public testing::Test {
 protected:
  Membership() { cluster_.Elect(1); }
  ~Membership() override { EXPECT_THAT(cluster_.violation(), IsEmpty()); }

  ChangeRefusal Ask(uint64_t leader, std::vector<MemberChange> changes) {
    cluster_.Change(leader, std::move(changes));
    return cluster_.Answer().refusal;
  }
  // Until everybody has heard that it is done.
  void Done(uint64_t leader) {
    cluster_.Deliver();
    cluster_.HeartbeatRounds(leader, 5);
  }
  void AddFour() {
    cluster_.Join(4);
    ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
    Done(1);
    ASSERT_EQ(cluster_.At(4).commit(), cluster_.At(1).commit());
  }

  TestCluster cluster_{3};
};
using Dissertation_4_1_Safety = Membership;
using Dissertation_4_2_1_CatchingUp = Membership;
using Dissertation_4_2_2_RemovingTheLeader = Membership;
using Dissertation_4_2_3_RemovedServers = Membership;
using Dissertation_4_3_JointConsensus = Membership;
using Dissertation_3_10_TransferDuringChanges = Membership;

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
  EXPECT_EQ(cluster_.At(1).role(), Role::kFollower) << "nor is it a majority that listens";
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

TEST_F(Dissertation_4_2_2_RemovingTheLeader, ItLeadsUntilThatIsCommittedAndMakesWayAtOnce) {
  ASSERT_EQ(Ask(1, {Remove(1)}), ChangeRefusal::kNone);
  EXPECT_EQ(cluster_.At(1).role(), Role::kLeader);
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(1).role(), Role::kFollower);
  const bool led = cluster_.At(2).role() == Role::kLeader || cluster_.At(3).role() == Role::kLeader;
  EXPECT_TRUE(led) << "without waiting for an election timeout";
  EXPECT_THAT(Voters(cluster_, 2), ElementsAre(2, 3));
}

TEST_F(Dissertation_4_2_2_RemovingTheLeader, ItsLastWordIsHeardByWhoKnowsAlreadyThatItHasLeft) {
  ASSERT_EQ(Ask(1, {Remove(1)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3}) cluster_.Exchange(1, id);
  ASSERT_FALSE(cluster_.At(1).configuration().joint());
  for (const uint64_t id : {2, 3}) cluster_.DeliverOnce(1, id);
  cluster_.DropAll();
  cluster_.Read(1);
  uint64_t round = 0;
  for (const Message& message : cluster_.network()) {
    if (const auto* beat = std::get_if<Heartbeat>(&message.body)) round = std::max(round, beat->round);
  }
  cluster_.DropAll();
  cluster_.Read(1);  // its round begins with the end of the first one's, in the step that commits
  KernelCounted counted{.term = cluster_.At(1).term()};
  for (const uint64_t id : {2, 3}) {
    counted.members[id - 1] = {.match = cluster_.At(1).log().last_index(), .round = round, .node = NodeId(id)};
  }
  cluster_.Step(1, counted);
  ASSERT_EQ(cluster_.At(1).role(), Role::kFollower);
  ASSERT_TRUE(std::holds_alternative<Heartbeat>(cluster_.network().front().body));
  cluster_.Deliver();
  const bool led = cluster_.At(2).role() == Role::kLeader || cluster_.At(3).role() == Role::kLeader;
  EXPECT_TRUE(led) << "without waiting for an election timeout";
}

TEST_F(Dissertation_4_2_2_RemovingTheLeader, ItCountsItselfNoMore) {
  AddFour();
  ASSERT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNone);
  Done(1);
  ASSERT_EQ(Ask(1, {Remove(1)}), ChangeRefusal::kNone);  // {1, 2, 3, 4} and {2, 3, 4}
  for (const uint64_t id : {2, 3}) cluster_.Exchange(1, id);
  const LogIndex last = cluster_.At(1).log().last_index();
  ASSERT_FALSE(cluster_.At(1).configuration().joint());
  cluster_.Exchange(1, 2);
  EXPECT_LT(cluster_.At(1).commit(), last) << "one of three, and itself";
  EXPECT_EQ(cluster_.At(1).role(), Role::kLeader);
  cluster_.Exchange(1, 3);
  EXPECT_EQ(cluster_.At(1).commit(), last);
  EXPECT_EQ(cluster_.At(1).role(), Role::kFollower);
}

TEST_F(Dissertation_4_2_2_RemovingTheLeader, WhoseLogSaysThatItLeavesStillStandsWhenItAloneCanWin) {
  // 1 and 2 leave for 4 and 5; the last of it reaches nobody but 2.
  for (const uint64_t id : {4, 5}) {
    cluster_.Join(id);
    ASSERT_EQ(Ask(1, {Add(id)}), ChangeRefusal::kNone);
    Done(1);
  }
  ASSERT_EQ(Ask(1, {Promote(4), Promote(5), Remove(1), Remove(2)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3, 4, 5}) cluster_.DeliverOnce(1, id);
  for (const uint64_t id : {3, 4, 5}) cluster_.Isolate(id);
  for (const uint64_t id : {2, 4, 5}) cluster_.DeliverOnce(id, 1);
  ASSERT_FALSE(cluster_.At(1).configuration().joint());
  cluster_.DeliverOnce(1, 2);
  ASSERT_FALSE(cluster_.At(2).configuration().joint());
  cluster_.DropAll();
  cluster_.Heal();
  cluster_.Crash(1);
  // A majority of {1, 2, 3} has to agree to whoever stands under the joint configuration, and 2 will not.
  cluster_.Wait(10'000'000'000);
  cluster_.Tick(3);
  cluster_.Deliver();
  ASSERT_NE(cluster_.At(3).role(), Role::kLeader);
  cluster_.Wait(10'000'000'000);
  cluster_.Tick(2);
  cluster_.Deliver();
  for (int i = 0; i < 3; ++i) {
    for (const uint64_t id : {2, 3, 4, 5}) {
      if (cluster_.At(id).role() == Role::kLeader) Done(id);
    }
  }
  EXPECT_EQ(cluster_.At(2).role(), Role::kFollower) << "it has led them to it, and made way";
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(3, 4, 5));
  EXPECT_TRUE(cluster_.At(3).configuration_committed());
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

TEST(Membership_Snapshots, WhoLeavesWhileASnapshotIsOnItsWayAndComesBackIsSentAnother) {
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
  ASSERT_EQ(cluster.At(1).configuration().PositionOf(NodeId(4)), 3u) << "the position that it had";
  go_on();
  EXPECT_THAT(needed.asked, ElementsAre(4, 4));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST_F(Dissertation_4_3_JointConsensus, CommitmentNeedsAMajorityOfEach) {
  AddFour();
  cluster_.Isolate(3);
  ASSERT_EQ(Ask(1, {Promote(4), Remove(2)}), ChangeRefusal::kNone);  // {1, 2, 3} and {1, 3, 4}
  const LogIndex joint = cluster_.At(1).log().last_index();
  cluster_.Exchange(1, 2);
  EXPECT_LT(cluster_.At(1).commit(), joint) << "a majority of the old alone";
  cluster_.Exchange(1, 4);
  EXPECT_EQ(cluster_.At(1).commit(), joint);
  EXPECT_EQ(cluster_.At(1).log().last_index(), joint.Next()) << "the new configuration follows by itself";
}

TEST_F(Dissertation_4_3_JointConsensus, ElectionsNeedAMajorityOfEach) {
  for (const uint64_t id : {4, 5}) {
    cluster_.Join(id);
    ASSERT_EQ(Ask(1, {Add(id)}), ChangeRefusal::kNone);
    Done(1);
  }
  ASSERT_EQ(Ask(1, {Promote(4), Promote(5), Remove(1), Remove(2)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3, 4, 5}) cluster_.DeliverOnce(1, id);  // and no answer gets back
  cluster_.DropAll();
  cluster_.Isolate(1);
  cluster_.Isolate(2);
  cluster_.Wait(10'000'000'000);
  cluster_.Tick(3);
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(3).role(), Role::kPreCandidate) << "all of {3, 4, 5}, and one of {1, 2, 3}";
  cluster_.Heal();
  cluster_.Isolate(1);
  cluster_.Wait(10'000'000'000);
  cluster_.Tick(3);
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(3).role(), Role::kLeader);
  Done(3);
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(3, 4, 5)) << "a new leader ends what the last one began";
}

TEST_F(Dissertation_4_3_JointConsensus, ReadsNeedAMajorityOfEach) {
  AddFour();
  ReadLog reads(cluster_);
  cluster_.Isolate(3);
  cluster_.Isolate(4);
  ASSERT_EQ(Ask(1, {Promote(4), Remove(2)}), ChangeRefusal::kNone);
  const uint64_t tag = cluster_.Read(1);
  cluster_.Deliver();
  EXPECT_THAT(reads.ready, IsEmpty()) << "2 has answered, a majority of the old alone";
  cluster_.Heal();
  cluster_.HeartbeatRounds(1);
  EXPECT_THAT(reads.ready, ElementsAre(tag));
}

TEST_F(Dissertation_4_3_JointConsensus, ASnapshotCarriesTheConfigurationOfItsIndex) {
  AddFour();
  ASSERT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNone);
  Done(1);
  cluster_.TakeSnapshot(1);
  cluster_.Join(5);
  ASSERT_EQ(Ask(1, {Add(5)}), ChangeRefusal::kNone);
  cluster_.DropAll();
  cluster_.SendSnapshot(1, 5);
  EXPECT_THAT(Voters(cluster_, 5), ElementsAre(1, 2, 3, 4));
  cluster_.Crash(5);
  cluster_.Restart(5);
  EXPECT_THAT(Voters(cluster_, 5), ElementsAre(1, 2, 3, 4)) << "a start goes on from it";
}

TEST_F(Dissertation_4_3_JointConsensus, AnAddressChangesInOneEntry) {
  ASSERT_EQ(Ask(1, {{.kind = Kind::kMove, .node = NodeId(2), .address = "10.0.0.9:4802"}}),
            ChangeRefusal::kNone);
  Done(1);
  EXPECT_EQ(cluster_.At(3).configuration().Find(NodeId(2))->address, "10.0.0.9:4802");
  EXPECT_EQ(cluster_.At(3).configuration().epoch, 1u);
}

TEST_F(Dissertation_4_3_JointConsensus, AClusterOfOneGrowsAndShrinks) {
  TestCluster one(1);
  one.Elect(1);
  one.Join(2);
  one.Change(1, {Add(2)});
  one.Deliver();
  one.HeartbeatRounds(1, 3);
  one.Change(1, {Promote(2)});
  one.Deliver();
  ASSERT_THAT(Voters(one, 1), ElementsAre(1, 2));
  one.Change(1, {Remove(1)});
  one.Deliver();
  EXPECT_EQ(one.At(2).role(), Role::kLeader);
  one.Propose(2, "alone");
  EXPECT_THAT(one.Applied(2), ElementsAre("alone"));
  EXPECT_THAT(one.violation(), IsEmpty());
}

TEST_F(Dissertation_3_10_TransferDuringChanges, OnlyToWhomWillVote) {
  AddFour();
  cluster_.Step(1, TransferLeadership{.target = NodeId(4)});
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(1).role(), Role::kLeader) << "a learner";
  cluster_.Change(1, {Remove(3)});
  cluster_.Step(1, TransferLeadership{.target = NodeId(3)});
  cluster_.Propose(1, "taken");
  EXPECT_THAT(cluster_.Last().refused_proposals, IsEmpty()) << "nobody that leaves";
  cluster_.Deliver();
}

TEST_F(Dissertation_3_10_TransferDuringChanges, AChangeWaitsForATransfer) {
  cluster_.Crash(3);
  cluster_.Step(1, TransferLeadership{.target = NodeId(3)});
  EXPECT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kTransferring);
  EXPECT_EQ(Ask(2, {Remove(3)}), ChangeRefusal::kNotLeader);
}

// Its own removal is committed while its target is still behind, or has been told and is not heard of.
TEST_F(Dissertation_3_10_TransferDuringChanges, ALeaderThatHasLeftMakesWayAllTheSame) {
  ASSERT_EQ(Ask(1, {Remove(1)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3}) cluster_.Exchange(1, id);
  ASSERT_FALSE(cluster_.At(1).configuration().joint());
  for (const uint64_t id : {2, 3}) cluster_.DeliverOnce(1, id);
  cluster_.Step(1, TransferLeadership{.target = NodeId(3)});
  cluster_.DeliverOnce(2, 1);
  ASSERT_EQ(cluster_.At(1).role(), Role::kLeader) << "one of two";
  cluster_.DeliverOnce(3, 1);
  EXPECT_EQ(cluster_.At(1).role(), Role::kFollower);
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(3).role(), Role::kLeader) << "whom it was being transferred to";
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(2, 3));
}

TEST_F(Dissertation_3_10_TransferDuringChanges, TheNextLeaderEndsAJointChange) {
  AddFour();
  ASSERT_EQ(Ask(1, {Promote(4)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3, 4}) cluster_.DeliverOnce(1, id);
  cluster_.Step(1, TransferLeadership{.target = NodeId(2)});
  cluster_.Deliver();
  cluster_.Elect(2);
  Done(2);
  EXPECT_FALSE(cluster_.At(2).configuration().joint());
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(1, 2, 3, 4));
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

// It has overtaken another append on its way: it is not in the log before that is.
TEST_F(Dissertation_4_1_Safety, AConfigurationThatCameEarlyDoesNotHoldYet) {
  cluster_.Join(4);
  cluster_.ProposeAndLose(1, "lost");
  ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
  cluster_.DeliverOnce(1, 2);
  ASSERT_EQ(cluster_.At(2).early_appends(), 1u);
  EXPECT_EQ(cluster_.At(2).configuration().epoch, 0u);
  for (int i = 0; i < 5; ++i) Done(1);
  EXPECT_EQ(cluster_.At(2).configuration().epoch, 1u);
  EXPECT_THAT(cluster_.Applied(2), ElementsAre("lost"));
  EXPECT_EQ(cluster_.At(2).early_appends(), 0u);
}

// R1: of whose position it was before, nothing counts.
TEST_F(Membership, WhatTheKernelCountedForAFormerMemberIsNotTheNextOnes) {
  ASSERT_EQ(Ask(1, {Remove(3)}), ChangeRefusal::kNone);
  Done(1);
  cluster_.Join(4);
  ASSERT_EQ(Ask(1, {Add(4)}), ChangeRefusal::kNone);
  ASSERT_EQ(cluster_.At(1).configuration().PositionOf(NodeId(4)), 2u) << "the position of node 3";
  cluster_.DropAll();
  KernelCounted counted{.term = cluster_.At(1).term()};
  counted.members[2] = {.match = cluster_.At(1).log().last_index(), .round = 1, .node = NodeId(3)};
  cluster_.Step(1, counted);
  EXPECT_EQ(cluster_.At(1).progress()[2].match(), LogIndex());
  counted.members[2].node = NodeId(4);
  cluster_.Step(1, counted);
  EXPECT_NE(cluster_.At(1).progress()[2].match(), LogIndex());
}

}  // namespace
}  // namespace hedgerow::raft
