// SPDX-License-Identifier: Apache-2.0
//
// Whole nodes, of which one has a fault of memory: its state is found to be wrong, it serves nobody, and the leader's
// snapshot mends it, without an operator and without an answer that is wrong from then on.

#include <gtest/gtest.h>

#include "cluster/node/testing/node_testing.h"

namespace hedgerow::node {
namespace {

class StateCheckNodeTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.check_every_entries = 20;
    return config;
  }
  uint64_t Count(uint64_t node, const std::string& name) { return Counter(node, name, ""); }
  bool Put(uint64_t node, const std::string& key, const std::string& value) {
    const auto answer =
        AskUntilDone(node, {.kind = wire::HkvKind::kWrite,
                            .client_id = session_,
                            .seq = ++seq_,
                            .lowest_unanswered = seq_,
                            .token = TokenOf(session_),
                            .operations = {{.kind = kv::OperationKind::kPut, .key = key, .value = value}}});
    return answer.has_value() && answer->status == wire::HkvStatus::kOk;
  }
  std::string GetAt(uint64_t node, const std::string& key) {
    const auto answer = AskUntilDone(node, {.kind = wire::HkvKind::kGet, .client_id = 5, .seq = ++seq_, .key = key});
    return answer.has_value() ? answer->value : "no answer";
  }
  bool HaveApplied(raft::LogIndex index) {
    for (uint64_t id = 1; id <= 3; ++id) {
      if (StatusOf(id).applied < index) return false;
    }
    return true;
  }
  // A leader, a session, and two keys that all nodes have.
  uint64_t Begin() {
    const uint64_t leader = WaitForLeader();
    session_ = Open(leader);
    EXPECT_TRUE(Put(leader, "touched", "value"));
    EXPECT_TRUE(Put(leader, "untouched", "value"));
    EXPECT_TRUE(Eventually([&] { return HaveApplied(StatusOf(leader).commit); }));
    return leader;
  }
  void Flip(uint64_t node, const std::string& key) { ASSERT_TRUE(nodes_[node - 1]->node->FlipForTest(key)); }
  // Until the node was mended, writes that do not touch what was flipped.
  bool WriteUntilMended(uint64_t node) {
    return Eventually([&] {
      const uint64_t leader = Leader();
      if (leader != 0) EXPECT_TRUE(Put(leader, "other", "value"));
      return Count(node, "state_mended") > 0;
    });
  }
  bool AllAreOfOneMind() {
    return Eventually([&] {
      const uint64_t leader = Leader();
      if (leader != 0) EXPECT_TRUE(Put(leader, "other", "value"));
      for (uint64_t id = 1; id <= 3; ++id) {
        if (!StatusOf(id).diverged.empty() || StatusOf(id).outside_majority) return false;
      }
      return leader != 0;
    });
  }

  uint64_t session_ = 0;
  uint64_t seq_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Durability, StateCheckNodeTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(StateCheckNodeTest, AFollowersFlippedBitIsFoundOnceItsKeyIsWrittenAndMended) {
  const uint64_t leader = Begin();
  const uint64_t victim = leader % 3 + 1;
  Flip(victim, "touched");
  ASSERT_TRUE(Put(leader, "touched", "later"));
  ASSERT_TRUE(WriteUntilMended(victim));
  EXPECT_GE(Counter(victim, "state_checks", "differ"), 1u);
  EXPECT_EQ(Count(victim, "state_faults"), 0u);
  ASSERT_TRUE(AllAreOfOneMind());
  EXPECT_EQ(GetAt(victim, "touched"), "later");
  EXPECT_EQ(GetAt(victim, "untouched"), "value");
}

TEST_P(StateCheckNodeTest, ALeadersFlippedBitCostsItTheLead) {
  const uint64_t victim = Begin();
  Flip(victim, "touched");
  ASSERT_TRUE(Put(victim, "touched", "later"));
  ASSERT_TRUE(WriteUntilMended(victim));
  EXPECT_GE(Counter(victim, "state_checks", "differ"), 1u);
  ASSERT_TRUE(AllAreOfOneMind());
  EXPECT_EQ(GetAt(victim, "touched"), "later");
}

// Nothing is written meanwhile: no fingerprint would tell of it.
TEST_P(StateCheckNodeTest, ASnapshotFindsAFlippedBitInAnUntouchedKey) {
  const uint64_t leader = Begin();
  const uint64_t victim = leader % 3 + 1;
  Flip(victim, "untouched");
  ASSERT_TRUE(nodes_[victim - 1]->node->TakeSnapshot().ok());
  ASSERT_TRUE(Eventually([&] { return Count(victim, "state_mended") > 0; }));
  EXPECT_EQ(Count(victim, "state_faults"), 1u);
  EXPECT_EQ(Counter(victim, "snapshots", "failed"), 1u) << "a wrong one is not published";
  ASSERT_TRUE(AllAreOfOneMind());
  EXPECT_EQ(GetAt(victim, "untouched"), "value");
}

TEST_P(StateCheckNodeTest, AMendedStateIsTheOneThatTheNextStartLoads) {
  const uint64_t leader = Begin();
  const uint64_t victim = leader % 3 + 1;
  Flip(victim, "touched");
  ASSERT_TRUE(Put(leader, "touched", "later"));
  ASSERT_TRUE(WriteUntilMended(victim));
  const uint64_t snapshot = StatusOf(victim).snapshots.last_index();
  EXPECT_NE(snapshot, 0u);
  Stop(victim);
  Start(victim);
  EXPECT_GE(StatusOf(victim).snapshots.last_index(), snapshot);
  ASSERT_NE(WaitForLeader(), 0u);
  ASSERT_TRUE(AllAreOfOneMind());
  EXPECT_EQ(GetAt(victim, "touched"), "later");
}

}  // namespace
}  // namespace hedgerow::node
