// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/host/node_memory.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

class NodeMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "node-memory-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    root_ = folder;
    Write("proc/meminfo", "MemTotal:        4194304 kB\nMemFree:          100 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(NodeMemoryTest, WithoutAGroupItIsTheHosts) { EXPECT_EQ(AvailableMemory_bytes(root_), 4096 * kMebibyte); }

TEST_F(NodeMemoryTest, TheLeastOfAllGroupsAboveTheProcessHolds) {
  Write("proc/self/cgroup", "0::/a/b/c\n");
  Write("sys/fs/cgroup/a/b/c/memory.max", "max\n");
  EXPECT_EQ(AvailableMemory_bytes(root_), 4096 * kMebibyte);
  Write("sys/fs/cgroup/a/b/memory.max", "536870912\n");
  EXPECT_EQ(AvailableMemory_bytes(root_), 512 * kMebibyte);
  Write("sys/fs/cgroup/a/memory.max", "268435456\n");
  EXPECT_EQ(AvailableMemory_bytes(root_), 256 * kMebibyte);
}

TEST_F(NodeMemoryTest, GroupsOfVersionOneAreFoundByTheirController) {
  Write("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:memory:/a\n0::/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "134217728\n");
  EXPECT_EQ(AvailableMemory_bytes(root_), 128 * kMebibyte);
}

TEST_F(NodeMemoryTest, AContainersOwnGroupIsTheMount) {
  Write("proc/self/cgroup", "0::/docker/0123\n");
  Write("sys/fs/cgroup/memory.max", "268435456\n");
  EXPECT_EQ(AvailableMemory_bytes(root_), 256 * kMebibyte);
}

TEST_F(NodeMemoryTest, ALimitLeavesRoomForWhatANodeNeedsBesideIt) {
  EXPECT_EQ(LimitFor_bytes(UINT64_MAX, 1024 * kMebibyte), 1024 * kMebibyte);
  EXPECT_EQ(LimitFor_bytes(256 * kMebibyte, 1024 * kMebibyte), 48 * kMebibyte);
  EXPECT_EQ(LimitFor_bytes(0, 1024 * kMebibyte), 16 * kMebibyte);
  for (uint64_t memory = 256; memory < 8192; memory += 100) {
    EXPECT_LE(MemoryNeeded_bytes(LimitFor_bytes(memory * kMebibyte, 1024 * kMebibyte)), memory * kMebibyte);
  }
}

TEST_F(NodeMemoryTest, AProcessHasResidentPages) {
  EXPECT_GT(ResidentMemory_bytes(), kMebibyte);
  EXPECT_LT(ResidentMemory_bytes(), AvailableMemory_bytes());
}

}  // namespace
}  // namespace hedgerow::node
