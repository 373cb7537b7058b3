// SPDX-License-Identifier: Apache-2.0
//
// Process and kernel part of one node, step by step. Names begin with the rule of docs/SAFETY.md that is looked
// at.
#include "cluster/offload/kernel_bridge.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "cluster/offload/testing/kernel_bridge_testing.h"

namespace hedgerow::offload {
namespace {

TEST(KernelBridge, R1ASnapshotIsInstalledBehindAFenceAndTheKernelPartGoesOnAfterIt) {
  Host host;
  host.Follow(1, 1);
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  const uint64_t fences = host.bridge->statistics().fences;
  host.ReceiveSnapshot(1, 1, 50, 1);
  EXPECT_EQ(host.bridge->statistics().fences, fences + 1);
  EXPECT_EQ(host.kernel.unreleased(), 0u);
  EXPECT_EQ(host.kernel.shared().raft.last_index, 50u);
  EXPECT_EQ(host.kernel.shared().matched, 50u);
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(50, 1, 1, 50)), HR_NODE_EVENT_APPEND_STORED);
  host.Turn();
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(51));
}

TEST(KernelBridge, R1ASnapshotOfWhatTheKernelPartHasAcceptedDiscardsNothing) {
  Host host;
  host.Follow(1, 1);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(host.Arrive(1, 1, Host::Batch(i, i == 0 ? 0 : 1, 1)), HR_NODE_EVENT_APPEND_STORED);
  }
  // The process has taken none of it yet.
  host.ReceiveSnapshot(1, 1, 3, 1);
  EXPECT_EQ(host.raft().log().start().index, LogIndex(0));
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(5));
  EXPECT_EQ(host.raft().commit(), LogIndex(3));
}

TEST(KernelBridge, R2RecordsBeforeTheLogsStartAreSkippedByALaterIncarnation) {
  Host host;
  host.Follow(1, 1);
  host.disk_held = true;
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(1, 1, 1)), HR_NODE_EVENT_APPEND_STORED);
  host.Turn();
  host.ReceiveSnapshot(1, 1, 50, 1);
  // It is killed once its writes are durable, and before it has released the records.
  host.ReleaseDisk();
  ASSERT_EQ(host.kernel.unreleased(), 2u);
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.raft().log().start().index, LogIndex(50));
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(50));
  host.Turn();
  EXPECT_EQ(host.kernel.unreleased(), 0u);
}

TEST(KernelBridge, ALeadersFollowerIsServedByItsKernelPartWithoutFences) {
  Host host;
  host.Follow(1, 1);
  const uint64_t fences = host.bridge->statistics().fences;
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(host.Arrive(1, 1, Host::Batch(i, i == 0 ? 0 : 1, 1, i)), HR_NODE_EVENT_APPEND_STORED);
    EXPECT_EQ(host.Arrive(1, 1, Host::Beat(i + 2, i)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
    host.now_ns += kMillisecond;
    if (i % 3 == 0) host.Turn();
  }
  host.Turn();
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(50));
  EXPECT_EQ(host.raft().commit(), LogIndex(49));
  EXPECT_EQ(host.raft().role(), Role::kFollower) << "the election is put off by what the kernel part has heard";
  EXPECT_EQ(host.bridge->statistics().fences, fences);
  EXPECT_EQ(host.kernel.unreleased(), 0u);
  EXPECT_EQ(host.disk.entries.size(), 50u);
}

TEST(KernelBridge, DiskModeLeavesVotesAndAppendsToTheProcess) {
  Host host(Durability::kDisk);
  host.Follow(1, 1);
  EXPECT_EQ(host.kernel.shared().capabilities, HR_NODE_CAN_HEARTBEAT | HR_NODE_CAN_VOTE);
  const uint64_t fences = host.bridge->statistics().fences;
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Turn();
  EXPECT_TRUE(LastSent<raft::AppendReply>(host)->accepted);
  EXPECT_EQ(host.bridge->statistics().fences, fences) << "the log is the process's";
  host.Turn();
  host.Arrive(1, 1, Host::Beat(7));
  EXPECT_EQ(LastSent<raft::HeartbeatReply>(host)->matched, LogIndex(1)) << "or the leader would send it again";
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 1, 1)), HR_NODE_EVENT_PASSED_FENCED);
  host.Turn();
  EXPECT_TRUE(LastSent<raft::VoteReply>(host)->granted);
}

TEST(KernelBridge, DiskModeOpensOnlyWhatIsDurable) {
  Host host(Durability::kDisk);
  host.Follow(1, 1);
  host.disk_held = true;
  host.Arrive(2, 2, Host::Vote(2, 0, 0));
  host.Turn();
  EXPECT_EQ(host.kernel.shared().capabilities, 0u);
  EXPECT_EQ(host.kernel.shared().raft.term, 1u);
  host.ReleaseDisk();
  host.Turn();
  EXPECT_EQ(host.kernel.shared().raft.term, 2u);
  EXPECT_NE(host.kernel.shared().capabilities, 0u);
}

TEST(KernelBridge, R1_WhatWasAcceptedIsInTheLogBeforeTheProcessVotes) {
  Host host;
  host.Follow(1, 1);
  const uint64_t append = host.Begin(1, 1, Host::Batch(0, 0, 1));
  host.kernel.Step(append);
  host.kernel.Step(append);  // accepted, and not yet in the ring
  // Its log is older than what this node has accepted, and the answer to its request is the process's: no room
  // is left.
  host.passed.push_back({.from = NodeId(2), .to = NodeId(3), .term = Term(2), .body = Host::Vote(2, 0, 0)});
  host.Turn();
  EXPECT_FALSE(LastSent<raft::VoteReply>(host)->granted);
  EXPECT_EQ(host.raft().term(), Term(2));
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(1));
}

// A member asks, after the kernel part's acknowledgement has made an entry a committed one.
TEST(KernelBridge, R8_WhatWasAcceptedIsInTheLogBeforeTheProcessSaysWhereThatEnds) {
  Host host;
  host.Follow(1, 1);
  host.bridge->BeginTurn(host.now_ns, *host.replica);
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  host.bridge->Receive(host.now_ns,
                       {.from = NodeId(2),
                        .to = NodeId(3),
                        .term = Term(1),
                        .body = raft::ReadIndexRequest{.id = {.incarnation = 5, .number = 6}}},
                       *host.replica);
  host.bridge->EndTurn(host.now_ns, *host.replica);
  const auto* const answer = LastSent<raft::LastEntry>(host);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->last, (raft::EntryId{.index = LogIndex(1), .term = Term(1)}));
  EXPECT_EQ(answer->id, (raft::ReadId{.incarnation = 5, .number = 6}));
}

// Its own acknowledgement may be the one that counted.
TEST(KernelBridge, R8_WhatWasAcceptedIsInTheReadersLogBeforeItIsCompared) {
  Host host;
  host.Follow(1, 1);
  host.replica->Feed(raft::Read{.tag = 5, .deadline_ns = UINT64_MAX});
  host.Turn();
  const auto* const question = LastSent<raft::ReadIndexRequest>(host);
  ASSERT_NE(question, nullptr);
  const raft::ReadId id = question->id;
  host.bridge->BeginTurn(host.now_ns, *host.replica);
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  const uint64_t fences = host.bridge->statistics().fences;
  host.bridge->Receive(
      host.now_ns, {.from = NodeId(2), .to = NodeId(3), .term = Term(1), .body = raft::LastEntry{.id = id, .last = {}}},
      *host.replica);
  EXPECT_EQ(host.bridge->statistics().fences, fences + 1);
  host.bridge->EndTurn(host.now_ns, *host.replica);
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(1));
}

TEST(KernelBridge, R1_AnAppendThatComesToTheLockAfterTheFenceIsThrownAway) {
  Host host;
  host.Follow(1, 1);
  const uint64_t append = host.Begin(1, 1, Host::Batch(0, 0, 1));
  host.kernel.Step(append);
  host.passed.push_back({.from = NodeId(2), .to = NodeId(3), .term = Term(2), .body = Host::Vote(2, 0, 0)});
  host.Turn();
  EXPECT_TRUE(LastSent<raft::VoteReply>(host)->granted);
  EXPECT_EQ(host.events.back(), HR_NODE_EVENT_PASSED_FENCED);
  host.Turn();
  EXPECT_EQ(LastSent<raft::AppendReply>(host)->accepted, false) << "its term is over";
}

TEST(KernelBridge, R2_RecordsAreFedInTheOrderOfTheLog) {
  Host host;
  host.Follow(1, 1);
  const uint64_t second = host.Begin(1, 1, Host::Batch(1, 1, 1));
  const uint64_t first = host.Begin(1, 1, Host::Batch(0, 0, 1));
  for (const uint64_t run : {second, first, first, second}) host.kernel.Step(run);
  while (host.kernel.Step(second)) {
  }
  host.Turn();
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(0)) << "its predecessor is still being written";
  EXPECT_EQ(host.kernel.unreleased(), 2u);
  while (host.kernel.Step(first)) {
  }
  host.Turn();
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(2));
}

TEST(KernelBridge, R2_RecordsStayUntilTheLogHasThemAndAreAdoptedByTheNextProcess) {
  Host host;
  host.Follow(1, 1);
  host.disk_held = true;
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Turn();
  host.Arrive(1, 1, Host::Batch(1, 1, 1));
  EXPECT_EQ(host.kernel.unreleased(), 2u);
  host.disk_held = false;
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(2));
  EXPECT_EQ(host.disk.entries.size(), 2u);
  EXPECT_EQ(host.kernel.unreleased(), 0u);
  EXPECT_EQ(host.kernel.shared().capabilities, 0u) << "until its first turn";
  host.Turn();
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(2, 1, 1)), HR_NODE_EVENT_APPEND_STORED);
}

TEST(KernelBridge, R2_WhatTheLogHasAndWhatIsOverIsNotAdoptedAgain) {
  Host host;
  host.Follow(1, 1);
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Arrive(1, 1, Host::Batch(1, 1, 1));
  // Drained and written; the process dies before it releases. Then a later leader replaces the second entry.
  const auto entries = Host::Batch(0, 0, 1).entries;
  host.disk = {.hard_state = {.term = Term(1), .voted_for = {}}, .entries = entries};
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(2));
  Host later;
  later.Follow(1, 1);
  later.Arrive(1, 1, Host::Batch(0, 0, 1));
  later.Arrive(1, 1, Host::Batch(1, 1, 1));
  later.disk = {.hard_state = {.term = Term(2), .voted_for = {}}, .entries = entries};
  ASSERT_TRUE(later.Start().ok());
  EXPECT_EQ(later.raft().log().last_index(), LogIndex(1));
  EXPECT_EQ(later.raft().term(), Term(2));
}

TEST(KernelBridge, R3_AFullRingLeavesAppendsToTheProcess) {
  Host host(Durability::kMemory, kAll, 1);
  host.Follow(1, 1);
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(1, 1, 1)), HR_NODE_EVENT_PASSED_RING_FULL);
  EXPECT_EQ(LastSent<raft::AppendReply>(host)->index, LogIndex(1));
  host.Turn();
  EXPECT_EQ(LastSent<raft::AppendReply>(host)->index, LogIndex(2));
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(2));
}

TEST(KernelBridge, R7_AVoteThatTheKernelGaveIsTheProcesssByItsNextTurn) {
  Host host;
  host.Follow(1, 1);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 0, 0)), HR_NODE_EVENT_VOTE_GRANTED);
  host.Turn();
  EXPECT_EQ(host.raft().term(), Term(2));
  EXPECT_EQ(host.raft().voted_for(), NodeId(2));
  EXPECT_EQ(host.disk.hard_state.voted_for, NodeId(2));
  EXPECT_EQ(host.Arrive(1, 2, Host::Vote(2, 0, 0)), HR_NODE_EVENT_VOTE_REFUSED);
}

// Nothing wakes a process for the vote: it looks by itself in time, and at the latest when it would stand.
TEST(KernelBridge, R7_ANodeThatSleptThroughItsVoteDoesNotStandAgainstIt) {
  Host host;
  host.Follow(1, 1);
  EXPECT_LE(host.bridge->next_deadline_ns(), host.now_ns + 10 * kMillisecond / 3);
  host.now_ns = host.raft().election_deadline_ns() - 1;
  host.Turn();
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 0, 0)), HR_NODE_EVENT_VOTE_GRANTED);
  host.now_ns += 1;
  host.Turn();
  EXPECT_EQ(host.raft().role(), Role::kFollower);
  EXPECT_EQ(host.raft().voted_for(), NodeId(2));
  EXPECT_GT(host.raft().election_deadline_ns(), host.now_ns);
  EXPECT_EQ(LastSent<raft::VoteRequest>(host), nullptr);
}

TEST(KernelBridge, R7_AVoteThatTheKernelGaveSurvivesTheProcess) {
  Host host;
  host.Follow(1, 1);
  host.Arrive(2, 2, Host::Vote(2, 0, 0));
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.raft().voted_for(), NodeId(2));
  EXPECT_EQ(host.disk.hard_state.term, Term(2));
}

TEST(KernelBridge, R1_AHeartbeatOfATermThatTheKernelHasLeftIsNotConfirmed) {
  Host host(Durability::kMemory, {.heartbeat = false, .vote = true, .append = true, .quorum = true});
  host.Follow(1, 1);
  host.bridge->BeginTurn(host.now_ns, *host.replica);
  host.Arrive(2, 2, Host::Vote(2, 0, 0));  // on another CPU, after the process has looked
  host.sent.clear();
  host.bridge->Receive(host.now_ns, {.from = NodeId(1), .to = NodeId(3), .term = Term(1), .body = Host::Beat(9)},
                       *host.replica);
  host.bridge->EndTurn(host.now_ns, *host.replica);
  EXPECT_EQ(host.sent.back().term, Term(2)) << "it would prove to a read that there is no later term";
}

TEST(KernelBridge, AnElectionStartsFromWhatTheKernelHasAccepted) {
  Host host;
  host.Follow(1, 1);
  host.bridge->BeginTurn(host.now_ns, *host.replica);
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.now_ns += 3'000 * kMillisecond;
  host.bridge->Tick(host.now_ns, *host.replica);
  host.bridge->EndTurn(host.now_ns, *host.replica);
  ASSERT_EQ(host.raft().role(), Role::kPreCandidate);
  EXPECT_EQ(LastSent<raft::VoteRequest>(host)->last_index, LogIndex(1));
}

TEST(KernelBridge, AResignationIsOfItsTerm) {
  Host host;
  host.Follow(1, 4);
  host.bridge->Resigned({.leader = NodeId(1), .term = Term(3), .rank = 0}, *host.replica);
  host.Turn();
  EXPECT_EQ(host.raft().role(), Role::kFollower);
  host.bridge->Resigned({.leader = NodeId(1), .term = Term(4), .rank = 0}, *host.replica);
  host.Turn();
  EXPECT_EQ(host.raft().role(), Role::kPreCandidate);
}

TEST(KernelBridge, R6_ALeaderCommitsByWhatItsKernelPartCountedAndPollsIt) {
  Host host;
  Lead(host);
  const uint64_t opens = host.bridge->statistics().opens;
  EXPECT_EQ(host.Arrive(1, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9}),
            HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  EXPECT_EQ(host.Arrive(2, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9}),
            HR_NODE_EVENT_WOKEN_FOR_ACK)
      << "it is probed: nothing more is sent before its answer";
  host.passed.clear();
  host.Turn();
  EXPECT_EQ(host.raft().commit(), LogIndex(1)) << "a lost wake-up delays, and no more";
  EXPECT_EQ(host.raft().progress()[1].match(), LogIndex(1));
  host.Turn();  // its lease says that there is room
  EXPECT_EQ(host.Arrive(2, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9}),
            HR_NODE_EVENT_ACK_COUNTED);
  EXPECT_EQ(host.Arrive(1, 1, raft::HeartbeatReply{.round = 1, .matched = LogIndex(1), .loop_seq = 10}),
            HR_NODE_EVENT_WOKEN_FOR_ROUND);
  host.passed.clear();
  host.Turn();
  EXPECT_EQ(host.raft().progress()[0].round(), 1u);
  EXPECT_EQ(host.bridge->statistics().opens, opens) << "once a term";
}

TEST(KernelBridge, R6_ALeaderThatIsAwakeSeesForItselfWhatWouldWakeIt) {
  Host host;
  Lead(host);
  host.bridge->Awake();
  EXPECT_FALSE(host.bridge->Poll(host.now_ns, *host.replica)) << "nothing has moved";
  EXPECT_EQ(host.Arrive(1, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9}),
            HR_NODE_EVENT_DOORBELL);
  EXPECT_TRUE(host.passed.empty());
  EXPECT_FALSE(host.bridge->MaySleep());
  EXPECT_TRUE(host.bridge->Poll(host.now_ns, *host.replica));
  EXPECT_EQ(host.raft().commit(), LogIndex(1));
  EXPECT_TRUE(host.bridge->MaySleep());
  EXPECT_EQ(host.Arrive(1, 1, raft::HeartbeatReply{.round = 1, .matched = LogIndex(1), .loop_seq = 10}),
            HR_NODE_EVENT_WOKEN_FOR_ROUND)
      << "it sleeps";
  EXPECT_EQ(host.passed.size(), 1u);
}

// An answer that is counted between its decision to sleep and its sleep is sent to it.
TEST(KernelBridge, R6_WhatMovesWhileALeaderLiesDownIsNotMissed) {
  Host host;
  Lead(host);
  host.bridge->Awake();
  const uint64_t run = host.Begin(1, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9});
  ASSERT_TRUE(host.kernel.Step(run));
  ASSERT_TRUE(host.kernel.Step(run));  // counted, and has yet to look whether the process sleeps
  EXPECT_TRUE(host.bridge->MaySleep());
  EXPECT_FALSE(host.kernel.Step(run));
  EXPECT_EQ(host.passed.size(), 1u);
}

TEST(KernelBridge, ALeaderThatHearsNothingNewLeavesTheStateAloneForAWhile) {
  Host host;
  Lead(host);
  host.Arrive(1, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9});
  host.Arrive(2, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9});
  host.Turn();
  host.Turn();
  const uint64_t leases = host.bridge->statistics().leases;
  host.Turn();
  EXPECT_EQ(host.bridge->statistics().leases, leases);
  host.now_ns += kMillisecond;  // a tenth of the lease
  host.Turn();
  EXPECT_EQ(host.bridge->statistics().leases, leases + 1);
  EXPECT_GT(host.bridge->next_deadline_ns(), host.now_ns);
}

// Else its leader takes it for one that has started again, and sends what it has.
TEST(KernelBridge, TheKernelKnowsWhatIsAcknowledgedBeforeTheAcknowledgementLeaves) {
  Host host(Durability::kDisk, {.heartbeat = true, .vote = true, .append = false, .quorum = true});
  host.Follow(1, 1);
  host.bridge->BeginTurn(host.now_ns, *host.replica);
  host.bridge->Receive(host.now_ns, {.from = NodeId(1), .to = NodeId(3), .term = Term(1), .body = Host::Batch(0, 0, 1)},
                       *host.replica);
  host.replica->Settle();
  ASSERT_NE(LastSent<raft::AppendReply>(host), nullptr);
  host.bridge->BeforeSending(host.now_ns, host.raft());
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(2)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
  EXPECT_EQ(LastSent<raft::HeartbeatReply>(host)->matched, LogIndex(1));
  host.bridge->EndTurn(host.now_ns, *host.replica);
}

// One fence for all that is out of order, however much it is; then the kernel part goes on where the process
// has come to.
TEST(KernelBridge, TheKernelPartWaitsUntilWhatCameEarlyHasFoundItsPlace) {
  Host host;
  host.Follow(1, 1);
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  host.Turn();
  const uint64_t fences = host.bridge->statistics().fences;
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(2, 1, 1)), HR_NODE_EVENT_PASSED_HOLE);
  host.Turn();
  EXPECT_FALSE(host.bridge->open());
  EXPECT_FALSE(LastSent<raft::AppendReply>(host)->accepted);
  for (uint64_t prev = 3; prev <= 5; ++prev) {
    EXPECT_NE(host.Arrive(1, 1, Host::Batch(prev, 1, 1)), HR_NODE_EVENT_APPEND_STORED);
    host.Turn();
  }
  EXPECT_EQ(host.raft().reordered_appends(), 4u);
  host.Arrive(1, 1, Host::Batch(1, 1, 1));
  host.Turn();
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(6));
  EXPECT_EQ(LastSent<raft::AppendReply>(host)->index, LogIndex(6));
  EXPECT_TRUE(host.bridge->open());
  EXPECT_EQ(host.bridge->statistics().fences, fences + 1);
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(6, 1, 1)), HR_NODE_EVENT_APPEND_STORED);
}

// It is about nothing new, and the pipeline waits for it.
TEST(KernelBridge, R6_TheAnswerToAProbeIsNotEaten) {
  Host host;
  Lead(host);
  const raft::AppendReply all{.accepted = true, .index = LogIndex(1), .loop_seq = 9};
  EXPECT_EQ(host.Arrive(1, 1, all), HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  host.Turn();
  host.Turn();  // its lease says that the pipeline runs
  EXPECT_EQ(host.Arrive(1, 1, all), HR_NODE_EVENT_ACK_COUNTED);
  host.now_ns += 5 * kMillisecond;
  host.Turn();
  const uint64_t round = LastSent<raft::Heartbeat>(host)->round;
  ASSERT_GT(round, 1u) << "one that began after the acknowledgement";
  host.bridge->BeginTurn(host.now_ns, *host.replica);
  host.bridge->Receive(host.now_ns,
                       {.from = NodeId(1),
                        .to = NodeId(3),
                        .term = Term(1),
                        .body = raft::HeartbeatReply{.round = round, .matched = LogIndex(), .loop_seq = 1}},
                       *host.replica);
  host.replica->Settle();
  ASSERT_FALSE(host.raft().progress()[0].replicates()) << "it has started again";
  host.bridge->BeforeSending(host.now_ns, host.raft());
  EXPECT_EQ(host.Arrive(1, 1, all), HR_NODE_EVENT_WOKEN_FOR_ACK);
  host.bridge->EndTurn(host.now_ns, *host.replica);
  host.Turn();
  EXPECT_TRUE(host.raft().progress()[0].replicates());
}

TEST(KernelBridge, ALogThatLacksWhatWasAcknowledgedIsNotAdopted) {
  Host host;
  host.Follow(1, 1);
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Turn();
  host.disk.entries.clear();
  EXPECT_TRUE(absl::IsDataLoss(host.Start()));
  Host other;
  other.Follow(1, 1);
  other.Arrive(1, 1, Host::Batch(0, 0, 1));
  other.Turn();
  other.Arrive(1, 1, Host::Batch(1, 1, 1));
  other.disk.entries.clear();
  EXPECT_TRUE(absl::IsDataLoss(other.Start()));
}

// In memory mode the others may be a majority without this leader, which then writes after it has answered.
TEST(KernelBridge, R2_ALeaderThatDiesBeforeItWroteWhatItHasAnsweredGoesOnAsItself) {
  Host host;
  Lead(host);
  const auto acknowledge = [&host](uint64_t index) {
    for (const uint64_t node : {1, 2}) {
      host.Arrive(node, 1, raft::AppendReply{.accepted = true, .index = LogIndex(index), .loop_seq = 8 + index});
    }
    host.Turn();
  };
  acknowledge(1);
  host.disk_held = true;
  host.replica->ReceiveRequest(
      host.now_ns, {.command = {.key = {.kind = kv::CommandKind::kOpen, .a = 7}}, .timeout_ns = 1'000 * kMillisecond});
  host.Turn();
  acknowledge(2);
  ASSERT_EQ(host.raft().commit(), LogIndex(2)) << "by the others alone";
  ASSERT_EQ(host.raft().durable(), LogIndex(1));
  EXPECT_LE(host.kernel.shared().matched, 1u) << "a new process is held to no more";
  EXPECT_TRUE(host.Start().ok());
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(1));
}

TEST(KernelBridge, InDiskModeTheKernelPartPromisesNothing) {
  Host host(Durability::kDisk);
  host.Follow(1, 1);
  EXPECT_EQ(host.kernel.shared().capabilities, HR_NODE_CAN_HEARTBEAT | HR_NODE_CAN_VOTE);
  EXPECT_EQ(host.Arrive(2, 1, Host::PreVote(2, 9, 1)), HR_NODE_EVENT_PRE_VOTE_ANSWERED);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_PASSED_FENCED);
  host.disk_held = true;
  host.sent.clear();
  host.Turn();
  EXPECT_EQ(LastSent<raft::VoteReply>(host), nullptr) << "its disk does not have the vote yet";
  host.WriteOne();
  ASSERT_NE(LastSent<raft::VoteReply>(host), nullptr);
  EXPECT_TRUE(LastSent<raft::VoteReply>(host)->granted);
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(2), .voted_for = NodeId(2)}));
}

TEST(KernelBridge, VotesWithoutAppendsCostNoFences) {
  Host host(Durability::kMemory, {.heartbeat = true, .vote = true, .append = false, .quorum = true});
  host.Follow(1, 1);
  const uint64_t fences = host.bridge->statistics().fences;
  for (uint64_t i = 0; i < 20; ++i) {
    host.Arrive(1, 1, Host::Batch(i, i == 0 ? 0 : 1, 1));
    host.Turn();
  }
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(20));
  EXPECT_EQ(host.bridge->statistics().fences, fences);
  EXPECT_EQ(host.Arrive(2, 1, Host::PreVote(2, 20, 1)), HR_NODE_EVENT_PASSED_SUSPICION);
  host.Turn();
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 19, 1)), HR_NODE_EVENT_PASSED_TERM) << "its log is older";
  host.passed.clear();
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 20, 1)), HR_NODE_EVENT_VOTE_GRANTED);
}

TEST(KernelBridge, AProcessThatWasReplacedStops) {
  Host host;
  host.Follow(1, 1);
  hr_node_control adopt{};
  adopt.operation = HR_NODE_ADOPT;
  adopt.incarnation = 99;
  host.kernel.Control(adopt);
  host.passed.push_back({.from = NodeId(2), .to = NodeId(3), .term = Term(2), .body = Host::Vote(2, 0, 0)});
  host.Turn();
  EXPECT_TRUE(host.bridge->superseded());
  EXPECT_EQ(host.raft().term(), Term(1));
  EXPECT_EQ(LastSent<raft::VoteReply>(host), nullptr);
}

TEST(KernelBridge, WithAllSwitchesOffNothingIsOpened) {
  Host host(Durability::kMemory, {});
  host.Follow(1, 1);
  EXPECT_EQ(host.kernel.shared().capabilities, 0u);
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Turn();
  EXPECT_TRUE(LastSent<raft::AppendReply>(host)->accepted);
  EXPECT_EQ(host.bridge->next_deadline_ns(), UINT64_MAX);
}

}  // namespace
}  // namespace hedgerow::offload
