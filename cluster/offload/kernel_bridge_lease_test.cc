// SPDX-License-Identifier: Apache-2.0
//
// How long the kernel part speaks for a process that does not turn (rule R5 of docs/SAFETY.md).
#include <gtest/gtest.h>

#include "cluster/offload/testing/kernel_bridge_testing.h"

namespace hedgerow::offload {
namespace {

TEST(KernelBridge, R5_TheLeaseIsTheLoops) {
  Host host;
  host.Follow(1, 1);
  host.now_ns += 9 * kMillisecond;
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(2)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
  host.now_ns += kMillisecond;
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(3)), HR_NODE_EVENT_PASSED_LEASE);
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_PASSED_LEASE);
  EXPECT_EQ(host.Arrive(2, 2, Host::Vote(2, 0, 0)), HR_NODE_EVENT_PASSED_LEASE);
  host.passed.clear();
  const uint64_t loop_seq = host.kernel.shared().loop_seq;
  host.Turn();
  EXPECT_GT(host.kernel.shared().loop_seq, loop_seq);
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(4)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
}

// Else a leader that was kept waiting resigned before its followers wanted another.
TEST(KernelBridge, R5_WherePausesAreLongTheLeaseIsNoShorter) {
  Host host;
  host.Follow(1, 1);
  for (int i = 0; i < 14; ++i) {
    host.now_ns += kMillisecond;
    host.Turn();
  }
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(2)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
  host.now_ns += kMillisecond;
  host.Turn();
  const uint64_t tolerated_ns = host.replica->raft().detector().tolerated_pause_ns();
  ASSERT_GE(tolerated_ns, 25 * kMillisecond);
  host.now_ns += 4 * kMillisecond;  // the lease is due to be put off
  host.Turn();
  host.now_ns += tolerated_ns - kMillisecond / 10;  // some of it has faded
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(3)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
  host.now_ns += kMillisecond / 10;
  EXPECT_EQ(host.Arrive(1, 1, Host::Beat(4)), HR_NODE_EVENT_PASSED_LEASE);
}

// A follower's of disk mode promises nothing, so it answers heartbeats while its disk is never done with everything;
// only not of a term that a crash would take back.
TEST(KernelBridgeLease, AFollowersKernelPartIsOpenUnderLoadOnceItsTermIsDurable) {
  Host host(Durability::kDisk);
  host.disk_held = true;
  host.Arrive(1, 1, Host::Beat());
  host.Turn();
  ASSERT_EQ(host.raft().leader(), NodeId(1));
  EXPECT_FALSE(host.bridge->open()) << "a crash would take term 1 back";
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Turn();
  for (uint64_t last = 1; last < 5; ++last) {
    host.WriteOne();
    host.Arrive(1, 1, Host::Batch(last, 1, 1));
    host.Turn();
    ASSERT_LT(host.raft().durable_sequence(), host.raft().asked_sequence());
    EXPECT_TRUE(host.bridge->open());
    EXPECT_EQ(host.kernel.shared().capabilities & HR_NODE_OWNS_LOG, 0u);
    EXPECT_EQ(host.Arrive(1, 1, Host::Beat(2)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
    EXPECT_EQ(host.kernel.shared().matched, host.raft().durable().value()) << "it says no more than is durable";
  }
}

// What it hears is polled: a turn in which nothing is due asks the kernel for nothing.
TEST(KernelBridgeLease, AFollowerOfDiskModeLeasesNotInEachTurn) {
  Host host(Durability::kDisk);
  host.Follow(1, 1);
  host.now_ns += 2 * kMillisecond;
  host.Turn();
  const uint64_t leases = host.bridge->statistics().leases;
  for (int i = 0; i < 5; ++i) {
    host.now_ns += kMillisecond / 100;
    host.Turn();
  }
  EXPECT_EQ(host.bridge->statistics().leases, leases);
  host.now_ns += kMillisecond;
  host.Turn();
  EXPECT_EQ(host.bridge->statistics().leases, leases + 1);
}

// Under load a leader's disk is never done with everything. Its kernel part grants and appends nothing
// meanwhile.
TEST(KernelBridge, R5_DiskModeKeepsALeadersLeaseHoweverMuchIsUnwritten) {
  Host host(Durability::kDisk);
  Lead(host);
  host.Arrive(1, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9});
  host.Turn();
  ASSERT_EQ(host.raft().commit(), LogIndex(1));
  host.disk_held = true;
  const uint64_t fences = host.bridge->statistics().fences;
  const uint64_t lease_until_ns = host.kernel.shared().lease_until_ns;
  host.replica->Feed(raft::ChangeMembership{.changes = {{.node = NodeId(4), .address = "10.0.0.4:4800"}}});
  for (int i = 0; i < 10; ++i) {
    host.replica->ReceiveRequest(host.now_ns, {.command = {.key = {.kind = kv::CommandKind::kOpen, .a = 7}},
                                               .timeout_ns = 1'000 * kMillisecond});
    host.now_ns += kMillisecond;
    host.Turn();
    EXPECT_GT(host.bridge->statistics().fences, fences) << "who is a member changes behind one";
    ASSERT_LT(host.raft().durable(), host.raft().log().last_index());
    EXPECT_EQ(host.kernel.shared().role, HR_NODE_LEADER);
    EXPECT_NE(host.kernel.shared().capabilities & HR_NODE_CAN_HEARTBEAT, 0u) << i;
    EXPECT_EQ(host.kernel.shared().capabilities & (HR_NODE_CAN_GRANT | HR_NODE_CAN_APPEND), 0u);
  }
  EXPECT_GE(host.kernel.shared().lease_until_ns, lease_until_ns + 5 * kMillisecond);
}

// Its kernel part would hold on to it, and consume what it needs to be succeeded.
TEST(KernelBridge, ALeaderThatChecksItsQuorumLeavesRequestsForVotesToItsProcess) {
  for (const Durability durability : {Durability::kDisk, Durability::kMemory}) {
    Host host(durability);
    Lead(host);
    host.Arrive(1, 1, raft::AppendReply{.accepted = true, .index = LogIndex(1), .loop_seq = 9});
    host.Turn();
    raft::VoteRequest request = Host::Vote(2, 1, 1);
    request.transfer_term = Term();
    EXPECT_EQ(host.Arrive(2, 2, request), HR_NODE_EVENT_VOTE_IGNORED);
    while (!host.raft().checks_quorum()) {
      host.now_ns += kMillisecond;
      host.Turn();
      ASSERT_EQ(host.raft().role(), Role::kLeader);
    }
    EXPECT_EQ(host.Arrive(2, 2, request), HR_NODE_EVENT_PASSED_FENCED);
    host.Arrive(1, 1, raft::HeartbeatReply{.round = 1, .matched = LogIndex(1), .loop_seq = 10});
    host.passed.clear();
    host.Turn();
    ASSERT_FALSE(host.raft().checks_quorum());
    EXPECT_EQ(host.Arrive(2, 2, request), HR_NODE_EVENT_VOTE_IGNORED) << "confirmed";
  }
}

// Else it voted for another, though its process would not.
TEST(KernelBridge, TheKernelPartKnowsThatItsLeaderIsStalled) {
  for (const bool stalled : {false, true}) {
    Host host;
    host.Follow(1, 1);
    const uint64_t timeout_ns = host.raft().detector().timeout_ns();
    const uint64_t heard_ns = host.raft().detector().leader_heard_ns();
    host.now_ns = heard_ns + timeout_ns - kMillisecond;
    host.bridge->BeginTurn(host.now_ns, *host.replica);
    if (stalled) host.replica->Feed(raft::LeaderStalled{.leader = NodeId(1), .term = Term(1)});
    host.bridge->EndTurn(host.now_ns, *host.replica);
    EXPECT_EQ(host.kernel.shared().heard_ns, heard_ns) << "it was not heard";
    host.now_ns += 2 * kMillisecond;
    raft::VoteRequest vote = Host::Vote(2, 9, 1);
    vote.transfer_term = Term();
    EXPECT_EQ(host.Arrive(2, 2, vote), stalled ? HR_NODE_EVENT_VOTE_IGNORED : HR_NODE_EVENT_VOTE_GRANTED);
    if (!stalled) continue;
    host.now_ns += kMillisecond;
    EXPECT_EQ(host.Arrive(1, 1, Host::Beat(2)), HR_NODE_EVENT_HEARTBEAT_ANSWERED);
    host.Turn();
    EXPECT_EQ(host.kernel.shared().election_timeout_ns, host.raft().detector().timeout_ns()) << "it is no longer";
  }
}

}  // namespace
}  // namespace hedgerow::offload
