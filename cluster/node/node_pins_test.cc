// SPDX-License-Identifier: Apache-2.0
//
// A node of memory mode that was killed, started with a program that cannot take what the former one has left
// in the kernel: it says so, and leaves the log as the former one can read it. With a bpffs of its own.

#include <bpf/bpf.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "bpf/node/raft/node_maps_abi.h"
#include "cluster/node/node.h"
#include "cluster/node/identity/identity_keeper.h"
#include "cluster/node/testing/socket_testing.h"
#include "cluster/storage/testing/storage_story.h"
#include "cluster/storage/watermark.h"
#include "net/bpffs.h"
#include "net/fnv.h"
#include "net/namespace_test.h"
#include "net/unique_fd.h"

namespace hedgerow::node {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFormerLayout = HR_NODE_ABI_VERSION - 1;

class NodePinsTest : public net::NamespaceTest {
 protected:
  NodePinsTest() {
    for (const uint64_t id : {1, 2, 3})
      config_.members.push_back({.id = raft::NodeId(id), .peer = FreeAddress(), .serve = FreeAddress()});
    config_.cluster_id = storage::kTestCluster;
    wire::Key key;
    key.bytes.fill(0x11);
    config_.cluster_keys = key;
    config_.self = storage::kTestNode;
    config_.durability = Durability::kMemory;
    config_.data_dir = folder_.log();
    config_.serve = config_.own().serve;
  }

  std::string Instance() const {
    return absl::StrCat("node-", config_.self.value(), "-", absl::Hex(net::Fnv1a(config_.data_dir), absl::kZeroPad8));
  }
  std::map<std::string, std::string> Log() const {
    std::map<std::string, std::string> files = {{"log-header", storage::ReadFile(folder_.log() + "/log-header")}};
    for (const auto& file : std::filesystem::directory_iterator(folder_.segments()))
      files[file.path()] = storage::ReadFile(file.path());
    return files;
  }
  // As far as it says for whom it is.
  void Pin(uint32_t layout) const {
    const net::UniqueFd map(
        bpf_map_create(BPF_MAP_TYPE_ARRAY, "about", sizeof(uint32_t), sizeof(hr_node_about), 1, nullptr));
    ASSERT_TRUE(map.valid()) << strerror(errno);
    const hr_node_about about = {
        .abi_version = layout, .self = static_cast<uint32_t>(config_.self.value()), .cluster_id = config_.cluster_id};
    const uint32_t zero = 0;
    ASSERT_EQ(bpf_map_update_elem(map.get(), &zero, &about, BPF_ANY), 0);
    const auto folder = net::MakePinDir(net::kDefaultBpffs, Instance());
    ASSERT_THAT(folder.status(), net::IsOk());
    ASSERT_EQ(bpf_obj_pin(map.get(), absl::StrCat(*folder, "/about").c_str()), 0) << strerror(errno);
  }

  storage::TestFolder folder_;
  NodeConfig config_;
};

TEST_F(NodePinsTest, WhatOnlyTheFormerProgramCanFetchLeavesTheLogAsThatOneReadsIt) {
  InNamespace([&] {
    ASSERT_EQ(mount("pins", net::kDefaultBpffs, "bpf", 0, nullptr), 0) << strerror(errno);
    ASSERT_EQ(Shell("ip link set lo up"), 0);
    storage::StorageOptions stored = storage::TestOptions(folder_, /*sync=*/false);
    stored.begins_with = config_.Initial();
    storage::OpenOrDie(stored);
    const std::map<std::string, std::string> before = Log();
    Pin(kFormerLayout);
    ASSERT_EQ(storage::CreateIdentity(config_.data_dir, {.cluster_id = config_.cluster_id,
                                                         .node = config_.self,
                                                         .configured = config_.self,
                                                         .kernel_holds = storage::KernelBootId()}),
              absl::OkStatus());
    for (int start = 0; start < 2; ++start) {
      const absl::Status refused = Node::Create(config_).status();
      EXPECT_THAT(std::string(refused.message()), HasSubstr("start what made them once more"));
      EXPECT_EQ(Log(), before);
    }

    // As that program leaves it, once it was started and stopped in order.
    ASSERT_EQ(IdentityKeeper::Open(config_).value()->SetKernelFree(), absl::OkStatus());
    ASSERT_THAT(net::RemovePinDir(net::kDefaultBpffs, Instance()), net::IsOk());
    EXPECT_THAT(Node::Create(config_).status(), net::IsOk());
    EXPECT_NE(Log(), before);
  });
}

}  // namespace
}  // namespace hedgerow::node
