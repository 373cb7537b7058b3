// SPDX-License-Identifier: Apache-2.0
//
// One test for each rule of the paper that can be seen from outside, named after its section.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <typename Body>
int CountInFlight(const TestCluster& cluster) {
  return static_cast<int>(std::count_if(cluster.network().begin(), cluster.network().end(),
                                        [](const Message& m) { return std::holds_alternative<Body>(m.body); }));
}

TEST(Raft_5_1_Terms, AnOlderTermIsRefusedAndItsSenderStepsDown) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Isolate(1);
  cluster.Elect(2);
  cluster.Heal();
  ASSERT_EQ(cluster.At(1).role(), Role::kLeader) << "it cannot know yet";
  cluster.Step(1, Tick{});
  cluster.Deliver();
  EXPECT_EQ(cluster.At(1).role(), Role::kFollower);
  EXPECT_EQ(cluster.At(2).role(), Role::kLeader);
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_5_2_Election, AVoteIsGivenOncePerTerm) {
  TestCluster cluster(3);
  const VoteRequest request{.asked_term = Term(5), .last_index = {}, .last_term = {}, .transfer_term = {}};
  for (const uint64_t candidate : {1, 2, 1}) {
    cluster.Inject({.from = NodeId(candidate), .to = NodeId(3), .term = Term(5), .body = request});
  }
  cluster.DeliverOnce(1, 3);
  const auto first = std::get<VoteReply>(cluster.network().back().body);
  EXPECT_TRUE(first.granted);
  cluster.DeliverOnce(2, 3);
  EXPECT_FALSE(std::get<VoteReply>(cluster.network().back().body).granted);
  EXPECT_EQ(cluster.At(3).voted_for(), NodeId(1));
}

TEST(Raft_5_2_Election, AVoteSurvivesARestart) {
  TestCluster cluster(3);
  const VoteRequest request{.asked_term = Term(5), .last_index = {}, .last_term = {}, .transfer_term = {}};
  cluster.Inject({.from = NodeId(1), .to = NodeId(3), .term = Term(5), .body = request});
  cluster.DeliverOnce(1, 3);
  cluster.Crash(3);
  cluster.Restart(3);
  EXPECT_EQ(cluster.At(3).voted_for(), NodeId(1));
  cluster.Inject({.from = NodeId(2), .to = NodeId(3), .term = Term(5), .body = request});
  cluster.DeliverOnce(2, 3);
  EXPECT_FALSE(std::get<VoteReply>(cluster.network().back().body).granted);
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_5_2_Election, AnEvenClusterNeedsMoreThanHalf) {
  TestCluster cluster(4);
  cluster.Isolate(3);
  cluster.Isolate(4);
  cluster.Wait(5'000'000'000);
  cluster.Tick(1);
  cluster.Deliver();
  EXPECT_EQ(cluster.At(1).role(), Role::kPreCandidate);
}

TEST(Raft_5_2_Election, ASplitVoteIsTriedAgainInALaterTerm) {
  TestCluster cluster(4);
  // Both pairs elect their own.
  cluster.Wait(5'000'000'000);
  cluster.Tick(1);
  cluster.Tick(2);
  cluster.Deliver();
  const bool first = cluster.At(1).role() == Role::kLeader;
  const bool second = cluster.At(2).role() == Role::kLeader;
  EXPECT_FALSE(first && second && cluster.At(1).term() == cluster.At(2).term());
  if (!first && !second) cluster.Elect(1);
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_5_2_Election, ACandidateFollowsTheLeaderOfItsTerm) {
  TestCluster cluster(3);
  cluster.Wait(5'000'000'000);
  cluster.Tick(1);
  cluster.Exchange(1, 2);
  ASSERT_EQ(cluster.At(1).role(), Role::kCandidate);
  cluster.DropAll();
  cluster.Inject({.from = NodeId(3),
                  .to = NodeId(1),
                  .term = cluster.At(1).term(),
                  .body = Heartbeat{.round = 1, .commit = {}, .election_timeout_ns = 1}});
  cluster.DeliverOnce(3, 1);
  EXPECT_EQ(cluster.At(1).role(), Role::kFollower);
  EXPECT_EQ(cluster.At(1).leader(), NodeId(3));
}

TEST(Raft_5_3_Replication, AnEntryIsAppliedEverywhereOnceCommitted) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  cluster.Propose(1, "b");
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(1), ElementsAre("a", "b"));
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(cluster.Applied(2), ElementsAre("a", "b"));
  EXPECT_THAT(cluster.Applied(3), ElementsAre("a", "b"));
}

TEST(Raft_5_3_Replication, AnOldBatchThatArrivesLateTruncatesNothing) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Propose(1, "a");
  std::vector<Message> copies(cluster.network().begin(), cluster.network().end());
  cluster.Deliver();
  cluster.Propose(1, "b");
  cluster.Deliver();
  for (Message& copy : copies) cluster.Inject(copy);
  cluster.Deliver();
  cluster.HeartbeatRounds(1);
  EXPECT_THAT(cluster.Applied(2), ElementsAre("a", "b"));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_5_3_Replication, AcknowledgementsWaitForTheDisk) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HoldDisk(2);
  cluster.HoldDisk(3);
  cluster.Propose(1, "a");
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(1), IsEmpty()) << "only the leader holds it";
  cluster.ReleaseDisk(3);
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(1), ElementsAre("a"));
}

TEST(Raft_5_3_Replication, ARefusedFollowerIsRepairedWithOneRefusalPerTerm) {
  TestCluster cluster(3);
  cluster.SetLog(1, {.term = Term(9), .voted_for = {}}, {1, 1, 1, 4, 4, 5, 5, 6, 6, 6});
  cluster.SetLog(2, {.term = Term(6), .voted_for = {}}, {1, 1, 1, 4});
  cluster.SetLog(3, {.term = Term(3), .voted_for = {}}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3});
  int refusals = 0;
  cluster.Observe([&refusals](NodeId, const Outputs& outputs) {
    for (const Message& message : outputs.send) {
      const auto* reply = std::get_if<AppendReply>(&message.body);
      refusals += reply != nullptr && !reply->accepted;
    }
  });
  cluster.Elect(1);
  EXPECT_EQ(cluster.At(2).log().last_index(), cluster.At(1).log().last_index());
  EXPECT_EQ(cluster.At(3).log().last_index(), cluster.At(1).log().last_index());
  EXPECT_LE(refusals, 1 + 2);
}

TEST(Raft_5_4_1_ElectionRestriction, ACandidateWithAnOlderLogIsNotElected) {
  TestCluster cluster(3);
  cluster.SetLog(1, {.term = Term(4), .voted_for = {}}, {1, 1, 1, 1, 1});
  cluster.SetLog(2, {.term = Term(4), .voted_for = {}}, {1, 4});
  cluster.SetLog(3, {.term = Term(4), .voted_for = {}}, {1, 4});
  cluster.Wait(5'000'000'000);
  cluster.Tick(1);
  cluster.Deliver();
  EXPECT_EQ(cluster.At(1).role(), Role::kPreCandidate) << "longer, but of an older term";
  cluster.Elect(2);
  EXPECT_EQ(cluster.At(1).log().LastUpToTerm(Term(1)), LogIndex(1)) << "its uncommitted tail has gone";
}

// Raft figure 8: (a) node 1 leads term 2 and stores index 2 on nodes 1 and 2; (b) node 5 leads term 3 with an
// entry of its own there; (c) node 1 leads term 4 and spreads its old entry to a majority. It must not count as
// committed, because (d) node 5 can still overwrite it.
TEST(Raft_5_4_2_OlderTerms, AnEntryOfAnOlderTermIsNotCommittedByCounting) {
  Options options;
  options.append_max_entries = 1;
  options.reorder_buffer_max_appends = 0;  // else the no-op, which came before index 2, would be there with it
  TestCluster cluster(5, options);
  cluster.SetLog(1, {.term = Term(3), .voted_for = {}}, {1, 2});
  cluster.SetLog(2, {.term = Term(3), .voted_for = {}}, {1, 2});
  cluster.SetLog(3, {.term = Term(3), .voted_for = {}}, {1});
  cluster.SetLog(4, {.term = Term(3), .voted_for = {}}, {1});
  cluster.SetLog(5, {.term = Term(3), .voted_for = {}}, {1, 3});
  cluster.Isolate(4);
  cluster.Isolate(5);
  cluster.Wait(5'000'000'000);
  cluster.Tick(1);
  // Until node 3 holds index 2, but nobody has the no-op of term 4.
  for (int i = 0; i < 10 && cluster.At(3).log().last_index() < LogIndex(2); ++i) {
    cluster.DeliverOnce(1, 2);
    cluster.DeliverOnce(1, 3);
    cluster.DeliverOnce(2, 1);
    cluster.DeliverOnce(3, 1);
  }
  ASSERT_EQ(cluster.At(1).role(), Role::kLeader);
  ASSERT_EQ(cluster.At(3).log().TermAt(LogIndex(2)), Term(2));
  cluster.DeliverOnce(3, 1);
  EXPECT_EQ(cluster.At(1).commit(), LogIndex()) << "(c) stored on a majority, yet not committed";
  cluster.Crash(1);
  cluster.DropAll();
  cluster.Heal();
  cluster.Elect(5);
  EXPECT_EQ(cluster.At(3).log().TermAt(LogIndex(2)), Term(3)) << "(d) overwritten";
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_5_4_2_OlderTerms, AnEntryOfTheOwnTermCommitsThemToo) {
  TestCluster cluster(3);
  cluster.SetLog(1, {.term = Term(2), .voted_for = {}}, {1, 2});
  cluster.Elect(1);
  EXPECT_EQ(cluster.At(1).commit(), LogIndex(3)) << "two old ones and the no-op";
  EXPECT_THAT(cluster.Applied(1), ElementsAre("t1i1", "t2i2"));
}

TEST(Raft_5_5_Crashes, AFollowerThatWasDownCatchesUp) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Crash(3);
  for (int i = 0; i < 200; ++i) cluster.Propose(1, std::to_string(i));
  cluster.Deliver();
  cluster.Restart(3);
  cluster.HeartbeatRounds(1, 4);
  EXPECT_EQ(cluster.Applied(3).size(), 200u);
}

// A read's round puts the next heartbeat off; reads may never pause.
TEST(Raft_5_3_LogReplication, WhatIsLostIsSentAgainWhileReadsKeepComing) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.ProposeAndLose(1, "lost on the way");
  const uint64_t step_ns = cluster.At(1).detector().timeout_ns() / 16;
  for (int i = 0; i < 2 * 16; ++i) {
    cluster.Wait(step_ns);
    cluster.Tick(1);
    cluster.Read(1);
    cluster.Deliver();
  }
  EXPECT_EQ(cluster.At(2).log().last_index(), cluster.At(1).log().last_index());
}

TEST(Raft_5_6_Timing, ATickBeforeTheDeadlineDoesNothing) {
  TestCluster cluster(3);
  cluster.Tick(1);
  EXPECT_TRUE(cluster.network().empty());
  EXPECT_EQ(cluster.At(1).role(), Role::kFollower);
}

TEST(Raft_5_6_Timing, TheElectionTimeoutFollowsTheRoundTrips) {
  TestCluster cluster(3);
  const uint64_t floor_ns = cluster.At(1).detector().timeout_ns();
  for (int i = 0; i < 50; ++i) {
    cluster.Step(1, RoundTrip{.peer = NodeId(2), .duration_ns = 10'000'000});
    cluster.Step(1, RoundTrip{.peer = NodeId(3), .duration_ns = 10'000'000});
  }
  EXPECT_GT(cluster.At(1).detector().timeout_ns(), 5 * floor_ns);
  EXPECT_GE(cluster.At(1).detector().timeout_ns(), 200'000'000u);
}

// Nothing is delivered for so long, while everybody does in time what is due, to the millisecond.
void BeSilent(TestCluster& cluster, uint64_t duration_ns) {
  constexpr uint64_t kStep_ns = 1'000'000;
  for (uint64_t silent_ns = 0; silent_ns < duration_ns; silent_ns += kStep_ns) {
    cluster.Wait(kStep_ns);
    for (const NodeId id : cluster.ids()) {
      const Raft& raft = cluster.At(id.value());
      if (cluster.now_ns() >= std::min(raft.next_deadline_ns(), raft.detector().next_poll_ns()))
        cluster.Tick(id.value());
    }
    cluster.DropAll();
  }
}

TEST(Raft_5_6_Timing, WhatLeaderAndFollowersHaveSurvivedTwiceOverElectsNobody) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HeartbeatRounds(1, 3);
  const uint64_t floor_ns = cluster.At(1).detector().timeout_ns();
  const uint64_t interval_ns = cluster.At(1).next_deadline_ns() - cluster.now_ns();
  const Term term = cluster.At(1).term();
  BeSilent(cluster, floor_ns * 13 / 20);
  cluster.HeartbeatRounds(1, 3);
  for (const uint64_t id : {1, 2, 3}) {
    EXPECT_GE(cluster.At(id).detector().timeout_ns(), floor_ns * 13 / 10 - floor_ns / 100) << id;
    EXPECT_LE(cluster.At(id).detector().timeout_ns(), floor_ns * 2) << id;
    EXPECT_EQ(cluster.At(id).detector().network_timeout_ns(), floor_ns) << id;
  }
  EXPECT_LE(cluster.At(1).next_deadline_ns() - cluster.now_ns(), interval_ns) << "heartbeats come as often as before";

  BeSilent(cluster, floor_ns);
  cluster.HeartbeatRounds(1, 3);
  EXPECT_EQ(cluster.At(1).role(), Role::kLeader);
  for (const uint64_t id : {1, 2, 3}) EXPECT_EQ(cluster.At(id).term(), term) << id;
}

TEST(Raft_5_6_Timing, ALeaderThatIsGoneTeachesNoPause) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HeartbeatRounds(1, 3);
  const uint64_t floor_ns = cluster.At(1).detector().timeout_ns();
  BeSilent(cluster, floor_ns);
  cluster.Isolate(1);
  cluster.Elect(2);
  cluster.HeartbeatRounds(2, 3);
  for (const uint64_t id : {2, 3}) EXPECT_EQ(cluster.At(id).detector().timeout_ns(), floor_ns) << id;
}

// It votes by its own timeout: with a long one it would keep the others from replacing a leader that is dead.
TEST(Raft_5_6_Timing, AFollowerThatIsCutOffAgainAndAgainLearnsLittleOfIt) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HeartbeatRounds(1, 3);
  const uint64_t floor_ns = cluster.At(1).detector().timeout_ns();
  for (int i = 0; i < 20; ++i) {
    cluster.Isolate(3);
    while (cluster.At(3).role() == Role::kFollower) {
      cluster.HeartbeatRounds(1);
      const Raft& raft = cluster.At(3);
      if (cluster.now_ns() >= std::min(raft.next_deadline_ns(), raft.detector().next_poll_ns())) cluster.Tick(3);
    }
    cluster.Heal();
    cluster.HeartbeatRounds(1, 3);
    ASSERT_EQ(cluster.At(3).leader(), NodeId(1));
  }
  EXPECT_EQ(cluster.At(3).detector().timeout_ns(), floor_ns);
}

// What the leader's process has received before it was looked at is fresh: it was the leader that was silent.
TEST(Raft_5_6_Timing, ALeaderThatWasKeptWaitingKnowsIt) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.HeartbeatRounds(1, 3);
  const uint64_t floor_ns = cluster.At(1).detector().timeout_ns();
  cluster.Tick(1);
  cluster.Wait(floor_ns * 3 / 4);
  cluster.Step(1, Receive{{.from = NodeId(2),
                           .to = NodeId(1),
                           .term = cluster.At(1).term(),
                           .body = HeartbeatReply{.round = 0, .matched = {}, .loop_seq = 1'000'000}}});
  cluster.HeartbeatRounds(1, 3);
  EXPECT_GE(cluster.At(1).detector().tolerated_pause_ns(), floor_ns * 3 / 2 - floor_ns / 100);
}

TEST(Raft_8_Clients, ANewLeaderCommitsANoOpFirst) {
  TestCluster cluster(3);
  cluster.Elect(1);
  EXPECT_EQ(cluster.At(1).commit(), LogIndex(1));
  EXPECT_THAT(cluster.Applied(1), IsEmpty());
  EXPECT_EQ(cluster.At(1).log().At(LogIndex(1)).kind, EntryKind::kNoOp);
}

TEST(Raft_8_Clients, AFollowerRefusesProposals) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Propose(2, "a");
  ASSERT_EQ(cluster.Last().refused_proposals.size(), 1u);
  EXPECT_EQ(cluster.Last().refused_proposals[0].reason, RefusalReason::kNotLeader);
}

TEST(Raft_OneNode, ElectsItselfAndCommitsOnceItsDiskHasIt) {
  TestCluster cluster(1);
  cluster.Elect(1);
  cluster.HoldDisk(1);
  cluster.Propose(1, "a");
  EXPECT_THAT(cluster.Applied(1), IsEmpty());
  cluster.ReleaseDisk(1);
  EXPECT_THAT(cluster.Applied(1), ElementsAre("a"));
  cluster.Read(1);
  EXPECT_EQ(cluster.Last().reads_ready.size(), 1u);
}

// The newest first, to one node.
void DeliverBackwards(TestCluster& cluster, uint64_t to) {
  std::vector<Message> messages;
  for (const Message& message : cluster.network()) {
    if (message.to == NodeId(to)) messages.push_back(message);
  }
  cluster.Drop(1, to);
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    cluster.Step(to, Receive{.message = *message});
  }
}

TEST(Raft_5_3_LogReplication, AppendsThatOvertakeEachOtherAreKeptAndThePipelineGoesOn) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Isolate(3);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 5; ++i) cluster.Propose(1, std::to_string(5 * round + i));
    DeliverBackwards(cluster, 2);
    EXPECT_EQ(cluster.At(2).log().last_index(), cluster.At(1).log().last_index());
    EXPECT_EQ(cluster.At(2).reordered_appends(), 0u);
    cluster.Deliver();
    EXPECT_TRUE(cluster.At(1).progress()[1].replicates());
  }
  EXPECT_EQ(cluster.Applied(1).size(), 100u);
  EXPECT_EQ(cluster.At(2).counters().reordered_stored, 80u);
  EXPECT_EQ(cluster.At(1).counters().holes_sent_again, 0u);
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

TEST(Raft_5_3_LogReplication, WhatIsLostIsSentAgainOnceAndWhatCameAfterItIsNot) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Isolate(3);
  cluster.ProposeAndLose(1, "lost");
  for (int i = 0; i < 7; ++i) cluster.Propose(1, std::to_string(i));
  cluster.Deliver();
  EXPECT_EQ(cluster.At(2).reordered_appends(), 7u);
  EXPECT_EQ(cluster.At(1).counters().holes_sent_again, 0u) << "it may be late";
  cluster.TickAtDeadline(1);
  ASSERT_EQ(CountInFlight<AppendRequest>(cluster), 1);
  EXPECT_EQ(std::get<AppendRequest>(cluster.network().back().body).entries.size(), 1u);
  cluster.Deliver();
  EXPECT_EQ(cluster.Applied(1).size(), 8u);
  EXPECT_EQ(cluster.At(1).counters().holes_sent_again, 1u);
  EXPECT_EQ(cluster.At(1).counters().probes, 0u);
}

TEST(Raft_5_3_LogReplication, ManyRefusalsSaySoonerThatItIsLost) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.Isolate(3);
  cluster.ProposeAndLose(1, "lost");
  for (int i = 0; i < 8; ++i) cluster.Propose(1, std::to_string(i));
  cluster.Deliver();
  EXPECT_EQ(cluster.At(1).counters().holes_sent_again, 1u);
  EXPECT_EQ(cluster.Applied(1).size(), 9u);
}

TEST(Raft_5_3_LogReplication, WhatCameEarlyInAFormerTermIsForgotten) {
  TestCluster cluster(3);
  cluster.Elect(1);
  cluster.ProposeAndLose(1, "a");
  cluster.Propose(1, "b");
  cluster.DeliverOnce(1, 2);
  ASSERT_EQ(cluster.At(2).reordered_appends(), 1u);
  cluster.DropAll();
  cluster.Isolate(1);
  cluster.Elect(3);
  EXPECT_EQ(cluster.At(2).reordered_appends(), 0u);
  cluster.Propose(3, "c");
  cluster.Deliver();
  EXPECT_THAT(cluster.Applied(2), IsEmpty()) << "it hears of the commit with the next";
  cluster.HeartbeatRounds(3);
  EXPECT_THAT(cluster.Applied(2), ElementsAre("c"));
  EXPECT_THAT(cluster.violation(), IsEmpty());
}

}  // namespace
}  // namespace hedgerow::raft
