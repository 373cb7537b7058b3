// SPDX-License-Identifier: Apache-2.0
//
// Changes of membership between a node's process and its kernel part: behind the fence, all at once (R1).
#include <gtest/gtest.h>

#include "cluster/offload/testing/kernel_bridge_testing.h"
#include "cluster/raft/configuration.h"

namespace hedgerow::offload {
namespace {

using raft::Configuration;
using Kind = raft::MemberChange::Kind;

Configuration Made(const Configuration& from, const std::vector<raft::MemberChange>& changes) {
  const raft::ChangeResult result = raft::Changed(from, changes);
  EXPECT_EQ(result.refusal, raft::ChangeRefusal::kNone);
  return result.next;
}

Configuration Three() { return Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)}); }

AppendRequest Holding(uint64_t prev, uint64_t prev_term, uint64_t term, const Configuration& configuration,
                      uint64_t commit = 0) {
  AppendRequest request = Host::Batch(prev, prev_term, term, commit);
  request.entries[0].kind = raft::EntryKind::kConfiguration;
  request.entries[0].payload = raft::Payload(raft::EncodeConfiguration(configuration));
  return request;
}

hr_node_event ArriveOf(Host& host, uint32_t epoch, uint64_t from, uint64_t term, decltype(Message::body) body) {
  const uint64_t run = host.kernel.Begin(
      host.now_ns,
      {.from = NodeId(from), .to = NodeId(3), .term = Term(term), .config_epoch = epoch, .body = std::move(body)});
  while (host.kernel.Step(run)) {
  }
  return host.events.back();
}

TEST(KernelBridgeMembers, R1_AConfigurationIsTakenUpBehindTheFence) {
  Host host;
  host.Follow(1, 1);
  ASSERT_EQ(host.Arrive(1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_APPEND_STORED);
  const Configuration learner = Made(Three(), {{.kind = Kind::kAddLearner, .node = NodeId(4), .address = "a"}});
  const uint64_t fences = host.bridge->statistics().fences;
  EXPECT_EQ(host.Arrive(1, 1, Holding(1, 1, 1, learner)), HR_NODE_EVENT_PASSED_CONFIGURATION);
  EXPECT_EQ(host.Arrive(1, 1, Host::Batch(2, 1, 1)), HR_NODE_EVENT_PASSED_HOLE) << "what follows it waits for it";
  host.Turn();
  EXPECT_EQ(host.bridge->statistics().fences, fences + 1);
  EXPECT_EQ(host.raft().configuration(), learner);
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(3));
  const hr_node_shared& shared = host.kernel.shared();
  EXPECT_EQ(shared.config_epoch, 1u);
  EXPECT_EQ(shared.voters, 0b0111u) << "a learner is in no mask";
  EXPECT_EQ(shared.members[3].node, 4u);
  EXPECT_NE(shared.capabilities & HR_NODE_CAN_APPEND, 0u) << "and it goes on";
  EXPECT_EQ(ArriveOf(host, 1, 1, 1, Host::Batch(3, 1, 1)), HR_NODE_EVENT_APPEND_STORED);
}

TEST(KernelBridgeMembers, WhatIsOfAnotherConfigurationIsTheProcesss) {
  Host host;
  host.Follow(1, 1);
  EXPECT_EQ(ArriveOf(host, 1, 1, 1, Host::Batch(0, 0, 1)), HR_NODE_EVENT_PASSED_EPOCH);
  host.Turn();
  EXPECT_EQ(host.raft().log().last_index(), LogIndex(1)) << "which takes it all the same";
}

TEST(KernelBridgeMembers, BothMasksAndThoseThatLeaveGoToTheKernel) {
  Host host(Durability::kDisk);
  host.Follow(1, 1);
  const Configuration learner = Made(Three(), {{.kind = Kind::kAddLearner, .node = NodeId(4)}});
  const Configuration joint =
      Made(learner, {{.kind = Kind::kPromote, .node = NodeId(4)}, {.kind = Kind::kRemove, .node = NodeId(2)}});
  AppendRequest request = Holding(0, 0, 1, learner);
  request.entries.push_back(Holding(1, 1, 1, joint).entries[0]);
  host.Arrive(1, 1, request);
  host.Turn();
  host.Turn();
  EXPECT_EQ(host.kernel.shared().voters, 0b0111u);
  EXPECT_EQ(host.kernel.shared().next_voters, 0b1101u);
  const Configuration after = AfterJoint(joint);
  ArriveOf(host, 2, 1, 1, Holding(2, 1, 1, after, 2));
  host.Turn();
  host.Turn();
  EXPECT_EQ(host.kernel.shared().voters, 0b1101u);
  EXPECT_EQ(host.kernel.shared().next_voters, 0u);
  EXPECT_EQ(host.kernel.shared().members[1].node, 2u) << "it is still to be told";
  ArriveOf(host, 3, 1, 1, Host::Beat(2, 3));
  host.now_ns += kMillisecond;  // what the kernel part has heard is polled
  host.Turn();
  host.Turn();
  EXPECT_EQ(host.kernel.shared().members[1].node, 0u) << "and now it has left";
}

// What its kernel part has counted until a fence may commit its own removal: then it follows, and in memory mode, where
// its kernel part may promise, waits for its disk.
TEST(KernelBridgeMembers, ALeaderThatLeavesBehindItsLastFenceIsOpenedOnceAllIsWritten) {
  for (const Durability durability : {Durability::kDisk, Durability::kMemory}) {
    Host host(durability);
    Lead(host);
    const auto acknowledged = [&](uint32_t epoch, uint64_t index, uint64_t loop_seq) {
      for (const uint64_t member : {1, 2})
        ArriveOf(host, epoch, member, 1,
                 raft::AppendReply{.accepted = true, .index = LogIndex(index), .loop_seq = loop_seq});
    };
    acknowledged(0, 1, 1);
    host.Turn();
    host.replica->Feed(raft::ChangeMembership{.changes = {{.kind = Kind::kRemove, .node = NodeId(3)}}});
    host.Turn();
    acknowledged(1, 2, 2);
    host.disk_held = true;
    host.Turn();
    ASSERT_EQ(host.raft().configuration().epoch, 2u) << "the last one, without it";
    ASSERT_EQ(host.raft().commit(), LogIndex(2));
    uint64_t fences = 0;
    host.fence_begins = [&] {
      if (++fences == 1) acknowledged(2, 3, 3);
    };
    for (int i = 0; i < 100 && fences == 0; ++i) {
      host.now_ns += kMillisecond;
      host.Turn();
    }
    ASSERT_EQ(fences, 1u) << "it checks its quorum";
    ASSERT_EQ(host.raft().commit(), LogIndex(3));
    ASSERT_EQ(host.raft().role(), Role::kFollower);
    ASSERT_LT(host.raft().durable(), LogIndex(3));
    EXPECT_EQ(host.bridge->open(), durability == Durability::kDisk);
    host.ReleaseDisk();
    host.Turn();
    EXPECT_TRUE(host.bridge->open());
  }
}

TEST(KernelBridgeMembers, ATruncatedConfigurationIsTakenBackFromTheKernel) {
  Host host;
  host.Follow(1, 1);
  host.Arrive(1, 1, Host::Batch(0, 0, 1));
  host.Arrive(1, 1, Holding(1, 1, 1, Made(Three(), {{.kind = Kind::kRemove, .node = NodeId(3)}})));
  host.Turn();
  ASSERT_EQ(host.kernel.shared().config_epoch, 1u);
  ASSERT_NE(host.kernel.shared().next_voters, 0u);
  AppendRequest other = Host::Batch(1, 1, 2);
  host.Arrive(2, 2, other);
  host.Turn();
  EXPECT_EQ(host.raft().configuration(), Three());
  EXPECT_EQ(host.kernel.shared().config_epoch, 0u);
  EXPECT_EQ(host.kernel.shared().next_voters, 0u);
}

}  // namespace
}  // namespace hedgerow::offload
