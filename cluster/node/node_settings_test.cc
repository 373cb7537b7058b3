// SPDX-License-Identifier: Apache-2.0
//
// The cluster's settings with whole nodes, whose files differ: what holds is what the log says, on all of them.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"

#include "cluster/node/testing/node_testing.h"

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NodeSettingsTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.settings.sessions.sessions_max = files_.at(id);
    config.settings_in_file = {kv::Setting::kSessionsMax};
    return config;
  }
  std::string SessionsMax(uint64_t id) {
    for (const NodeStatus status = StatusOf(id); const v1::Setting& setting : status.settings) {
      if (setting.name() == "sessions.max") return setting.value();
    }
    return "none";
  }
  bool AllHave(const std::string& value, uint64_t version) {
    return Eventually([&] {
      for (uint64_t id = 1; id <= 3; ++id) {
        if (SessionsMax(id) != value || StatusOf(id).settings_version != version) return false;
      }
      return true;
    });
  }
  void ChangeAtTheLeader(kv::SettingValues values) {
    EXPECT_TRUE(Eventually([&] {
      const uint64_t leader = Leader();
      return leader != 0 && nodes_[leader - 1]->node->ChangeSettings(values).ok();
    }));
  }

  std::map<uint64_t, uint64_t> files_ = {{1, 101}, {2, 102}, {3, 103}};
};

INSTANTIATE_TEST_SUITE_P(Durability, NodeSettingsTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(NodeSettingsTest, TheFirstLeadersFileSeedsAllNodes) {
  ASSERT_NE(WaitForLeader(), 0u);
  ASSERT_TRUE(Eventually([&] { return StatusOf(1).settings_version == 1; }));
  const std::string seed = SessionsMax(1);
  EXPECT_TRUE(AllHave(seed, 1));
  for (uint64_t id = 1; id <= 3; ++id) {
    const NodeStatus status = StatusOf(id);
    if (std::to_string(files_.at(id)) == seed) {
      EXPECT_THAT(status.notes, IsEmpty());
    } else {
      EXPECT_THAT(status.notes, ElementsAre(HasSubstr("sessions.max is " + seed + ", and the file of this node says " +
                                                      std::to_string(files_.at(id)))));
    }
  }
}

TEST_P(NodeSettingsTest, AChangeHoldsOnAllNodesAndAfterAStartWithOtherFiles) {
  ASSERT_NE(WaitForLeader(), 0u);
  ChangeAtTheLeader({{kv::Setting::kSessionsMax, 2}});
  ASSERT_TRUE(AllHave("2", 2));
  for (uint64_t i = 1; i <= 2; ++i) {
    const uint64_t session = Open(i);
    EXPECT_EQ(Increment(i, session, 1), std::to_string(i)) << "one that never wrote would make room";
  }
  const wire::HkvRequest third{.kind = wire::HkvKind::kOpen, .seq = 999};
  const auto refused = Ask(Leader(), third);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, wire::HkvStatus::kOverloaded);
  // Of one node by way of a snapshot.
  ASSERT_TRUE(nodes_[0]->node->TakeSnapshot().ok());
  EXPECT_TRUE(Eventually([&] { return StatusOf(1).snapshots.last_index() > 0; }));
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  files_ = {{1, 5000}, {2, 5000}, {3, 5000}};
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  ASSERT_NE(WaitForLeader(), 0u);
  EXPECT_TRUE(AllHave("2", 2));
}

// What a command that waits for a change goes by (admin/commands_settings.cc).
TEST_P(NodeSettingsTest, OnceTheEntryOfAChangeIsAppliedItHoldsOrNeverWill) {
  const uint64_t leader = WaitForLeader();
  ASSERT_NE(leader, 0u);
  Node& node = *nodes_[leader - 1]->node;
  const auto change = [&](kv::SettingValue value) {
    const auto asked = node.ChangeSettings({value});
    EXPECT_TRUE(asked.ok()) << asked.status();
    if (!asked.ok()) return v1::ChangeSettingsReply();
    EXPECT_NE(asked->index(), 0u);
    EXPECT_EQ(asked->term(), StatusOf(leader).term.value());
    return *asked;
  };
  (void)change({kv::Setting::kSessionsMax, 5});
  const v1::ChangeSettingsReply later = change({kv::Setting::kSessionsMax, 6});
  ASSERT_TRUE(Eventually([&] { return StatusOf(leader).applied.value() >= later.index(); }));
  EXPECT_EQ(SessionsMax(leader), "6");
  v1::ChangeSettingsReply last;
  for (uint64_t longer = 1; longer <= 8; ++longer) {
    last = change({kv::Setting::kWindow, (100 + longer) * 1'000'000'000});
    ASSERT_TRUE(Eventually([&] { return StatusOf(leader).applied.value() >= last.index(); }));
  }
  EXPECT_EQ(StatusOf(leader).settings_version, last.version())
      << "refused: it was made longer eight times within the window";
}

TEST_P(NodeSettingsTest, OnlyTheLeaderIsAsked) {
  const uint64_t leader = WaitForLeader();
  ASSERT_NE(leader, 0u);
  const absl::Status refused = nodes_[leader % 3]->node->ChangeSettings({{kv::Setting::kSessionsMax, 5}}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("leads; ask it"));
}

TEST_P(NodeSettingsTest, WhereNoNodeLeadsEachRefusalSaysAskAgain) {
  const uint64_t leader = WaitForLeader();
  ASSERT_NE(leader, 0u);
  const uint64_t alone = leader % 3 + 1;
  for (uint64_t id = 1; id <= 3; ++id) {
    if (id != alone) Stop(id);
  }
  Node& node = *nodes_[alone - 1]->node;
  ASSERT_TRUE(Eventually([&] { return !StatusOf(alone).leader.IsSet(); }));
  const std::vector<absl::Status> refusals = {
      node.ChangeSettings({{kv::Setting::kSessionsMax, 5}}).status(), node.PurgeSome({}).status(),
      node.Transfer(raft::NodeId()),
      node.ChangeMembers({{.kind = raft::MemberChange::Kind::kRemove, .node = raft::NodeId(leader)}}).status()};
  for (const absl::Status& refusal : refusals) EXPECT_EQ(refusal, absl::AbortedError("no node leads now; ask again"));
}

// What its acknowledgements promise is not what those of the others do.
class OtherDurabilityTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    if (id != 3) return config;
    const bool disk = config.durability == Durability::kDisk;
    config.durability = disk ? Durability::kMemory : Durability::kDisk;
    return config;
  }
  bool Names(uint64_t node, uint64_t peer) {
    for (const v1::Peer& other : StatusOf(node).peers) {
      const std::string mode = std::string(Name(ConfigOf(peer).durability));
      if (other.id() == peer) return absl::StrContains(other.incompatible(), "has `durability: " + mode + "`, and");
    }
    return false;
  }
};

INSTANTIATE_TEST_SUITE_P(Durability, OtherDurabilityTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(OtherDurabilityTest, ANodeOfTheOtherModeIsNamedByAllAndTakesNoPart) {
  EXPECT_TRUE(Eventually([&] { return Names(1, 3) && Names(2, 3) && Names(3, 1) && Names(3, 2); }));
  EXPECT_TRUE(Eventually([&] { return StatusOf(1).ready && StatusOf(2).ready; })) << "two of three go on";
  EXPECT_FALSE(StatusOf(3).ready);
  EXPECT_GT(Counter(1, "peer_dropped", "other_durability"), 0u);
}

}  // namespace
}  // namespace hedgerow::node
