// SPDX-License-Identifier: Apache-2.0
//
// A leader that hears no majority (dissertation section 6.2) asks whether it may go on before it steps down.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMillisecond = 1'000'000;

class QuorumCheck : public testing::Test {
 protected:
  QuorumCheck() {
    cluster_.Elect(1);
    cluster_.HeartbeatRounds(1, 3);
    term_ = cluster_.At(1).term();
  }

  // All answers are late: what it has sent meanwhile is lost.
  void LetItCheck() {
    while (!cluster_.At(1).checks_quorum() && cluster_.At(1).role() == Role::kLeader) {
      cluster_.DropAll();
      cluster_.TickAtDeadline(1);
    }
    ASSERT_TRUE(cluster_.At(1).checks_quorum());
  }

  void ItLeadsOn() const {
    EXPECT_FALSE(cluster_.At(1).checks_quorum());
    EXPECT_EQ(cluster_.At(1).role(), Role::kLeader);
    for (const uint64_t id : {1, 2, 3}) {
      EXPECT_EQ(cluster_.At(id).term(), term_);
      EXPECT_EQ(cluster_.At(id).leader(), NodeId(1));
    }
    EXPECT_THAT(cluster_.violation(), IsEmpty());
  }

  // As a follower's process or kernel part would, were it asked now.
  void Confirm(uint64_t id, Term asked_term) {
    cluster_.Step(1,
                  Receive{.message = {.from = NodeId(id),
                                      .to = NodeId(1),
                                      .term = term_,
                                      .body = VoteReply{.asked_term = asked_term, .pre_vote = true, .granted = true}}});
  }

  TestCluster cluster_{3};
  Term term_;
};

TEST_F(QuorumCheck, BeginsAfterOneTimeout) {
  const uint64_t heard_ns = cluster_.now_ns();
  LetItCheck();
  EXPECT_EQ(cluster_.now_ns(), heard_ns + cluster_.At(1).detector().timeout_ns());
  EXPECT_EQ(cluster_.At(1).counters().quorum_checks, 1u);
}

TEST_F(QuorumCheck, EndsWithAMajorityThatWouldVoteForIt) {
  LetItCheck();
  std::vector<Role> roles;
  cluster_.Observe([&](NodeId, const Outputs& outputs) {
    if (outputs.role_change.has_value()) roles.push_back(outputs.role_change->role);
    EXPECT_FALSE(outputs.stand.has_value());
  });
  cluster_.Deliver();
  ItLeadsOn();
  EXPECT_THAT(roles, IsEmpty());
  for (const uint64_t id : {2, 3}) EXPECT_EQ(cluster_.At(id).detector().leader_heard_ns(), cluster_.now_ns());
  EXPECT_FALSE(cluster_.At(2).suspected_term().value()) << "heard again";
  const uint64_t checked_ns = cluster_.now_ns();
  cluster_.HeartbeatRounds(1, 20);
  EXPECT_EQ(cluster_.At(1).counters().quorum_checks, 1u);
  EXPECT_GT(cluster_.now_ns(), checked_ns + 2 * cluster_.At(1).detector().network_timeout_ns());
}

TEST_F(QuorumCheck, EndsWithALateAnswerToAHeartbeat) {
  cluster_.TickAtDeadline(1);
  cluster_.DeliverOnce(1, 2);
  ASSERT_FALSE(cluster_.network().empty());
  const std::vector<Message> answers(cluster_.network().begin(), cluster_.network().end());
  LetItCheck();
  cluster_.DropAll();
  for (const Message& answer : answers) {
    if (answer.from == NodeId(2)) cluster_.Inject(answer);
  }
  cluster_.Deliver();
  ItLeadsOn();
}

// Followers must be able to miss it: they may hear it though it does not hear them.
TEST_F(QuorumCheck, NothingIsSentMeanwhileByWhichALeaderIsHeard) {
  LetItCheck();
  cluster_.Propose(1, "a");
  ReadLog reads(cluster_);
  const uint64_t tag = cluster_.Read(1);
  while (cluster_.At(1).checks_quorum()) {
    for (const Message& message : cluster_.network()) {
      const auto* request = std::get_if<VoteRequest>(&message.body);
      ASSERT_NE(request, nullptr);
      EXPECT_TRUE(request->pre_vote);
      EXPECT_EQ(request->transfer_term, term_);
    }
    if (cluster_.At(1).next_deadline_ns() + kMillisecond > cluster_.At(2).election_deadline_ns()) break;
    cluster_.TickAtDeadline(1);
  }
  EXPECT_THAT(cluster_.Applied(1), IsEmpty());
  EXPECT_THAT(reads.ready, IsEmpty());
  cluster_.Deliver();
  ItLeadsOn();
  EXPECT_THAT(cluster_.Applied(1), ElementsAre("a"));
  EXPECT_THAT(reads.ready, ElementsAre(tag));
}

TEST_F(QuorumCheck, OneOfFiveIsNoMajority) {
  TestCluster five(5);
  five.Elect(1);
  five.HeartbeatRounds(1, 3);
  while (!five.At(1).checks_quorum()) {
    five.DropAll();
    five.TickAtDeadline(1);
  }
  for (const uint64_t id : {3, 4, 5}) five.Cut(id, 1);
  five.Deliver();
  EXPECT_TRUE(five.At(1).checks_quorum()) << "node 2 alone would vote for it";
  five.Heal();
  five.TickAtDeadline(1);
  five.Deliver();
  EXPECT_FALSE(five.At(1).checks_quorum());
  EXPECT_EQ(five.At(1).role(), Role::kLeader);
}

TEST_F(QuorumCheck, ItConfirmsNoLeaderNotEvenItself) {
  LetItCheck();
  cluster_.Crash(3);
  cluster_.DropAll();
  while (cluster_.At(2).role() == Role::kFollower) cluster_.TickAtDeadline(2);
  ASSERT_TRUE(cluster_.At(1).checks_quorum());
  cluster_.Exchange(2, 1);
  EXPECT_EQ(cluster_.At(2).role(), Role::kCandidate) << "by the vote of the leader alone";
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(2).role(), Role::kLeader);
  EXPECT_EQ(cluster_.At(1).leader(), NodeId(2));
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

// Only hearing a leader ends a suspicion, and a leader hears none.
TEST_F(QuorumCheck, ItRecordsNoSuspectedTerm) {
  LetItCheck();
  cluster_.Inject({.from = NodeId(2),
                   .to = NodeId(1),
                   .term = term_,
                   .body = VoteRequest{.asked_term = term_.Next(),
                                       .last_index = cluster_.At(2).log().last_index(),
                                       .last_term = term_,
                                       .pre_vote = true}});
  cluster_.DeliverOnce(2, 1);
  ASSERT_TRUE(cluster_.At(1).checks_quorum());
  EXPECT_EQ(cluster_.At(1).suspected_term(), Term());
  cluster_.Deliver();
  EXPECT_EQ(cluster_.At(1).suspected_term(), Term());
}

TEST_F(QuorumCheck, TheLeaderStepsDownWhenNoMajorityAnswersWithinASecondTimeout) {
  const uint64_t heard_ns = cluster_.now_ns();
  LetItCheck();
  cluster_.Isolate(1);
  while (cluster_.At(1).role() == Role::kLeader) cluster_.TickAtDeadline(1);
  EXPECT_FALSE(cluster_.At(1).checks_quorum());
  EXPECT_EQ(cluster_.At(1).role(), Role::kPreCandidate);
  EXPECT_EQ(cluster_.now_ns(), heard_ns + 2 * cluster_.At(1).detector().timeout_ns());
}

// A dead follower's kernel part answers until its lease is over. That is heard, and no progress: its leader steps down
// that much later, and its timeout does not grow by it.
TEST_F(QuorumCheck, WhatOnlyKernelPartsConfirmEndsNoPause) {
  const uint64_t timeout_ns = cluster_.At(1).detector().timeout_ns();
  cluster_.Crash(2);
  cluster_.Crash(3);
  const uint64_t lease_end_ns = cluster_.now_ns() + 10 * timeout_ns;
  while (cluster_.At(1).role() == Role::kLeader) {
    cluster_.DropAll();
    cluster_.TickAtDeadline(1);
    EXPECT_LE(cluster_.At(1).next_deadline_ns(), cluster_.now_ns() + timeout_ns);
    EXPECT_EQ(cluster_.At(1).detector().timeout_ns(), timeout_ns);
    if (cluster_.At(1).checks_quorum() && cluster_.now_ns() < lease_end_ns) Confirm(2, term_.Next());
  }
  EXPECT_GE(cluster_.At(1).counters().quorum_checks, 9u);
  EXPECT_GE(cluster_.now_ns(), lease_end_ns);
  EXPECT_LE(cluster_.now_ns(), lease_end_ns + 2 * timeout_ns);
}

TEST_F(QuorumCheck, AConfirmationForAnotherTermIsNone) {
  LetItCheck();
  Confirm(2, term_);
  EXPECT_TRUE(cluster_.At(1).checks_quorum()) << "from before it was elected";
  Confirm(2, term_.Next().Next());
  EXPECT_TRUE(cluster_.At(1).checks_quorum());
  Confirm(2, term_.Next());
  EXPECT_FALSE(cluster_.At(1).checks_quorum());
}

// An acknowledgement that is late when a check begins asks for it again.
TEST_F(QuorumCheck, NoHoleIsFilledMeanwhile) {
  TestCluster five(5);
  five.Elect(1);
  five.HeartbeatRounds(1, 3);
  for (const uint64_t id : {3, 4, 5}) five.Crash(id);
  const uint64_t heard_ns = five.now_ns();
  const uint64_t check_ns = heard_ns + five.At(1).detector().timeout_ns();
  while (five.At(1).next_deadline_ns() < check_ns) {
    five.TickAtDeadline(1);
    five.Deliver();
  }
  five.ProposeAndLose(1, "lost");
  for (int i = 0; i < 9; ++i) five.Propose(1, "late");
  five.DeliverOnce(1, 2);
  ASSERT_EQ(five.At(2).reordered_appends(), 9u);
  five.TickAtDeadline(1);
  ASSERT_TRUE(five.At(1).checks_quorum());
  five.DeliverOnce(2, 1);
  ASSERT_TRUE(five.At(1).checks_quorum());
  EXPECT_GE(five.At(1).counters().holes_in_flight, 9u);
  EXPECT_EQ(five.At(1).counters().holes_sent_again, 0u);
}

TEST_F(QuorumCheck, ATransferIsGivenUpWhenItsTimeIsOver) {
  cluster_.Isolate(1);
  LetItCheck();
  cluster_.Propose(1, "a");
  cluster_.Step(1, TransferLeadership{.target = NodeId(2)});
  ASSERT_TRUE(cluster_.At(1).transferring());
  cluster_.Wait(cluster_.At(1).detector().network_timeout_ns());
  cluster_.Heal();
  Confirm(2, term_.Next());
  EXPECT_FALSE(cluster_.At(1).checks_quorum());
  cluster_.Tick(1);
  EXPECT_FALSE(cluster_.At(1).transferring());
  cluster_.Deliver();
  ItLeadsOn();
}

// Its process or its host was stopped. How long is known only to who was not.
TEST_F(QuorumCheck, ALeaderThatStoodStillAsksFirstToo) {
  cluster_.Wait(10 * cluster_.At(1).detector().timeout_ns());
  cluster_.Tick(1);
  EXPECT_TRUE(cluster_.At(1).checks_quorum());
  cluster_.Deliver();
  ItLeadsOn();
}

TEST_F(QuorumCheck, AMemberWithAnotherLeaderEndsIt) {
  cluster_.Isolate(1);
  cluster_.Elect(2);
  cluster_.DropAll();
  cluster_.Heal();
  cluster_.Wait(cluster_.At(1).detector().timeout_ns());
  cluster_.Tick(1);
  ASSERT_TRUE(cluster_.At(1).checks_quorum());
  cluster_.Deliver();
  EXPECT_FALSE(cluster_.At(1).checks_quorum());
  EXPECT_EQ(cluster_.At(1).role(), Role::kFollower);
  EXPECT_EQ(cluster_.At(1).term(), cluster_.At(2).term());
  EXPECT_THAT(cluster_.violation(), IsEmpty());
}

}  // namespace
}  // namespace hedgerow::raft
