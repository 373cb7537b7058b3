// SPDX-License-Identifier: Apache-2.0
//
// The folder of a LOST node becomes another member's, wherever that is cut short, and nothing in it is lost.
#include "cluster/node/identity/rejoin.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/storage/identity.h"

namespace hedgerow::node {
namespace {

using raft::NodeId;

class RejoinTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "hedgerow-rejoin-test.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  NodeConfig Config() const {
    NodeConfig config;
    config.data_dir = folder_;
    config.cluster_id = 7;
    config.self = NodeId(2);
    for (const uint64_t id : {1, 2, 3}) config.members.push_back({.id = NodeId(id)});
    return config;
  }
  void Put(const std::string& name, const std::string& text = "text") const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
  }
  NodeConfig ConfigOf(uint64_t id) const {
    NodeConfig config = Config();
    config.self = NodeId(id);
    return config;
  }
  storage::Identity IdentityIn(const std::string& folder) const {
    const auto identity = storage::ReadIdentity(folder);
    EXPECT_TRUE(identity.ok() && identity->has_value()) << folder;
    return identity.ok() ? identity->value_or(storage::Identity()) : storage::Identity();
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
};

std::vector<uint64_t> IdsOf(const NodeConfig& config) {
  std::vector<uint64_t> ids;
  for (const MemberConfig& member : config.members) ids.push_back(member.id.value());
  return ids;
}

TEST_F(RejoinTest, AFolderThatNeverWasLostChangesNothing) {
  NodeConfig config = Config();
  ASSERT_EQ(FollowRejoin(config), absl::OkStatus());
  EXPECT_EQ(config.self, NodeId(2));
  EXPECT_FALSE(config.join);
}

TEST_F(RejoinTest, ItIsAnotherMemberFromThenOnAndWhatWasThereIsKept) {
  const storage::Identity lost{.cluster_id = 7, .node = NodeId(2), .configured = NodeId(2), .copy_id = 9, .starts = 3};
  ASSERT_EQ(storage::CreateIdentity(folder_, lost), absl::OkStatus());
  Put("watermark", "mark");
  Put("segments/0000000000000001", "current");
  ASSERT_EQ(BeginRejoin(Config(), NodeId(2), {.as = NodeId(7), .generation = {.epoch = 3, .nonce = ~uint64_t{0}}}),
            absl::OkStatus());
  EXPECT_THAT(Names(), testing::ElementsAre("identity", "lost-as-2"));
  EXPECT_EQ(Get("lost-as-2/watermark"), "mark");
  EXPECT_EQ(Get("lost-as-2/segments/0000000000000001"), "current");
  EXPECT_EQ(IdentityIn(folder_ + "/lost-as-2"), lost);
  for (int start = 0; start < 2; ++start) {
    NodeConfig config = Config();
    ASSERT_EQ(FollowRejoin(config), absl::OkStatus());
    EXPECT_EQ(config.self, NodeId(7));
    EXPECT_TRUE(config.join);
    EXPECT_THAT(IdsOf(config), testing::ElementsAre(1, 3, 7));
    EXPECT_EQ(config.cluster_epoch, 3u);
    EXPECT_EQ(config.recovery_nonce, ~uint64_t{0});
  }

  // Lost once more, it becomes the third.
  Put("watermark", "another");
  ASSERT_EQ(BeginRejoin(ConfigOf(7), NodeId(2), {.as = NodeId(3)}), absl::OkStatus());
  EXPECT_THAT(Names(), testing::ElementsAre("identity", "lost-as-2", "lost-as-7"));
  EXPECT_EQ(Get("lost-as-2/watermark"), "mark");
  EXPECT_EQ(Get("lost-as-7/watermark"), "another");
  NodeConfig config = Config();
  ASSERT_EQ(FollowRejoin(config), absl::OkStatus());
  EXPECT_EQ(config.self, NodeId(3));
  EXPECT_THAT(IdsOf(config), testing::ElementsAre(1, 3)) << "whoever had that id in the file has it no more";
}

TEST_F(RejoinTest, WhatIsNoLogStays) {
  Put("watermark", "mark");
  Put("node.yaml");
  std::filesystem::create_directory(folder_ + "/lost+found");  // root's, which no other user may move
  ASSERT_EQ(BeginRejoin(Config(), NodeId(2), {.as = NodeId(7)}), absl::OkStatus());
  EXPECT_THAT(Names(), testing::ElementsAre("identity", "lost+found", "lost-as-2", "node.yaml"));
  EXPECT_EQ(Get("lost-as-2/watermark"), "mark");
}

TEST_F(RejoinTest, WhatWasCutShortIsFinishedAtTheNextStart) {
  Put("watermark", "mark");
  Put("lost-as-2/segments/0000000000000001", "current");  // moved already
  ASSERT_EQ(storage::CreateIdentity(folder_, {.cluster_id = 7,
                                              .node = NodeId(7),
                                              .configured = NodeId(2),
                                              .phase = storage::Identity::Phase::kMoving,
                                              .moved_from = NodeId(2)}),
            absl::OkStatus());
  NodeConfig config = Config();
  ASSERT_EQ(FollowRejoin(config), absl::OkStatus());
  EXPECT_EQ(config.self, NodeId(7));
  EXPECT_THAT(Names(), testing::ElementsAre("identity", "lost-as-2"));
  EXPECT_EQ(Get("lost-as-2/watermark"), "mark");
  EXPECT_EQ(Get("lost-as-2/segments/0000000000000001"), "current");
  EXPECT_EQ(IdentityIn(folder_).phase, storage::Identity::Phase::kReady);
}

TEST_F(RejoinTest, ADamagedIdentityIsRefused) {
  Put("identity", "hedgerow identity 1\nnode 7\n");
  NodeConfig config = Config();
  EXPECT_TRUE(absl::IsDataLoss(FollowRejoin(config)));
}

TEST_F(RejoinTest, AFileThatNamesAnotherNodeIsRefused) {
  ASSERT_EQ(storage::CreateIdentity(folder_, {.cluster_id = 7, .node = NodeId(7), .configured = NodeId(2)}),
            absl::OkStatus());
  NodeConfig config = ConfigOf(3);
  EXPECT_TRUE(absl::IsFailedPrecondition(FollowRejoin(config)));
  config = ConfigOf(7);
  EXPECT_EQ(FollowRejoin(config), absl::OkStatus()) << "the file was corrected meanwhile";
}

}  // namespace
}  // namespace hedgerow::node
