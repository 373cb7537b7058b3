// SPDX-License-Identifier: Apache-2.0
//
// Joint consensus: whatever decides needs a majority of the old members and one of the new. One test a rule,
// named after the dissertation's section.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/membership_testing.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Dissertation_4_3_JointConsensus = Membership;

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
  for (const uint64_t id : {4, 5}) ASSERT_NO_FATAL_FAILURE(AddLearner(id));
  ASSERT_EQ(Ask(1, {Promote(4), Promote(5), Remove(1), Remove(2)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3, 4, 5}) cluster_.DeliverOnce(1, id);  // and no answer gets back
  cluster_.DropAll();
  cluster_.Isolate(1);
  cluster_.Isolate(2);
  Stand(3);
  EXPECT_EQ(cluster_.At(3).role(), Role::kPreCandidate) << "all of {3, 4, 5}, and one of {1, 2, 3}";
  cluster_.Heal();
  cluster_.Isolate(1);
  Stand(3);
  EXPECT_EQ(cluster_.At(3).role(), Role::kLeader);
  Done(3);
  EXPECT_THAT(Voters(cluster_, 3), ElementsAre(3, 4, 5)) << "a new leader ends what the last one began";
}

TEST_F(Dissertation_4_3_JointConsensus, AQuorumCheckNeedsAMajorityOfEach) {
  for (const uint64_t id : {4, 5}) ASSERT_NO_FATAL_FAILURE(AddLearner(id));
  ASSERT_EQ(Ask(1, {Promote(4), Promote(5), Remove(2), Remove(3)}), ChangeRefusal::kNone);
  for (const uint64_t id : {2, 3, 4, 5}) cluster_.DeliverOnce(1, id);  // {1, 2, 3} and {1, 4, 5}
  while (!cluster_.At(1).checks_quorum()) {
    cluster_.DropAll();
    cluster_.TickAtDeadline(1);
  }
  ASSERT_TRUE(cluster_.At(1).configuration().joint());
  for (const uint64_t id : {2, 3}) cluster_.Exchange(1, id);
  EXPECT_TRUE(cluster_.At(1).checks_quorum()) << "all of the old, and one of the new";
  cluster_.Exchange(1, 4);
  EXPECT_FALSE(cluster_.At(1).checks_quorum());
  Done(1);
  EXPECT_THAT(Voters(cluster_, 1), ElementsAre(1, 4, 5));
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
  ASSERT_EQ(Ask(1, {{.kind = MemberChange::Kind::kMove, .node = NodeId(2), .address = "10.0.0.9:4802"}}),
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

}  // namespace
}  // namespace hedgerow::raft
