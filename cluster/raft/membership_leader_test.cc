// SPDX-License-Identifier: Apache-2.0
//
// Changes of membership that end a leadership, and transfers in the midst of a change: one test a rule, named
// after the dissertation's section.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/membership_testing.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Dissertation_4_2_2_RemovingTheLeader = Membership;
using Dissertation_3_10_TransferDuringChanges = Membership;

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
  ASSERT_NO_FATAL_FAILURE(RemoveLeaderUpToTheLastAcknowledgements());
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
  for (const uint64_t id : {4, 5}) ASSERT_NO_FATAL_FAILURE(AddLearner(id));
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
  Stand(3);
  ASSERT_NE(cluster_.At(3).role(), Role::kLeader);
  Stand(2);
  for (int i = 0; i < 3; ++i) {
    for (const uint64_t id : {2, 3, 4, 5}) {
      if (cluster_.At(id).role() == Role::kLeader) Done(id);
    }
  }
  EXPECT_EQ(cluster_.At(2).role(), Role::kFollower) << "it led until the entry was committed, and stepped down";
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(3, 4, 5));
  EXPECT_TRUE(cluster_.At(3).configuration_committed());
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
  ASSERT_NO_FATAL_FAILURE(RemoveLeaderUpToTheLastAcknowledgements());
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

}  // namespace
}  // namespace hedgerow::raft
