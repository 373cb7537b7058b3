// SPDX-License-Identifier: Apache-2.0
//
// A log that does not move (raft_stall.cc): the leader steps down where another member can do better, and only there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kMillisecond = 1'000'000;

class Stall : public testing::Test {
 protected:
  Stall() {
    cluster_.Elect(1);
    cluster_.HeartbeatRounds(1, 3);
    cluster_.Observe([this](NodeId, const Outputs& outputs) {
      if (outputs.step_down.has_value()) step_downs_.push_back(*outputs.step_down);
    });
  }

  // Heartbeats and their answers arrive; ends early when another member leads.
  void LeadFor(uint64_t duration_ns) {
    const uint64_t end_ns = cluster_.now_ns() + duration_ns;
    while (cluster_.now_ns() < end_ns && Leads(1)) cluster_.HeartbeatRounds(1);
  }

  bool Leads(uint64_t id) const { return cluster_.At(id).role() == Role::kLeader; }

  // As a filter does that lets only short datagrams of one node pass.
  static bool IsEntryOf1(const Message& message) {
    const auto* append = std::get_if<AppendRequest>(&message.body);
    return message.from == NodeId(1) && append != nullptr && !append->entries.empty();
  }

  TestCluster cluster_{3};
  std::vector<StepDown> step_downs_;
};

TEST_F(Stall, ALeaderWhoseDiskHangsHandsOverToAMemberThatCommitsWithoutIt) {
  cluster_.HoldDisk(1);
  cluster_.Propose(1, "a");
  LeadFor(400 * kMillisecond);
  EXPECT_TRUE(Leads(1)) << "a slow write is no fault yet";
  EXPECT_THAT(cluster_.Applied(2), ElementsAre("a")) << "the others commit without it";
  EXPECT_GE(cluster_.At(1).disk_stalled_ns(cluster_.now_ns()), 390 * kMillisecond);
  LeadFor(200 * kMillisecond);
  EXPECT_TRUE(Leads(2));
  ASSERT_THAT(step_downs_, SizeIs(1));
  EXPECT_EQ(step_downs_[0].cause, StallCause::kOwnDisk);
  EXPECT_EQ(step_downs_[0].to, NodeId(2));
  EXPECT_EQ(cluster_.At(1).counters().step_downs_own_disk, 1u);
  cluster_.Propose(2, "b");
  cluster_.Deliver();
  EXPECT_THAT(cluster_.Applied(2), ElementsAre("a", "b"));
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

// An ordinary transfer waits until the target has everything, and is given up after an election timeout.
TEST_F(Stall, AMemberThatIsAlwaysALittleBehindIsAskedToStandAllTheSame) {
  cluster_.HoldDisk(1);
  // The last entry that was proposed never arrives; the one before does.
  cluster_.Lose([this](const Message& message) {
    const auto* append = std::get_if<AppendRequest>(&message.body);
    return message.from == NodeId(1) && append != nullptr && !append->entries.empty() &&
           append->entries.back().index == cluster_.At(1).log().last_index();
  });
  const uint64_t end_ns = cluster_.now_ns() + 3000 * kMillisecond;
  while (cluster_.now_ns() < end_ns && Leads(1)) {
    cluster_.Propose(1, "x");
    cluster_.HeartbeatRounds(1, 2);
  }
  EXPECT_FALSE(Leads(1));
  EXPECT_GE(step_downs_.size(), 2u) << "the first attempts are ordinary transfers";
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

TEST_F(Stall, ALeaderWhoseEntriesNoVoterAcknowledgesAsksAnotherToLead) {
  cluster_.Lose(IsEntryOf1);
  cluster_.Propose(1, "a");
  LeadFor(400 * kMillisecond);
  EXPECT_TRUE(Leads(1));
  EXPECT_GE(cluster_.At(1).commit_stalled_ns(cluster_.now_ns()), 390 * kMillisecond);
  LeadFor(200 * kMillisecond);
  EXPECT_TRUE(Leads(2));
  ASSERT_THAT(step_downs_, SizeIs(1));
  EXPECT_EQ(step_downs_[0].cause, StallCause::kReplication);
  cluster_.Propose(2, "b");
  cluster_.Deliver();
  cluster_.HeartbeatRounds(2, 2);  // which tell what is committed
  EXPECT_THAT(cluster_.Applied(3), ElementsAre("b")) << "the old leader's entry was never committed";
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

TEST_F(Stall, AMemberWhoseDiskHangsDoesNotStandAndReadsGoOn) {
  cluster_.HoldDisk(2);
  cluster_.HoldDisk(3);
  cluster_.Propose(1, "a");
  const Term term = cluster_.At(1).term();
  LeadFor(20'000 * kMillisecond);
  EXPECT_TRUE(Leads(1));
  EXPECT_EQ(cluster_.At(1).term(), term);
  for (const uint64_t id : {2, 3}) {
    EXPECT_EQ(cluster_.At(id).term(), term) << "it must not give up a leader that it cannot replace";
  }
  EXPECT_THAT(step_downs_, SizeIs(testing::Le(6u))) << "attempts without any commit wait longer and longer";
  EXPECT_THAT(step_downs_, SizeIs(testing::Ge(2u)));
  ReadLog reads(cluster_);
  const uint64_t tag = cluster_.Read(1);
  cluster_.Deliver();
  cluster_.HeartbeatRounds(1);
  EXPECT_THAT(reads.ready, Contains(tag));
  cluster_.ReleaseDisk(2);
  cluster_.Deliver();
  EXPECT_THAT(cluster_.Applied(1), ElementsAre("a")) << "it goes on by itself";
}

TEST_F(Stall, ALeaderAndAFollowerWithFullDisksLeaveTheLeadWhereReadsWork) {
  cluster_.HoldDisk(2);
  cluster_.Propose(1, "a");
  cluster_.Deliver();
  EXPECT_THAT(cluster_.Applied(1), ElementsAre("a"));
  cluster_.HoldDisk(1);
  cluster_.Propose(1, "b");
  LeadFor(5'000 * kMillisecond);
  EXPECT_TRUE(Leads(1)) << "node 3 alone cannot be elected";
  EXPECT_THAT(step_downs_, IsEmpty());
  cluster_.ReleaseDisk(1);
  cluster_.Deliver();
  EXPECT_THAT(cluster_.Applied(1), ElementsAre("a", "b"));
}

TEST_F(Stall, ANodeThatStoodStillDoesNotTakeItForAStall) {
  cluster_.HoldDisk(1);
  cluster_.Propose(1, "a");
  cluster_.Propose(1, "b");
  cluster_.Deliver();
  cluster_.Wait(5'000 * kMillisecond);  // its process was stopped
  cluster_.HeartbeatRounds(1, 4);
  EXPECT_TRUE(Leads(1));
  EXPECT_THAT(step_downs_, IsEmpty());
  EXPECT_LT(cluster_.At(1).disk_stalled_ns(cluster_.now_ns()), 100 * kMillisecond);
}

TEST_F(Stall, AnIdleLeaderIsNotStalled) {
  LeadFor(5'000 * kMillisecond);
  EXPECT_EQ(cluster_.At(1).commit_stalled_ns(cluster_.now_ns()), 0u);
  cluster_.Propose(1, "a");
  EXPECT_EQ(cluster_.At(1).commit_stalled_ns(cluster_.now_ns()), 0u) << "it has just begun to wait";
  cluster_.Deliver();
  LeadFor(2'000 * kMillisecond);
  EXPECT_THAT(step_downs_, IsEmpty());
}

TEST_F(Stall, ACandidateAsksInOneTermUntilItsOwnVoteIsDurable) {
  cluster_.Isolate(1);
  cluster_.Wait(2'000 * kMillisecond);
  cluster_.HoldDisk(2);
  cluster_.Tick(2);
  cluster_.Deliver();
  ASSERT_EQ(cluster_.At(2).role(), Role::kCandidate);
  const Term term = cluster_.At(2).term();
  for (int i = 0; i < 20; ++i) {
    cluster_.TickAtDeadline(2);
    cluster_.Deliver();
  }
  EXPECT_EQ(cluster_.At(2).term(), term);
  EXPECT_EQ(cluster_.At(3).term().Next(), term) << "it has asked no member";
  cluster_.ReleaseDisk(2);
  cluster_.Deliver();
  EXPECT_TRUE(Leads(2));
}

}  // namespace
}  // namespace hedgerow::raft
