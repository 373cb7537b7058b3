// SPDX-License-Identifier: Apache-2.0
//
// A split vote (Raft section 5.2) that every living member has seen: the term is given up at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::IsEmpty;

constexpr uint64_t kMillisecond = 1'000'000;

class SplitVote : public testing::Test {
 protected:
  // Node 1 leads, and dies. Its host tells both of the others that they are the first to stand.
  void LetBothStand() {
    cluster_.Elect(1);
    cluster_.HeartbeatRounds(1, 3);
    term_ = cluster_.At(1).term();
    cluster_.Crash(1);
    for (const uint64_t id : {2, 3}) {
      cluster_.Step(id, LeaderResigns{.leader = NodeId(1), .term = term_, .rank = 0});
    }
  }
  uint64_t Wait_ns(uint64_t id) const { return cluster_.At(id).election_deadline_ns() - cluster_.now_ns(); }
  uint64_t Timeout_ns() const { return cluster_.At(2).detector().network_timeout_ns(); }

  TestCluster cluster_{3};
  Term term_;
};

TEST_F(SplitVote, IsGivenUpAtOnceAndTriedAgainInTheOrderOfSlots) {
  LetBothStand();
  cluster_.Deliver();
  for (const uint64_t id : {2, 3}) {
    EXPECT_EQ(cluster_.At(id).role(), Role::kFollower);
    EXPECT_EQ(cluster_.At(id).term(), term_.Next());
    EXPECT_EQ(cluster_.At(id).voted_for(), NodeId(id));
    EXPECT_EQ(cluster_.At(id).counters().terms_given_up, 1u);
  }
  EXPECT_LE(Wait_ns(2), Timeout_ns() / 20);
  EXPECT_GE(Wait_ns(3), Timeout_ns() / 10);
  EXPECT_LE(Wait_ns(3), Timeout_ns() / 10 + Timeout_ns() / 20);
  cluster_.TickAtDeadline(2);
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(2).role(), Role::kLeader);
  EXPECT_EQ(cluster_.At(3).leader(), NodeId(2));
  EXPECT_EQ(cluster_.At(2).term(), term_.Next().Next());
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

// A dead leader's kernel part may grant a pre-vote to the second one before the first one's vote is durable.
TEST_F(SplitVote, TheSecondWaitsForAsLongAsItsOwnVoteTook) {
  LetBothStand();
  cluster_.HoldDisk(3);
  cluster_.Deliver();
  ASSERT_EQ(cluster_.At(3).role(), Role::kCandidate);
  cluster_.Wait(10 * kMillisecond);
  cluster_.ReleaseDisk(3);
  cluster_.Deliver();
  ASSERT_EQ(cluster_.At(3).role(), Role::kFollower);
  EXPECT_GE(Wait_ns(3), Timeout_ns() / 10 + 10 * kMillisecond);
}

// Its votes may wait for disks.
TEST_F(SplitVote, IsNoneWhileAnotherCandidateCanWin) {
  TestCluster five(5);
  five.Elect(1);
  five.HeartbeatRounds(1, 3);
  const Term term = five.At(1).term();
  five.Crash(1);
  for (const uint64_t id : {2, 3}) five.Step(id, LeaderResigns{.leader = NodeId(1), .term = term, .rank = 0});
  for (const uint64_t id : {4, 5}) five.HoldDisk(id);
  for (const uint64_t voter : {4, 5}) {
    for (const uint64_t candidate : {2, 3}) five.Exchange(candidate, voter);  // pre-votes
  }
  ASSERT_EQ(five.At(2).role(), Role::kCandidate);
  ASSERT_EQ(five.At(3).role(), Role::kCandidate);
  for (const uint64_t voter : {4, 5}) five.DeliverOnce(3, voter);
  five.Deliver();
  EXPECT_EQ(five.At(4).voted_for(), NodeId(3));
  EXPECT_EQ(five.At(2).role(), Role::kCandidate) << "all three have refused, and may be the other's majority";
  EXPECT_EQ(five.At(2).counters().terms_given_up, 0u);
  for (const uint64_t id : {4, 5}) five.ReleaseDisk(id);
  five.Deliver();
  EXPECT_EQ(five.At(3).role(), Role::kLeader);
  EXPECT_EQ(five.At(2).leader(), NodeId(3));
}

TEST_F(SplitVote, IsSeenAlsoByAVoteThatComesAfterTheRefusals) {
  TestCluster five(5);
  five.Elect(1);
  five.HeartbeatRounds(1, 3);
  const Term term = five.At(1).term();
  five.Crash(1);
  for (const uint64_t id : {2, 3}) five.Step(id, LeaderResigns{.leader = NodeId(1), .term = term, .rank = 0});
  five.HoldDisk(4);
  for (const uint64_t voter : {4, 5}) {
    for (const uint64_t candidate : {2, 3}) five.Exchange(candidate, voter);  // pre-votes
  }
  five.DeliverOnce(2, 4);
  five.DeliverOnce(3, 5);
  five.Deliver();
  ASSERT_EQ(five.At(4).voted_for(), NodeId(2));
  ASSERT_EQ(five.At(5).voted_for(), NodeId(3));
  ASSERT_EQ(five.At(2).role(), Role::kCandidate) << "the vote of 4 waits for its disk";
  five.ReleaseDisk(4);
  five.Deliver();
  EXPECT_EQ(five.At(2).role(), Role::kFollower);
  EXPECT_EQ(five.At(2).counters().terms_given_up, 1u);
  EXPECT_THAT(five.violation(), IsEmpty());
}

TEST_F(SplitVote, IsNoneWhileAMemberThatMayLiveHasNotAnswered) {
  cluster_.Elect(1);
  cluster_.HeartbeatRounds(1, 3);
  cluster_.Crash(1);
  while (cluster_.At(2).role() == Role::kFollower) cluster_.TickAtDeadline(2);
  while (cluster_.At(3).role() == Role::kFollower) cluster_.TickAtDeadline(3);
  cluster_.Deliver();
  for (const uint64_t id : {2, 3}) {
    EXPECT_EQ(cluster_.At(id).role(), Role::kCandidate);
    EXPECT_EQ(cluster_.At(id).term(), cluster_.At(2).term()) << "each has refused the other";
    EXPECT_EQ(cluster_.At(id).counters().terms_given_up, 0u);
  }
}

// It may be a short log that is refused, and then it is for another to stand.
TEST_F(SplitVote, IsTriedAgainSoonOnlyTwice) {
  LetBothStand();
  cluster_.Crash(3);
  for (uint64_t given_up = 0; given_up < 3; ++given_up) {
    while (cluster_.At(2).role() != Role::kPreCandidate) cluster_.TickAtDeadline(2);
    const Term asked = cluster_.At(2).term().Next();
    cluster_.Step(2, Receive{.message = {.from = NodeId(1),
                                         .to = NodeId(2),
                                         .term = term_,
                                         .body = VoteReply{.asked_term = asked, .pre_vote = true, .granted = true}}});
    ASSERT_EQ(cluster_.At(2).role(), Role::kCandidate);
    EXPECT_EQ(cluster_.At(2).counters().terms_given_up, given_up);
    cluster_.Step(2, Receive{.message = {.from = NodeId(3),
                                         .to = NodeId(2),
                                         .term = asked,
                                         .body = VoteReply{.asked_term = asked, .granted = false}}});
  }
  EXPECT_EQ(cluster_.At(2).role(), Role::kCandidate);
  EXPECT_EQ(cluster_.At(2).counters().terms_given_up, 2u);
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

}  // namespace
}  // namespace hedgerow::raft
