// SPDX-License-Identifier: Apache-2.0
//
// What a node has recorded of the others' logs outlives it, is never half there, and goes with the log that it
// is of.
#include "cluster/node/known_logs.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/records.h"

namespace hedgerow::node {
namespace {

using raft::NodeId;

constexpr uint64_t kLog = 0x1234'5678'9abc'def0;
constexpr uint64_t kOtherLog = 99;

class KnownLogsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "hedgerow-known-logs-test.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  KnownLogs OpenOrDie(uint64_t log_id = kLog) const { return KnownLogs::Open(folder_, log_id).value(); }
  std::string Bytes() const {
    std::ifstream file(OpenOrDie().path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void PutBytes(const std::string& path, const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string folder_;
};

TEST_F(KnownLogsTest, WhatIsRecordedIsThereInTheNextLife) {
  KnownLogs logs = OpenOrDie();
  EXPECT_EQ(logs.Of(NodeId(2)), 0u);
  ASSERT_EQ(logs.Record(NodeId(2), 0x3fff'ffff'ffff'ffff), absl::OkStatus());
  ASSERT_EQ(logs.Record(NodeId(4294967295), 1), absl::OkStatus());
  ASSERT_EQ(logs.Record(NodeId(2), 77), absl::OkStatus()) << "the last word counts";
  for (const KnownLogs& known : {logs, OpenOrDie()}) {
    EXPECT_EQ(known.Of(NodeId(2)), 77u);
    EXPECT_EQ(known.Of(NodeId(4294967295)), 1u);
    EXPECT_EQ(known.Of(NodeId(3)), 0u);
  }
}

TEST_F(KnownLogsTest, WhoIsNoMemberAnyMoreIsForgottenAndTheOthersAreNot) {
  KnownLogs logs = OpenOrDie();
  for (const uint64_t id : {2, 3, 4}) ASSERT_EQ(logs.Record(NodeId(id), 10 * id), absl::OkStatus());
  ASSERT_EQ(logs.KeepOnly({NodeId(2), NodeId(4), NodeId(5)}), absl::OkStatus());
  const KnownLogs next = OpenOrDie();
  EXPECT_EQ(next.Of(NodeId(2)), 20u);
  EXPECT_EQ(next.Of(NodeId(3)), 0u);
  EXPECT_EQ(next.Of(NodeId(4)), 40u);
  EXPECT_EQ(next.Of(NodeId(5)), 0u);
}

TEST_F(KnownLogsTest, ADamagedFileIsRefusedAndNotTakenForNone) {
  KnownLogs logs = OpenOrDie();
  for (const uint64_t id : {2, 3}) ASSERT_EQ(logs.Record(NodeId(id), 10 * id), absl::OkStatus());
  const std::string path = logs.path();
  const std::string whole = Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    PutBytes(path, whole.substr(0, size));
    EXPECT_TRUE(absl::IsDataLoss(KnownLogs::Open(folder_, kLog).status())) << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    PutBytes(path, flipped);
    EXPECT_TRUE(absl::IsDataLoss(KnownLogs::Open(folder_, kLog).status())) << i;
  }
  PutBytes(path, whole);
  EXPECT_EQ(OpenOrDie().Of(NodeId(3)), 30u);
}

// The folder of another log was put back over this one's, and had no such file.
TEST_F(KnownLogsTest, AFileOfAnotherLogSaysNothing) {
  KnownLogs logs = OpenOrDie();
  ASSERT_EQ(logs.Record(NodeId(2), 20), absl::OkStatus());
  KnownLogs others = OpenOrDie(kOtherLog);
  EXPECT_EQ(others.Of(NodeId(2)), 0u);
  EXPECT_EQ(OpenOrDie().Of(NodeId(2)), 20u) << "nothing was recorded since";
  ASSERT_EQ(others.Record(NodeId(3), 30), absl::OkStatus());
  EXPECT_EQ(OpenOrDie(kOtherLog).Of(NodeId(3)), 30u);
  EXPECT_EQ(OpenOrDie(kOtherLog).Of(NodeId(2)), 0u);
  EXPECT_EQ(OpenOrDie().Of(NodeId(3)), 0u);
}

TEST_F(KnownLogsTest, AFileThatDoesNotSayWhoseItIsIsBelieved) {
  const std::string lines = "2 0000000000000014\n";
  PutBytes(OpenOrDie().path(),
           absl::StrCat("hedgerow known logs 1\n", lines,
                        absl::StrFormat("crc32 %08x\n", storage::Checksum("hedgerow known logs 1", lines))));
  EXPECT_EQ(OpenOrDie().Of(NodeId(2)), 20u);
  EXPECT_EQ(OpenOrDie(kOtherLog).Of(NodeId(2)), 20u);
}

TEST_F(KnownLogsTest, AfterAnErrorNothingHasChanged) {
  KnownLogs logs = OpenOrDie();
  ASSERT_EQ(logs.Record(NodeId(2), 20), absl::OkStatus());
  std::filesystem::create_directory(logs.path() + ".unfinished");  // so that it cannot be written
  EXPECT_FALSE(logs.Record(NodeId(3), 30).ok());
  EXPECT_EQ(logs.Of(NodeId(3)), 0u);
  EXPECT_FALSE(logs.KeepOnly({}).ok());
  EXPECT_EQ(logs.Of(NodeId(2)), 20u);
  EXPECT_EQ(OpenOrDie().Of(NodeId(2)), 20u);
}

TEST_F(KnownLogsTest, StartsAreCountedForEachLog) {
  KnownLogs logs = OpenOrDie();
  EXPECT_EQ(logs.own().starts, 0u);
  ASSERT_EQ(logs.CountStart(), absl::OkStatus());
  ASSERT_EQ(logs.Record(NodeId(2), 20), absl::OkStatus());
  logs = OpenOrDie();
  EXPECT_EQ(logs.own().starts, 1u);
  ASSERT_EQ(logs.CountStart(), absl::OkStatus());
  EXPECT_EQ(OpenOrDie().own().starts, 2u);
  EXPECT_EQ(OpenOrDie().Of(NodeId(2)), 20u);
  EXPECT_EQ(OpenOrDie(kOtherLog).own().starts, 0u) << "of another log none is known";
  std::filesystem::create_directory(logs.path() + ".unfinished");  // so that it cannot be written
  EXPECT_FALSE(logs.CountStart().ok());
  EXPECT_EQ(logs.own().starts, 2u);
}

constexpr OwnLog kOwn = {.log_id = kLog, .starts = 4};

TEST_F(KnownLogsTest, WhoWasToldIsLostAtEveryStart) {
  EXPECT_EQ(CheckKnown(folder_, kOwn), absl::OkStatus());
  ASSERT_EQ(MarkUnknown(folder_, kOwn, NodeId(3)), absl::OkStatus());
  for (int start = 0; start < 2; ++start) {
    const absl::Status status = CheckKnown(folder_, kOwn);
    EXPECT_TRUE(storage::IsLost(status));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("node 3 has recorded another"));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("hedgerow cluster members rejoin"));
  }
  ASSERT_EQ(MarkUnknown(folder_, kOwn, NodeId()), absl::OkStatus());
  EXPECT_THAT(std::string(CheckKnown(folder_, kOwn).message()), testing::HasSubstr("this host remembers a later start"));
}

// The folder of before was copied over the one that was marked.
TEST_F(KnownLogsTest, AnotherLogIsNotLostForTheMarkAndTheMarkGoes) {
  ASSERT_EQ(MarkUnknown(folder_, kOwn, NodeId(3)), absl::OkStatus());
  EXPECT_EQ(CheckKnown(folder_, {.log_id = kOtherLog, .starts = 4}), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(CheckKnown(folder_, kOwn), absl::OkStatus()) << "whoever does not believe it tells it again";
}

TEST_F(KnownLogsTest, ALaterStateOfTheLogIsNotLostForTheMarkAndAnEarlierOneIs) {
  ASSERT_EQ(MarkUnknown(folder_, kOwn, NodeId(3)), absl::OkStatus());
  EXPECT_TRUE(storage::IsLost(CheckKnown(folder_, {.log_id = kLog, .starts = 3})));
  EXPECT_EQ(CheckKnown(folder_, {.log_id = kLog, .starts = 5}), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(KnownLogsTest, AMarkThatDoesNotSayOfWhichLogItIsStays) {
  const std::string mark = folder_ + "/unknown-log";
  for (const char* text :
       {"", "3\n", "3 \n", "3 0\n", "3 log\n", "3 63", "3 63\n4 63\n", "3 63 log\n", "3 63 63 63\n"}) {
    PutBytes(mark, text);
    for (const uint64_t log : {kLog, kOtherLog}) {
      EXPECT_TRUE(storage::IsLost(CheckKnown(folder_, {.log_id = log, .starts = 4}))) << text;
    }
  }
  // As former programs wrote it, of whatever state of the log.
  PutBytes(mark, "3 63\n");
  EXPECT_TRUE(storage::IsLost(CheckKnown(folder_, {.log_id = kOtherLog, .starts = 4}))) << "63 is 99";
  EXPECT_EQ(CheckKnown(folder_, kOwn), absl::OkStatus());
}

}  // namespace
}  // namespace hedgerow::node
