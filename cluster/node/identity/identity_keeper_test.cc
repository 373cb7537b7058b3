// SPDX-License-Identifier: Apache-2.0
//
// A node's identity as it runs: what it records outlives it and does not count before it is durable, and a folder that
// is not the one that the node left is found out.
#include "cluster/node/identity/identity_keeper.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cluster/storage/errors.h"

namespace hedgerow::node {
namespace {

using raft::NodeId;
using ::testing::HasSubstr;

class IdentityKeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "hedgerow-identity-keeper-test.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    config_.cluster_id = 7;
    config_.self = NodeId(1);
    config_.data_dir = folder_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<IdentityKeeper> OpenOrDie(const std::string& boot_id = "this-run") const {
    return IdentityKeeper::Open(config_, boot_id).value();
  }
  static absl::Status RecordNow(IdentityKeeper& keeper, uint64_t node, uint64_t copy) {
    const absl::Status asked = keeper.Record(NodeId(node), copy);
    if (!absl::IsUnavailable(asked)) return asked;
    (void)keeper.Flush();
    return keeper.Record(NodeId(node), copy);
  }
  // So that it cannot be written.
  void Bar() const { std::filesystem::create_directory(folder_ + "/identity.unfinished"); }
  void Unbar() const { std::filesystem::remove(folder_ + "/identity.unfinished"); }

  std::string folder_;
  NodeConfig config_;
};

TEST_F(IdentityKeeperTest, WhatIsRecordedIsThereAtTheNextStart) {
  const auto keeper = OpenOrDie();
  EXPECT_EQ(keeper->CopyOf(NodeId(2)), 0u);
  ASSERT_EQ(RecordNow(*keeper, 2, 0x3fff'ffff'ffff'ffff), absl::OkStatus());
  ASSERT_EQ(RecordNow(*keeper, 4294967295, 1), absl::OkStatus());
  ASSERT_EQ(RecordNow(*keeper, 2, 77), absl::OkStatus()) << "the last word counts";
  const auto next = OpenOrDie();
  for (const IdentityKeeper* known : {keeper.get(), next.get()}) {
    EXPECT_EQ(known->CopyOf(NodeId(2)), 77u);
    EXPECT_EQ(known->CopyOf(NodeId(4294967295)), 1u);
    EXPECT_EQ(known->CopyOf(NodeId(3)), 0u);
  }
}

TEST_F(IdentityKeeperTest, AFormerMemberIsForgottenAndTheOthersAreNot) {
  const auto keeper = OpenOrDie();
  for (const uint64_t id : {2, 3, 4}) ASSERT_EQ(RecordNow(*keeper, id, 10 * id), absl::OkStatus());
  keeper->KeepOnly({NodeId(2), NodeId(4), NodeId(5)});
  ASSERT_EQ(keeper->Flush(), absl::OkStatus());
  const auto next = OpenOrDie();
  EXPECT_EQ(next->CopyOf(NodeId(2)), 20u);
  EXPECT_EQ(next->CopyOf(NodeId(3)), 0u);
  EXPECT_EQ(next->CopyOf(NodeId(4)), 40u);
}

TEST_F(IdentityKeeperTest, WhatCannotBeWrittenDoesNotCount) {
  const auto keeper = OpenOrDie();
  ASSERT_EQ(RecordNow(*keeper, 2, 20), absl::OkStatus());
  Bar();
  EXPECT_FALSE(RecordNow(*keeper, 3, 30).ok());
  EXPECT_EQ(keeper->CopyOf(NodeId(3)), 0u);
  EXPECT_EQ(OpenOrDie()->CopyOf(NodeId(3)), 0u);
  (void)keeper->Flush();
  Unbar();
  (void)keeper->Record(NodeId(3), 30);
  EXPECT_EQ(keeper->Flush(), absl::OkStatus()) << "it is tried again";
  EXPECT_EQ(keeper->Record(NodeId(3), 30), absl::OkStatus());
}

TEST_F(IdentityKeeperTest, WhatCouldNotBeWrittenInTheBackgroundIsTriedAgainByItself) {
  const auto keeper = OpenOrDie();
  ASSERT_EQ(RecordNow(*keeper, 2, 20), absl::OkStatus());
  Bar();
  keeper->SetLogUuid(77);
  keeper->KeepOnly({});
  EXPECT_FALSE(keeper->Flush().ok());
  Unbar();
  const absl::Time by = absl::Now() + absl::Seconds(30);
  while (!keeper->Flush().ok() && absl::Now() < by) absl::SleepFor(absl::Milliseconds(10));
  const auto next = OpenOrDie();
  EXPECT_EQ(next->log_uuid(), 77u);
  EXPECT_EQ(next->CopyOf(NodeId(2)), 0u);
}

TEST_F(IdentityKeeperTest, StartsAreCountedBeforeAnythingIsPromised) {
  EXPECT_EQ(OpenOrDie()->starts(), 0u);
  ASSERT_EQ(OpenOrDie()->CountStart(9, ""), absl::OkStatus());
  const auto keeper = OpenOrDie();
  EXPECT_EQ(keeper->starts(), 1u);
  EXPECT_EQ(keeper->copy_id(), 9u);
  Bar();
  EXPECT_FALSE(keeper->CountStart(9, "").ok());
  EXPECT_EQ(keeper->starts(), 1u);
  Unbar();
  ASSERT_EQ(keeper->CountStart(9, ""), absl::OkStatus());
  EXPECT_EQ(OpenOrDie()->starts(), 2u);
}

TEST_F(IdentityKeeperTest, AnotherLogInItsFolderIsLost) {
  ASSERT_EQ(OpenOrDie()->CountStart(9, ""), absl::OkStatus());
  const absl::Status status = OpenOrDie()->CountStart(10, "");
  EXPECT_TRUE(storage::IsLost(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("`identity` says that it is copy 0000000000000009, and it is copy 000000000000000a"));
  EXPECT_EQ(OpenOrDie()->CountStart(9, ""), absl::OkStatus()) << "the log of before was put back";
}

TEST_F(IdentityKeeperTest, ALogWithoutAnIdentityIsRefusedAndNotTakenForANewFolder) {
  std::filesystem::create_directory(folder_ + "/lost+found");
  std::ofstream(folder_ + "/node.yaml") << "node: 1\n";
  EXPECT_TRUE(IdentityKeeper::Open(config_).ok()) << "nothing of a log is there";
  std::filesystem::remove(folder_ + "/identity");
  std::filesystem::create_directory(folder_ + "/snapshots");
  const absl::Status status = IdentityKeeper::Open(config_).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds a log (snapshots) and no file `identity`"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/identity"));
}

TEST_F(IdentityKeeperTest, ADamagedOneAndAnothersAreRefused) {
  ASSERT_EQ(OpenOrDie()->CountStart(9, ""), absl::OkStatus());
  config_.self = NodeId(2);
  EXPECT_THAT(std::string(IdentityKeeper::Open(config_).status().message()),
              HasSubstr("is that of node 1 of cluster 7, and the configuration is that of node 2 of cluster 7"));
  config_.self = NodeId(1);
  std::filesystem::resize_file(folder_ + "/identity", 20);
  EXPECT_TRUE(absl::IsDataLoss(IdentityKeeper::Open(config_).status()));
}

TEST_F(IdentityKeeperTest, ANodeMarkedUnknownIsLostAtEveryStart) {
  const absl::Status marked = OpenOrDie()->MarkUnknown(NodeId(3));
  for (const absl::Status& status : {marked, IdentityKeeper::Open(config_).status()}) {
    EXPECT_TRUE(storage::IsLost(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("node 3 has recorded another"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("hedgerow-node members rejoin"));
  }
}

TEST_F(IdentityKeeperTest, WhatTheKernelHeldIsOfOneRunOfTheHostUntilItIsLost) {
  ASSERT_EQ(OpenOrDie()->SetKernelHolds(), absl::OkStatus());
  EXPECT_TRUE(OpenOrDie()->KernelHolds());
  EXPECT_FALSE(OpenOrDie("the-next-run")->KernelHolds()) << "its log is worth nothing there, which the log itself says";
  EXPECT_TRUE(OpenOrDie("")->KernelHolds()) << "a run that cannot be known may be this one";
  EXPECT_FALSE(OpenOrDie()->KernelLost());
  ASSERT_EQ(OpenOrDie()->SetKernelLost(), absl::OkStatus());
  EXPECT_TRUE(OpenOrDie("the-next-run")->KernelHolds());
  EXPECT_TRUE(OpenOrDie("the-next-run")->KernelLost());
}

TEST_F(IdentityKeeperTest, WhatStopsInOrderHoldsNothingInTheKernel) {
  ASSERT_EQ(OpenOrDie()->SetKernelHolds(), absl::OkStatus());
  ASSERT_EQ(OpenOrDie()->SetKernelFree(), absl::OkStatus());
  EXPECT_FALSE(OpenOrDie()->KernelHolds());
  EXPECT_FALSE(OpenOrDie("")->KernelHolds());
}

TEST_F(IdentityKeeperTest, ARestoredFolderIsOneUntilItsFirstStart) {
  ASSERT_EQ(
      storage::WriteIdentity(
          folder_,
          {.cluster_id = 7, .node = NodeId(1), .configured = NodeId(1), .phase = storage::Identity::Phase::kRestored}),
      absl::OkStatus());
  EXPECT_TRUE(OpenOrDie()->JustRestored());
  ASSERT_EQ(OpenOrDie()->SetStarted(), absl::OkStatus());
  EXPECT_FALSE(OpenOrDie()->JustRestored());
}

}  // namespace
}  // namespace hedgerow::node
