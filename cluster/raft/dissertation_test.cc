// SPDX-License-Identifier: Apache-2.0
//
// What the dissertation adds to the paper, one test a rule, named after its section; and the rules of
// docs/SAFETY.md that can be seen from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMillisecond = 1'000'000;

TEST(Dissertation_3_10_Transfer, TheTargetLeadsAtOnce) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Step(1, TransferLeadership{.target = NodeId(3)});
  cluster.Deliver();
  EXPECT_EQ(cluster.At(3).role(), Role::kLeader);
  EXPECT_EQ(cluster.At(1).role(), Role::kFollower);
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a"));
}

TEST(Dissertation_3_10_Transfer, IsGivenUpAfterAnElectionTimeout) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Crash(3);
  cluster.Step(1, TransferLeadership{.target = NodeId(3)});
  cluster.Propose(1, "refused");
  ASSERT_EQ(cluster.Last().refused_proposals.size(), 1u);
  EXPECT_EQ(cluster.Last().refused_proposals[0].reason, RefusalReason::kTransferring);
  const uint64_t end_ns = cluster.now_ns() + cluster.At(1).detector().timeout_ns();
  while (cluster.now_ns() < end_ns) cluster.HeartbeatRounds(1);
  cluster.Propose(1, "taken");
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(1), ElementsAre("taken"));
}

TEST(Dissertation_4_2_3_Disruption, WhoHearsALeaderIgnoresCandidates) {
  TestCluster cluster(3);
  cluster.Elect(1);
  const Term term = cluster.At(2).term();
  cluster.Inject({.from = NodeId(3),
                  .to = NodeId(2),
                  .term = Term(50),
                  .body = VoteRequest{
                      .asked_term = Term(50), .last_index = LogIndex(90), .last_term = Term(49), .transfer_term = {}}});
  cluster.DeliverOnce(3, 2);
  EXPECT_EQ(cluster.At(2).term(), term);
  EXPECT_TRUE(cluster.network().empty());
}

TEST(Dissertation_4_2_3_Disruption, AResignationIsForOneTermOnly) {
  TestCluster cluster(3);
  cluster.Elect(1);
  const Term term = cluster.At(2).term();
  cluster.Step(2, LeaderResigns{.leader = NodeId(1), .term = Term(term.value() - 1)});
  EXPECT_TRUE(cluster.network().empty()) << "of an earlier term";
  cluster.Step(2, LeaderResigns{.leader = NodeId(3), .term = term});
  EXPECT_TRUE(cluster.network().empty()) << "of a node that does not lead";
  cluster.Step(2, LeaderResigns{.leader = NodeId(1), .term = term});
  cluster.Deliver();
  EXPECT_EQ(cluster.At(2).role(), Role::kLeader) << "the others clung to the leader, but it has resigned";
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Dissertation_4_2_3_Disruption, ALaterSuccessorWaitsForItsTurn) {
  TestCluster cluster(3);
  cluster.Elect(1);
  const uint64_t before_ns = cluster.now_ns();
  cluster.Step(3, LeaderResigns{.leader = NodeId(1), .term = cluster.At(1).term(), .rank = 2});
  EXPECT_TRUE(cluster.network().empty());
  EXPECT_EQ(cluster.At(3).next_deadline_ns(), before_ns + 4 * kMillisecond);
}

TEST(Dissertation_6_2_CheckQuorum, ALeaderWithoutAMajorityMakesWay) {
  TestCluster cluster(5);
  cluster.Elect(1);
  cluster.Isolate(4);
  cluster.Isolate(5);
  const uint64_t end_ns = cluster.now_ns() + 10 * cluster.At(1).detector().timeout_ns();
  while (cluster.now_ns() < end_ns) cluster.HeartbeatRounds(1);
  EXPECT_EQ(cluster.At(1).role(), Role::kLeader) << "three of five answer";
  cluster.Isolate(3);
  cluster.Isolate(2);
  const uint64_t cut_ns = cluster.now_ns();
  while (cluster.At(1).role() == Role::kLeader && cluster.now_ns() < end_ns * 2) cluster.TickAtDeadline(1);
  EXPECT_EQ(cluster.At(1).role(), Role::kPreCandidate);
  EXPECT_LE(cluster.now_ns(), cut_ns + 2 * cluster.At(1).detector().timeout_ns());
}

// Its followers may have heard it all the time, and be patient: they are not to refuse it for its own sake.
TEST(Dissertation_6_2_CheckQuorum, ALeaderThatMadeWayMayBeElectedAgainAtOnce) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HeartbeatRounds(1, 3);
  const Term term = cluster.At(1).term();
  // Their answers are late; its heartbeats and then its pre-votes are there.
  while (cluster.At(1).role() == Role::kLeader) cluster.TickAtDeadline(1);
  const uint64_t made_way_ns = cluster.now_ns();
  cluster.Deliver();
  for (const uint64_t id : {2, 3}) EXPECT_EQ(cluster.At(id).detector().leader_heard_ns(), made_way_ns);
  EXPECT_EQ(cluster.At(1).role(), Role::kLeader);
  EXPECT_EQ(cluster.At(1).term(), term.Next());
}

TEST(Dissertation_6_4_ReadIndex, ALeaderThatWasReplacedAnswersNoRead) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Isolate(1);
  cluster.Elect(2);
  ReadLog reads(cluster);
  ASSERT_EQ(cluster.At(1).role(), Role::kLeader) << "as far as it knows";
  cluster.Read(1);
  cluster.Deliver();
  EXPECT_THAT(reads.ready, IsEmpty());
}

TEST(Dissertation_6_4_ReadIndex, ARoundThatBeganBeforeTheReadProvesNothing) {
  TestCluster cluster(3);
  cluster.Elect(1);
  ReadLog reads(cluster);
  cluster.TickAtDeadline(1);  // a round is under way
  cluster.DeliverOnce(1, 2);
  cluster.DeliverOnce(1, 3);
  const std::vector<Message> old_answers(cluster.network().begin(), cluster.network().end());
  cluster.DropAll();
  const uint64_t tag = cluster.Read(1);
  cluster.DropAll();
  for (const Message& answer : old_answers) cluster.Inject(answer);
  cluster.Deliver();
  EXPECT_THAT(reads.ready, IsEmpty());
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(reads.ready, ElementsAre(tag));
}

TEST(Dissertation_6_4_ReadIndex, ANewLeaderWaitsForItsNoOp) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  cluster.Isolate(1);
  ReadLog reads(cluster);
  cluster.HoldDisk(3);
  cluster.HoldDisk(2);
  cluster.Wait(4'000'000'000);
  cluster.Tick(2);
  cluster.Deliver();
  cluster.ReleaseDisk(2);  // its own vote; then the request goes out
  cluster.Deliver();
  cluster.ReleaseDisk(3);
  cluster.HoldDisk(3);
  cluster.HoldDisk(2);
  cluster.Deliver();
  ASSERT_EQ(cluster.At(2).role(), Role::kLeader);
  const uint64_t tag = cluster.Read(2);
  cluster.Deliver();
  cluster.HeartbeatRounds(2);
  EXPECT_THAT(reads.ready, IsEmpty()) << "heartbeats are answered, but the no-op is not committed";
  cluster.ReleaseDisk(2);
  cluster.ReleaseDisk(3);
  cluster.Deliver();
  EXPECT_THAT(reads.ready, ElementsAre(tag));
}

TEST(Dissertation_6_4_ReadIndex, AFollowerReadsWhatWasWrittenBefore) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  ASSERT_THAT(cluster.Applied(3), IsEmpty()) << "it has not heard that it is committed";
  ReadLog reads(cluster);
  const uint64_t tag = cluster.Read(3);
  cluster.Deliver();
  EXPECT_THAT(reads.ready, ElementsAre(tag));
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a"));
}

TEST(Dissertation_6_4_ReadIndex, AnAnswerToAnEarlierQuestionDoesNotFitALaterRead) {
  TestCluster cluster(3);
  cluster.Elect(1);
  ReadLog reads(cluster);
  cluster.Read(3);
  cluster.DeliverOnce(3, 1);
  cluster.Exchange(1, 2);
  // The answer is on its way, and slow. A second read comes, and the question is repeated for both.
  Message late;
  for (const Message& message : cluster.network()) {
    if (std::holds_alternative<ReadIndexReply>(message.body)) late = message;
  }
  ASSERT_EQ(late.to, NodeId(3));
  cluster.DropAll();
  cluster.Read(3);
  cluster.TickAtDeadline(3);  // the same question to all members, for the first
  cluster.DropAll();
  cluster.TickAtDeadline(3);
  cluster.Inject(late);
  cluster.DeliverOnce(1, 3);
  EXPECT_THAT(reads.ready, IsEmpty());
  cluster.Deliver();
  EXPECT_EQ(reads.ready.size(), 2u);
}

TEST(Dissertation_6_4_ReadIndex, AReadWithoutALeaderEndsAtItsDeadline) {
  TestCluster cluster(3);
  ReadLog reads(cluster);
  const uint64_t tag = cluster.Read(1);
  cluster.Wait(2'000'000'000);
  cluster.Tick(1);
  EXPECT_THAT(reads.refused, ElementsAre(tag));
}

TEST(Dissertation_9_6_PreVote, AnIsolatedNodeKeepsItsTerm) {
  TestCluster cluster(3);
  cluster.Elect(1);
  const Term term = cluster.At(3).term();
  cluster.Isolate(3);
  const uint64_t end_ns = cluster.now_ns() + 1'000 * kMillisecond;
  while (cluster.now_ns() < end_ns) {
    cluster.TickAtDeadline(1);
    cluster.Tick(3);
    cluster.Deliver();
  }
  EXPECT_EQ(cluster.At(3).role(), Role::kPreCandidate);
  EXPECT_EQ(cluster.At(3).term(), term);
  cluster.Heal();
  cluster.HeartbeatRounds(1);
  EXPECT_EQ(cluster.At(1).role(), Role::kLeader);
  EXPECT_EQ(cluster.At(3).leader(), NodeId(1));
}

TEST(Dissertation_9_6_PreVote, ANodeOfAnOlderTermMaySayYes) {
  TestCluster cluster(3);
  cluster.SetLog(1, {.term = Term(7), .voted_for = {}}, {1});
  cluster.SetLog(2, {.term = Term(5), .voted_for = {}}, {1});
  cluster.Isolate(3);
  cluster.Elect(1);
  EXPECT_EQ(cluster.At(2).leader(), NodeId(1));
}

// What a node says of the elections that it begins, and of nothing else.
class Stands : public testing::Test {
 protected:
  Stands() {
    cluster_.Elect(1);
    cluster_.Deliver();
    cluster_.HeartbeatRounds(1);
    cluster_.Observe([this](NodeId node, const Outputs& outputs) {
      if (outputs.stand.has_value()) stands_.emplace_back(node.value(), *outputs.stand);
    });
  }
  TestCluster cluster_{3};
  std::vector<std::pair<uint64_t, Stand>> stands_;
};

TEST_F(Stands, AFollowerSaysHowLongItsLeaderWasSilent) {
  cluster_.Isolate(1);
  const uint64_t heard_ns = cluster_.At(2).detector().leader_heard_ns();
  cluster_.TickAtDeadline(2);
  ASSERT_EQ(stands_.size(), 1u);
  const auto& [node, stand] = stands_[0];
  EXPECT_EQ(node, 2u);
  EXPECT_EQ(stand.reason, StandReason::kSilentLeader);
  EXPECT_EQ(stand.leader, NodeId(1));
  EXPECT_EQ(stand.term, cluster_.At(2).term().Next());
  EXPECT_EQ(stand.silent_ns, cluster_.now_ns() - heard_ns);
  EXPECT_GE(stand.silent_ns, cluster_.At(2).detector().network_timeout_ns());
  cluster_.TickAtDeadline(2);  // its pre-vote came to nothing
  ASSERT_EQ(stands_.size(), 2u);
  EXPECT_EQ(stands_[1].second.reason, StandReason::kNoLeader);
  EXPECT_EQ(stands_[1].second.silent_ns, 0u);
}

TEST_F(Stands, ALeaderSaysHowLongItHeardNoMajority) {
  cluster_.Isolate(1);
  const uint64_t isolated_ns = cluster_.now_ns();
  while (cluster_.At(1).role() == Role::kLeader) cluster_.TickAtDeadline(1);
  ASSERT_EQ(stands_.size(), 1u);
  const auto& [node, stand] = stands_[0];
  EXPECT_EQ(node, 1u);
  EXPECT_EQ(stand.reason, StandReason::kSilentMajority);
  EXPECT_EQ(stand.leader, NodeId(1));
  EXPECT_EQ(stand.silent_ns, cluster_.now_ns() - isolated_ns);
}

TEST_F(Stands, ResignationsAndHandoversAreTold) {
  cluster_.Step(2, LeaderResigns{.leader = NodeId(1), .term = cluster_.At(2).term(), .rank = 1});
  EXPECT_TRUE(stands_.empty()) << "the first in rank may do it";
  cluster_.TickAtDeadline(2);
  ASSERT_EQ(stands_.size(), 1u);
  EXPECT_EQ(stands_[0].second.reason, StandReason::kResigned);
  cluster_.Deliver();
  ASSERT_EQ(cluster_.At(2).role(), Role::kLeader);
  cluster_.Step(3, LeaderResigns{.leader = NodeId(2), .term = cluster_.At(3).term(), .rank = 0});
  ASSERT_EQ(stands_.size(), 2u);
  EXPECT_EQ(stands_[1].second.reason, StandReason::kResigned);
  EXPECT_EQ(stands_[1].second.leader, NodeId(2));
  cluster_.Deliver();
  ASSERT_EQ(cluster_.At(3).role(), Role::kLeader);
  cluster_.Step(3, TransferLeadership{.target = NodeId(1)});
  cluster_.Deliver();
  ASSERT_EQ(cluster_.At(1).role(), Role::kLeader);
  ASSERT_EQ(stands_.size(), 3u);
  EXPECT_EQ(stands_[2].second.reason, StandReason::kAsked);
  EXPECT_EQ(stands_[2].second.leader, NodeId(3));
}

TEST(Dissertation_10_2_1_ParallelWrite, TheLeaderSendsBeforeItsOwnDiskIsDone) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HoldDisk(1);
  cluster.Propose(1, "a");
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(1), ElementsAre("a")) << "two followers hold it";
}

TEST(Dissertation_10_2_2_Pipelining, InFlightIsBounded) {
  Options options;
  options.inflight_max_appends = 4;
  options.append_max_entries = 1;
  TestCluster cluster(3, options);
  cluster.Elect(1);
  for (int i = 0; i < 20; ++i) cluster.Propose(1, std::to_string(i));
  EXPECT_EQ(cluster.network().size(), 8u) << "four to each of two";
  cluster.Deliver();
  EXPECT_EQ(cluster.Applied(1).size(), 20u);
}

TEST(Dissertation_10_2_2_Batching, WhatGathersIsOneWriteAndOneAppend) {
  TestCluster cluster(3);
  cluster.Elect(1);
  Propose propose;
  for (uint64_t tag = 1; tag <= 5; ++tag) propose.proposals.push_back({.tag = tag, .payload = Payload("x")});
  int writes = 0;
  cluster.Observe([&writes](NodeId, const Outputs& outputs) { writes += outputs.persist.has_value(); });
  cluster.Step(1, propose);
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(cluster.network().size(), 2u);
}

TEST(Safety_R7, AVoteOfAnEarlierTermIsNotCounted) {
  TestCluster cluster(3);
  cluster.Wait(5'000'000'000);
  cluster.Tick(1);
  cluster.Exchange(1, 2);
  cluster.DeliverOnce(1, 2);
  ASSERT_EQ(cluster.network().back().from, NodeId(2));
  const Message vote = cluster.network().back();
  ASSERT_TRUE(std::get<VoteReply>(vote.body).granted);
  cluster.DropAll();
  // The vote is late. Node 1 tries again and is now a candidate of the next term.
  cluster.TickAtDeadline(1);
  cluster.Exchange(1, 3);
  ASSERT_EQ(cluster.At(1).role(), Role::kCandidate);
  ASSERT_GT(cluster.At(1).term(), vote.term);
  cluster.DropAll();
  cluster.Inject(vote);
  cluster.DeliverOnce(2, 1);
  EXPECT_EQ(cluster.At(1).role(), Role::kCandidate);
}

TEST(Safety_Input, UnknownPeersAndNonsenseChangeNothing) {
  TestCluster cluster(3);
  cluster.Elect(1);
  const Term term = cluster.At(2).term();
  const LogIndex last = cluster.At(2).log().last_index();
  AppendRequest gap{.prev_index = last, .prev_term = term, .commit = {}, .entries = {}};
  gap.entries.push_back({.term = term, .index = last + 2, .payload = {}});
  cluster.Inject({.from = NodeId(1), .to = NodeId(2), .term = term, .body = gap});
  cluster.Inject({.from = NodeId(9), .to = NodeId(2), .term = Term(99), .body = Heartbeat{}});
  cluster.Inject({.from = NodeId(2), .to = NodeId(2), .term = Term(99), .body = Heartbeat{}});
  cluster.Deliver();
  EXPECT_EQ(cluster.At(2).term(), term);
  EXPECT_EQ(cluster.At(2).log().last_index(), last);
}

}  // namespace
}  // namespace hedgerow::raft
