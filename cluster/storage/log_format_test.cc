// SPDX-License-Identifier: Apache-2.0
//
// The format of the log: what earlier programs have left is refused and not touched, a later one is named, and
// this one's is what is documented. testdata/log-8 is a log as hexadecimal lines (file, place, bytes), made
// after records.h and segment_file.h and not by this program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "cluster/storage/log_reader.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/records.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/testing/storage_story.h"
#include "operate/hex.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

constexpr StoredIdentity kIdentity = {.cluster_id = kTestCluster, .node = kTestNode};
constexpr RecoveryGeneration kGeneration = {.epoch = 5, .nonce = 55};

std::map<std::string, std::string> Everything(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files[entry.path().native()] = entry.is_directory() ? "a folder" : ReadFile(entry.path());
  }
  return files;
}

class LogFormatTest : public ::testing::Test {
 protected:
  StorageOptions Options() const {
    StorageOptions options = TestOptions(folder_, true);
    options.begins_with = raft::Configuration::OfVoters({raft::NodeId(1), raft::NodeId(2), raft::NodeId(3)});
    options.generation = kGeneration;
    return options;
  }
  // Parts of files by their name in the log's folder.
  static std::map<std::string, std::string> Golden(int version = 8) {
    std::map<std::string, std::string> files;
    std::ifstream lines(absl::StrCat(HEDGEROW_SOURCE_DIR "/cluster/storage/testdata/log-", version));
    std::string name;
    size_t place = 0;
    for (std::string bytes; lines >> name >> place >> bytes;) {
      std::string& file = files[name];
      file.resize(place);
      file += operate::BytesOfHex(bytes);
    }
    EXPECT_EQ(files.size(), 3u);
    return files;
  }
  // What it holds.
  static raft::RestoredState Expected() {
    raft::RestoredState state;
    state.hard_state = {.term = raft::Term(3), .voted_for = raft::NodeId(2)};
    state.entries = {TestEntry(1, 1, ""), TestEntry(2, 1, "one"), TestEntry(3, 3, "two")};
    state.entries[0].kind = raft::EntryKind::kNoOp;
    return state;
  }

  TestFolder folder_;
};

TEST_F(LogFormatTest, TheGoldenLogIsReadAndGoesOn) {
  std::filesystem::create_directories(folder_.segments());
  for (const auto& [name, bytes] : Golden()) WriteFile(absl::StrCat(folder_.log(), "/", name), bytes);
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(Options());
    EXPECT_TRUE(Same(storage->TakeRestored(), Expected()));
    EXPECT_EQ(storage->began_with().voters, 0b111u);
    EXPECT_EQ(storage->generation(), kGeneration);
    EXPECT_EQ(storage->copy_id(), 0x1234'5678u);
    storage->Write({.sequence = 1, .entries = {TestEntry(4, 3, "three")}});
    ASSERT_TRUE(AwaitDurable(*storage, 1));
  }
  const std::unique_ptr<LogStorage> again = OpenOrDie(Options());
  EXPECT_EQ(again->copy_id(), 0x1234'5678u);
  raft::RestoredState longer = Expected();
  longer.entries.push_back(TestEntry(4, 3, "three"));
  EXPECT_TRUE(Same(again->TakeRestored(), longer));
}

TEST_F(LogFormatTest, WhatThisProgramWritesIsAsDocumented) {
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(Options());
    const std::vector<raft::Entry> entries = Expected().entries;
    raft::Entry truncated = TestEntry(3, 1, "gone");
    storage->Write({.sequence = 1,
                    .hard_state = raft::HardState{.term = raft::Term(1)},
                    .entries = {entries[0], entries[1], truncated}});
    ASSERT_TRUE(AwaitDurable(*storage, 1));
    storage->Write({.sequence = 2,
                    .hard_state = Expected().hard_state,
                    .truncate_from = raft::LogIndex(3),
                    .entries = {entries[2]}});
    ASSERT_TRUE(AwaitDurable(*storage, 2));
  }
  std::map<std::string, std::string> golden = Golden();
  const std::string mark = ReadFile(folder_.log() + "/watermark");
  ASSERT_EQ(mark.size(), golden["watermark"].size());
  EXPECT_EQ(mark.substr(4, 9), golden["watermark"].substr(4, 9)) << "what follows names this run of the host";

  // With the golden one's id and salt, which are drawn.
  const std::optional<LogHeader> header = *ReadLogHeader(folder_.log(), kIdentity);
  ASSERT_TRUE(header.has_value());
  LogHeader same = *header;
  same.copy_id = 0x1234'5678;
  EXPECT_EQ(EncodeLogHeader(same), golden["log-header"]);
  const FoundSegment file = FilesOf(folder_)[0];
  const std::string bytes = ReadFile(file.path);
  const std::string& expected = golden["segments/0000000000000001"];
  ASSERT_EQ(file.records.end, expected.size());
  EXPECT_EQ(bytes.substr(0, 8), expected.substr(0, 8));
  const SegmentContents documented = LookInto(expected, same.copy_id);
  ASSERT_NE(documented.salt, 0u);
  std::string sealed;
  std::string_view rest = std::string_view(bytes).substr(kPage_bytes);
  for (uint64_t batch = 1; batch <= file.records.last_batch; ++batch) {
    const size_t size = RecordSize(rest, file.salt, batch);
    std::string record(rest.substr(0, size));
    SealRecord(record, documented.salt);
    sealed += record;
    rest.remove_prefix(size);
  }
  EXPECT_EQ(absl::BytesToHexString(sealed), absl::BytesToHexString(expected.substr(kPage_bytes)));
}

// What the programs of formats 1 to 6 left: a database, a watermark, and in memory mode a journal.
TEST_F(LogFormatTest, AFolderOfAFormerFormatIsRefusedAndNotTouched) {
  std::filesystem::create_directories(folder_.log() + "/rocksdb");
  std::filesystem::create_directories(folder_.log() + "/journal");
  WriteFile(folder_.log() + "/rocksdb/CURRENT", "MANIFEST-000004\n");
  WriteFile(folder_.log() + "/journal/0000000000000007", "hrjourn1");
  WriteFile(folder_.log() + "/watermark", std::string(128, 'w'));
  const std::map<std::string, std::string> before = Everything(folder_.path());
  for (int time = 0; time < 2; ++time) {
    for (const absl::Status& status :
         {LogStorage::Open(Options(), kIdentity).status(), ReadStoppedLog(Options(), kIdentity, ReadThrough).status(),
          ReadGenerationOfStopped(Options(), kIdentity).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("is of a format before 8"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("take a backup with it"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("nothing was changed"));
    }
    EXPECT_EQ(Everything(folder_.path()), before);
  }
}

// Its entries are commands that this program would have to guess at.
TEST_F(LogFormatTest, TheFormatBeforeIsRefusedAndNotTouched) {
  std::filesystem::create_directories(folder_.segments());
  for (const auto& [name, bytes] : Golden(7)) WriteFile(absl::StrCat(folder_.log(), "/", name), bytes);
  const std::map<std::string, std::string> before = Everything(folder_.path());
  const absl::Status status = LogStorage::Open(Options(), kIdentity).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("of a format before 8"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("take a backup with it"));
  EXPECT_EQ(Everything(folder_.path()), before);
}

TEST_F(LogFormatTest, ALaterFormatIsNamedAndNotTouched) {
  OpenOrDie(Options());
  WriteFile(LogHeaderOf(folder_.log()), EncodeLogHeader({.format_version = kFormatVersion + 1, .copy_id = 1}));
  const std::map<std::string, std::string> before = Everything(folder_.path());
  const absl::Status status = LogStorage::Open(Options(), kIdentity).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has format 9, and this program reads format 8: start the version of the program"));
  EXPECT_EQ(Everything(folder_.path()), before);
}

// The header is made last, under its name at once.
TEST_F(LogFormatTest, ALogWhoseMakingWasCutShortIsMadeAnew) {
  std::filesystem::create_directories(folder_.segments());
  WriteFile(LogHeaderOf(folder_.log()) + ".unfinished", "hrl");
  WriteFile(folder_.log() + "/watermark", "");
  EXPECT_NE(OpenOrDie(Options())->copy_id(), 0u);
  EXPECT_TRUE(Same(OpenOrDie(Options())->TakeRestored(), {}));
}

}  // namespace
}  // namespace hedgerow::storage
