// SPDX-License-Identifier: Apache-2.0
//
// What an identity says outlives its process, is never half there, and a file that cannot be read is not one that is
// not there.
#include "cluster/storage/identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::storage {
namespace {

using raft::NodeId;
using ::testing::HasSubstr;

class IdentityTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "hedgerow-identity-test.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/identity"; }
  std::string Bytes() const {
    std::ifstream file(Path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void PutBytes(const std::string& bytes) const { std::ofstream(Path(), std::ios::binary | std::ios::trunc) << bytes; }

  std::string folder_;
};

Identity Full() {
  return {.cluster_id = ~uint64_t{0},
          .node = NodeId(7),
          .configured = NodeId(2),
          .generation = {.epoch = 3, .nonce = ~uint64_t{0}},
          .log_uuid = 0x1234'5678'9abc'def0,
          .copy_id = 99,
          .starts = 4,
          .phase = Identity::Phase::kMoving,
          .moved_from = NodeId(2),
          .kernel_holds = "6f5902ac-237c-44a8-a1b5-4b0a3f1c7d2e",
          .kernel_lost = true,
          .unknown_to = NodeId(3),
          .copies = {{NodeId(1), 11}, {NodeId(4294967295), ~uint64_t{0}}}};
}

TEST_F(IdentityTest, WhatIsWrittenIsRead) {
  const Identity plain{.cluster_id = 7, .node = NodeId(1), .configured = NodeId(1)};
  for (Identity identity : {plain, Full()}) {
    ASSERT_EQ(WriteIdentity(folder_, identity), absl::OkStatus());
    EXPECT_EQ(*ReadIdentity(folder_), identity);
    identity.unknown_to = NodeId();
    identity.phase = Identity::Phase::kRestored;
    identity.moved_from = NodeId();
    ASSERT_EQ(WriteIdentity(folder_, identity), absl::OkStatus());
    EXPECT_EQ(*ReadIdentity(folder_), identity) << "the host found it out";
  }
}

// What a version wrote, the next one reads.
TEST_F(IdentityTest, TheTextIsTheOneThatTheDocumentShows) {
  EXPECT_EQ(EncodeIdentity(Full()),
            "hedgerow identity 1\n"
            "cluster 18446744073709551615\n"
            "node 7\n"
            "configured 2\n"
            "epoch 3\n"
            "beginning ffffffffffffffff\n"
            "log 123456789abcdef0\n"
            "copy 0000000000000063\n"
            "starts 4\n"
            "phase moving\n"
            "moved_from 2\n"
            "kernel 6f5902ac-237c-44a8-a1b5-4b0a3f1c7d2e lost\n"
            "unknown_to 3\n"
            "member 1 000000000000000b\n"
            "member 4294967295 ffffffffffffffff\n"
            "crc32 b307ebef\n");
}

TEST_F(IdentityTest, ATornOrFlippedFileIsRefusedAndNotTakenForNone) {
  ASSERT_EQ(WriteIdentity(folder_, Full()), absl::OkStatus());
  const std::string whole = Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    PutBytes(whole.substr(0, size));
    EXPECT_TRUE(absl::IsDataLoss(ReadIdentity(folder_).status())) << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    PutBytes(flipped);
    EXPECT_TRUE(absl::IsDataLoss(ReadIdentity(folder_).status())) << i;
  }
  PutBytes("");
  EXPECT_THAT(std::string(ReadIdentity(folder_).status().message()), HasSubstr("is empty. Leave this node stopped"));
  PutBytes(whole);
  EXPECT_EQ(*ReadIdentity(folder_), Full());
}

TEST_F(IdentityTest, AWriteThatWasCutShortLeavesTheOneBefore) {
  ASSERT_EQ(WriteIdentity(folder_, Full()), absl::OkStatus());
  std::ofstream(Path() + ".unfinished") << "hedgerow ident";
  EXPECT_EQ(*ReadIdentity(folder_), Full());
  Identity next = Full();
  ++next.starts;
  ASSERT_EQ(WriteIdentity(folder_, next), absl::OkStatus());
  EXPECT_EQ(*ReadIdentity(folder_), next);
}

TEST_F(IdentityTest, NoneIsNothingAndOneThatCannotBeReadIsAnError) {
  ASSERT_TRUE(ReadIdentity(folder_).ok());
  EXPECT_FALSE(ReadIdentity(folder_)->has_value());
  ASSERT_TRUE(ReadIdentity(folder_ + "/none").ok());
  EXPECT_FALSE(ReadIdentity(folder_ + "/none")->has_value());
  std::filesystem::create_directory(Path());  // which root cannot read either, unlike a file without rights
  const absl::Status status = ReadIdentity(folder_).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("correct its owner or rights, and start the node again"));
}

TEST_F(IdentityTest, OneThatIsThereIsNotMadeAgain) {
  ASSERT_EQ(CreateIdentity(folder_ + "/new", Full()), absl::OkStatus());
  EXPECT_TRUE(absl::IsAlreadyExists(CreateIdentity(folder_ + "/new", {.cluster_id = 1, .node = NodeId(1)})));
  EXPECT_EQ(*ReadIdentity(folder_ + "/new"), Full());
}

TEST_F(IdentityTest, AnotherNodesOrClustersFolderIsRefusedByBothNames) {
  const Identity identity{.cluster_id = 7, .node = NodeId(9), .configured = NodeId(2)};
  EXPECT_EQ(CheckOwner(folder_, identity, 7, NodeId(2)), absl::OkStatus());
  EXPECT_EQ(CheckOwner(folder_, identity, 7, NodeId(9)), absl::OkStatus());
  EXPECT_THAT(std::string(CheckOwner(folder_, identity, 7, NodeId(3)).message()),
              HasSubstr("is that of node 9 of cluster 7, and the configuration is that of node 3 of cluster 7"));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckOwner(folder_, identity, 8, NodeId(2))));
}

}  // namespace
}  // namespace hedgerow::storage
