// SPDX-License-Identifier: Apache-2.0
//
// Nodes that can do less are members like the others, and a leader proposes nothing that they cannot read.
#include "cluster/kv/features.h"

#include <gtest/gtest.h>

#include "cluster/node/testing/node_testing.h"

namespace hedgerow::node {
namespace {

class FeaturesTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.check_every_entries = 10;
    if (id == 3) config.features = features_of_3_;
    return config;
  }
  // So many increments, at whichever node leads.
  void Increments(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t leader = WaitForLeader();
      if (session_ == 0) session_ = Open(leader);
      ++seq_;
      EXPECT_EQ(Increment(leader, session_, seq_), std::to_string(seq_));
    }
  }
  uint64_t Compared() {
    uint64_t compared = 0;
    for (uint64_t id = 1; id <= 3; ++id)
      compared += Counter(id, "state_checks", "equal") + Counter(id, "state_checks", "skipped");
    return compared;
  }

  uint32_t features_of_3_ = 0;
  uint64_t session_ = 0;
  uint64_t seq_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Durability, FeaturesTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(FeaturesTest, WhatOneMemberCannotReadIsProposedOnceItCan) {
  Increments(60);
  EXPECT_EQ(Compared(), 0u);
  EXPECT_GT(StatusOf(3).applied, raft::LogIndex(60)) << "it takes part like the others";

  Stop(3);
  features_of_3_ = kv::kAllFeatures;
  Start(3);
  EXPECT_TRUE(Eventually([&] {
    Increments(1);
    return Compared() > 0;
  }));
}

}  // namespace
}  // namespace hedgerow::node
