// SPDX-License-Identifier: Apache-2.0
//
// The host remembers a node's starts beside its socket, for each log by itself, and nowhere in the node's folder.
#include "cluster/node/identity/host_memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "cluster/node/identity/identity_keeper.h"
#include "cluster/storage/errors.h"

namespace hedgerow::node {
namespace {

class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "hedgerow-host-memory-test.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::filesystem::create_directories(folder_ + "/run");
    std::filesystem::create_directories(folder_ + "/data/run");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  HostMemory Of(uint64_t copy_id, const std::string& socket = "/run/admin.sock") const {
    return {folder_ + socket, folder_ + "/data", copy_id};
  }

  std::string folder_;
};

TEST_F(HostMemoryTest, EachLogHasItsOwn) {
  EXPECT_EQ(Of(7).starts(), 0u);
  ASSERT_EQ(Of(7).Remember(3), absl::OkStatus());
  ASSERT_EQ(Of(8).Remember(1), absl::OkStatus());
  EXPECT_EQ(Of(7).starts(), 3u);
  EXPECT_EQ(Of(8).starts(), 1u);
  ASSERT_EQ(Of(7).Remember(4), absl::OkStatus());
  EXPECT_EQ(Of(7).starts(), 4u);
  EXPECT_EQ(Of(9).starts(), 0u);
}

TEST_F(HostMemoryTest, ThereIsNoneWhereItWouldBePutBackWithTheFolder) {
  for (const char* const socket : {"/data/admin.sock", "/data/run/admin.sock"}) {
    ASSERT_EQ(Of(7, socket).Remember(3), absl::OkStatus());
    EXPECT_EQ(Of(7, socket).starts(), 0u) << socket;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/data/run"));
}

TEST_F(HostMemoryTest, ThereIsNoneInAFolderThatIsNotThere) {
  ASSERT_EQ(Of(7, "/none/admin.sock").Remember(3), absl::OkStatus());
  EXPECT_EQ(Of(7, "/none/admin.sock").starts(), 0u);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/none"));
}

TEST_F(HostMemoryTest, AFileThatIsNoneRemembersNothing) {
  ASSERT_EQ(Of(7).Remember(3), absl::OkStatus());
  std::ofstream(folder_ + "/run/started-0000000000000007", std::ios::trunc) << "many\n";
  EXPECT_EQ(Of(7).starts(), 0u);
}

TEST_F(HostMemoryTest, AFolderThatWentBackIsFoundOutAtEachStart) {
  NodeConfig config;
  config.cluster_id = 7;
  config.self = raft::NodeId(2);
  config.data_dir = folder_ + "/data";
  const auto start = [&](uint64_t copy_id) {
    const auto keeper = IdentityKeeper::Open(config);
    return keeper.ok() ? (*keeper)->CountStart(copy_id, folder_ + "/run/admin.sock") : keeper.status();
  };
  std::filesystem::remove_all(config.data_dir);
  ASSERT_EQ(start(7), absl::OkStatus());
  const std::string copy = folder_ + "/copy";
  std::filesystem::copy(config.data_dir, copy, std::filesystem::copy_options::recursive);
  ASSERT_EQ(start(7), absl::OkStatus());
  const std::string latest = folder_ + "/latest";
  std::filesystem::rename(config.data_dir, latest);
  std::filesystem::rename(copy, config.data_dir);
  EXPECT_TRUE(storage::IsLost(start(7)));
  std::filesystem::remove_all(folder_ + "/run");  // the host has started anew
  EXPECT_TRUE(storage::IsLost(start(7))) << "the folder says so itself by now";

  std::filesystem::remove_all(config.data_dir);
  std::filesystem::rename(latest, config.data_dir);
  EXPECT_EQ(start(7), absl::OkStatus());
}

}  // namespace
}  // namespace hedgerow::node
