// SPDX-License-Identifier: Apache-2.0
//
// Votes that the kernel part gives in disk mode, in a reserved term (rule R9 of docs/SAFETY.md), and those that
// it gives in memory mode once the leader is suspect.
#include <gtest/gtest.h>

#include "cluster/offload/coupling_testing.h"

namespace hedgerow::offload {
namespace {

TEST(Coupling, R9_ATermIsReservedOnceTheLeaderIsSuspectAndTheKernelVotesInIt) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  EXPECT_EQ(host.kernel.view().may, HR_NODE_MAY_HEARTBEAT | HR_NODE_MAY_VOTE);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_PASSED_FENCED);
  host.passed.clear();
  host.Suspect(2);
  EXPECT_TRUE(LastSent<raft::VoteReply>(host)->granted);
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(1), .voted_for = {}, .reserved = Term(2)}));
  EXPECT_EQ(host.kernel.view().reserved_term, 2u);
  EXPECT_EQ(host.coupling->statistics().reserved, 1u);
  EXPECT_EQ(host.Arrive(1, 3, Host::Vote(3, 9, 1)), HR_NODE_EVENT_PASSED_FENCED) << "that one is not reserved";
  host.passed.clear();
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_VOTE_GRANTED);
  EXPECT_EQ(host.disk.hard_state.term, Term(1)) << "the disk has nothing to do with it";
  host.Turn();
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(2), .voted_for = NodeId(2), .reserved = {}}));
  EXPECT_EQ(host.kernel.view().reserved_term, 0u);
  EXPECT_EQ(host.coupling->statistics().released, 0u);
}

TEST(Coupling, R9_TheKernelGetsTheTermOnlyOnceTheDiskHasIt) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.disk_held = true;
  host.Suspect(2);
  EXPECT_EQ(host.kernel.view().reserved_term, 0u);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_PASSED_FENCED);
  host.passed.clear();
  host.WriteOne();
  EXPECT_EQ(host.kernel.view().reserved_term, 2u);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_VOTE_GRANTED);
}

TEST(Coupling, R9_TheProcesssVoteInTheReservedTermWaitsForTheReservationAlone) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.disk_held = true;
  host.Suspect(2);
  host.sent.clear();
  host.Arrive(2, 2, Host::Vote(2, 9, 1));
  host.Turn();
  EXPECT_EQ(LastSent<raft::VoteReply>(host), nullptr);
  host.WriteOne();
  ASSERT_NE(LastSent<raft::VoteReply>(host), nullptr);
  EXPECT_TRUE(LastSent<raft::VoteReply>(host)->granted);
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(1), .voted_for = {}, .reserved = Term(2)}));
  // The process dies, and its vote with it: its kernel part, which has lived on, knows of none.
  host.disk_held = false;
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.coupling->statistics().barred, 1u);
  EXPECT_EQ(host.raft().term(), Term(3));
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(3), .voted_for = {}, .reserved = {}}));
}

TEST(Coupling, R9_AfterAStartOfTheHostNothingIsSaidUpToTheReservation) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.Suspect(2);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_VOTE_GRANTED);
  host.kernel.Wipe();
  ASSERT_TRUE(host.Start().ok());
  host.Turn();
  host.sent.clear();
  host.Arrive(1, 1, Host::Beat(7));
  host.Turn();
  EXPECT_EQ(host.sent.back().term, Term(3)) << "the old leader must not count it for its reads";
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Arrive(2, 2, Host::Batch(0, 0, 2));
  host.Arrive(1, 2, Host::Vote(2, 9, 1));
  host.Turn();
  EXPECT_FALSE(LastSent<raft::AppendReply>(host)->accepted);
  EXPECT_FALSE(LastSent<raft::VoteReply>(host)->granted);
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(0));
  host.now_ns += 5'000 * kMillisecond;
  host.Turn();
  host.Arrive(1, 3, raft::VoteReply{.asked_term = Term(4), .pre_vote = true, .granted = true});
  host.Turn();
  EXPECT_EQ(host.raft().term(), Term(4)) << "its own vote is above it, too";
}

TEST(Coupling, R9_AVoteInTheReservedTermSurvivesTheProcess) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.Suspect(2);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_VOTE_GRANTED);
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.coupling->statistics().barred, 0u);
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(2), .voted_for = NodeId(2), .reserved = {}}));
}

TEST(Coupling, R9_WhatTheKernelHadAndDidNotUseIsReleasedByTheNextProcess) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.Suspect(2);
  ASSERT_TRUE(host.Start().ok());
  EXPECT_EQ(host.coupling->statistics().barred, 0u);
  EXPECT_EQ(host.raft().term(), Term(1));
  host.Turn();
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(1), .voted_for = {}, .reserved = {}}));
}

TEST(Coupling, R9_ALeaderThatIsHeardAgainReleasesTheTerm) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.Suspect(2);
  host.now_ns += kMillisecond;
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(2)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
  host.Turn();
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(1), .voted_for = {}, .reserved = {}}));
  EXPECT_EQ(host.coupling->statistics().released, 1u);
  EXPECT_EQ(host.kernel.view().may, HR_NODE_MAY_HEARTBEAT | HR_NODE_MAY_VOTE);
  const uint64_t fences = host.coupling->statistics().fences;
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Turn();
  EXPECT_TRUE(LastSent<raft::AppendReply>(host)->accepted);
  EXPECT_EQ(host.coupling->statistics().fences, fences);
}

TEST(Coupling, R9_AnotherTermTakesThePlaceOfTheReservedOne) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.Suspect(2);
  EXPECT_EQ(host.Arrive(1, 4, Host::PreVote(5, 9, 1)), HR_NODE_EVENT_PASSED_SUSPICION);
  host.Turn();
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(1), .voted_for = {}, .reserved = Term(5)}));
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 9, 1)), HR_NODE_EVENT_PASSED_FENCED);
  host.passed.clear();
  EXPECT_EQ(host.Arrive(1, 5, Host::Vote(5, 9, 1)), HR_NODE_EVENT_VOTE_GRANTED);
}

TEST(Coupling, R9_AStopInOrderLeavesNoReservation) {
  Host host(Durability::kDisk, kReserving);
  host.Follow(1, 1);
  host.Suspect(2);
  host.coupling->Close(*host.replica);
  EXPECT_EQ(host.disk.hard_state, (raft::HardState{.term = Term(1), .voted_for = {}, .reserved = {}}));
}

TEST(Coupling, VotesWithoutAppendsCostNoFences) {
  Host host(Durability::kMemory, {.heartbeat = true, .vote = true, .append = false, .quorum = true});
  host.Follow(1, 1);
  const uint64_t fences = host.coupling->statistics().fences;
  for (uint64_t i = 0; i < 20; ++i) {
    host.Arrive(1, 1, Host::Batch(i, i == 0 ? 0 : 1, 1));
    host.Turn();
  }
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(20));
  EXPECT_EQ(host.coupling->statistics().fences, fences);
  EXPECT_EQ(host.Arrive(2, 1, Host::PreVote(2, 20, 1)), HR_NODE_EVENT_PASSED_SUSPICION);
  host.Turn();
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 19, 1)), HR_NODE_EVENT_PASSED_TERM) << "its log is older";
  host.passed.clear();
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 20, 1)), HR_NODE_EVENT_VOTE_GRANTED);
}

}  // namespace
}  // namespace hedgerow::offload
