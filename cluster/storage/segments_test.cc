// SPDX-License-Identifier: Apache-2.0
//
// The files that a log is written to: when a next one is begun, which ones go and are used again, and what of
// their earlier use is never read.

#include "cluster/storage/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cluster/raft/check.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/log_reader.h"
#include "cluster/storage/log_tail.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCopyId = 77;
constexpr size_t kFile_bytes = 16 * 1024;

// Batches of one entry each, of 3 KB: three in a file.
class SegmentsTest : public ::testing::TestWithParam<bool> {
 protected:
  SegmentsTest() {
    HEDGEROW_CHECK(MakeFolder(folder_.log()).ok() && MakeFolder(folder_.segments()).ok());
    Open();
  }

  void Open() {
    segments_.reset();
    tail_ = LogTail();
    const ReadLog found = Read();
    ASSERT_EQ(found.damage, "");
    absl::StatusOr<std::unique_ptr<Segments>> segments = Segments::Open(
        {.log_path = folder_.log(), .copy_id = kCopyId, .file_bytes = kFile_bytes, .sync = GetParam()}, found, 0);
    ASSERT_TRUE(segments.ok()) << segments.status();
    segments_ = *std::move(segments);
    tail_.Restore(found.state, found.raft.entries);
  }
  ReadLog Read() const {
    absl::StatusOr<ReadLog> log = ReadSegments(folder_.log(), kCopyId);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  absl::Status Write(raft::Persist persist, bool may_wait = true) {
    tail_.Apply(persist);
    return segments_->Append(tail_.Finish(), tail_.state().last_index, may_wait);
  }
  void Append(int count, size_t bytes = 3'000) {
    for (int i = 0; i < count; ++i) {
      raft::Persist persist;
      if (tail_.state().batch == 0) persist.hard_state = raft::HardState{.term = raft::Term(1)};
      persist.entries = {TestEntry(tail_.state().last_index.value() + 1, 1, std::string(bytes, 'p'))};
      ASSERT_EQ(Write(std::move(persist)), absl::OkStatus());
    }
  }
  // The log begins after its last entry, and that is durable.
  void StartAtEnd() {
    const raft::EntryId end = {.index = tail_.state().last_index, .term = tail_.state().last_term};
    ASSERT_EQ(Write({.new_start = raft::NewStart{.after = end, .snapshot = end}}), absl::OkStatus());
    ASSERT_TRUE(segments_->Sync(end.index));
    segments_->DropUpTo(end.index);
  }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(folder_.segments())) files.insert(file.path());
    return files;
  }

  TestFolder folder_;
  std::unique_ptr<Segments> segments_;
  LogTail tail_;
};
INSTANTIATE_TEST_SUITE_P(Modes, SegmentsTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Disk" : "Memory"; });

TEST_P(SegmentsTest, ANextFileIsBegunWhereOneIsFull) {
  Append(10);
  const ReadLog log = Read();
  ASSERT_EQ(log.files.size(), 4u);
  EXPECT_EQ(log.files[0].records.first_batch, 1u);
  EXPECT_EQ(log.files[1].records.first_batch, 4u);
  EXPECT_EQ(log.files[3].records.last_batch, 10u);
  EXPECT_EQ(log.raft.entries.size(), 10u);
}

TEST_P(SegmentsTest, ABatchLargerThanAFileHasOneOfItsOwn) {
  Append(1);
  Append(1, 100'000);
  Append(1);
  const ReadLog log = Read();
  ASSERT_EQ(log.files.size(), 3u);
  EXPECT_GT(log.files[1].bytes, 100'000u);
  EXPECT_EQ(log.raft.entries.size(), 3u);
  StartAtEnd();
  for (const std::string& file : Files()) EXPECT_EQ(std::filesystem::file_size(file), kFile_bytes) << file;
}

TEST_P(SegmentsTest, AnAppendThatMayNotWaitFailsWithoutANextFile) {
  ASSERT_EQ(segments_->PrepareSpare(), absl::OkStatus());
  EXPECT_FALSE(segments_->wants_spare());
  Append(1);
  EXPECT_TRUE(segments_->wants_spare());
  Append(2);
  tail_.Apply({.entries = {TestEntry(4, 1, std::string(3'000, 'p'))}});
  std::string& record = tail_.Finish();
  EXPECT_TRUE(absl::IsUnavailable(segments_->Append(record, tail_.state().last_index, /*may_wait=*/false)));
  EXPECT_EQ(Files().size(), 1u) << "it has made one nevertheless";
  ASSERT_EQ(segments_->PrepareSpare(), absl::OkStatus());
  EXPECT_EQ(segments_->Append(record, tail_.state().last_index, /*may_wait=*/false), absl::OkStatus());
  EXPECT_EQ(Read().raft.entries.size(), 4u);
}

TEST_P(SegmentsTest, FilesAreUsedAgainAndTheRestIsRemoved) {
  Append(60);
  ASSERT_EQ(Files().size(), 20u);
  StartAtEnd();
  EXPECT_EQ(Files().size(), 1 + Segments::kPoolMax_files);
  const std::set<std::string> kept = Files();
  for (int round = 0; round < 5; ++round) {
    Append(20);
    for (const std::string& file : Files()) EXPECT_TRUE(kept.contains(file)) << file << " is new";
    StartAtEnd();
  }
  const ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.start.index, raft::LogIndex(160));
}

// In the middle of a use, with what stood in it before behind the last record: whole records, of which the next
// one may have the very number that is expected.
TEST_P(SegmentsTest, NothingOfAnEarlierUseIsRead) {
  Append(9);
  StartAtEnd();
  const std::string current = Read().files.back().path;
  for (const std::string& file : Files()) {
    if (file == current) continue;
    const std::string before = ReadFile(file);
    ASSERT_EQ(LookInto(before, kCopyId).ranges.size(), 1u);
    const absl::StatusOr<OpenSegment> again = RecycleSegment(file, kCopyId);
    ASSERT_TRUE(again.ok()) << again.status();
    const std::string after = ReadFile(file);
    EXPECT_EQ(after.substr(kPage_bytes), before.substr(kPage_bytes)) << "its records are still there";
    EXPECT_TRUE(LookInto(after, kCopyId).ranges.empty());
    EXPECT_NE(LookInto(after, kCopyId).salt, LookInto(before, kCopyId).salt);
  }
}

TEST_P(SegmentsTest, NothingGoesThatTheLogMayNeed) {
  Append(9);
  const raft::LogIndex middle(5);
  const raft::EntryId start = {.index = middle, .term = raft::Term(1)};
  ASSERT_EQ(Write({.new_start = raft::NewStart{.after = start, .snapshot = start}}), absl::OkStatus());
  ASSERT_TRUE(segments_->Sync(middle));
  segments_->DropUpTo(middle);
  EXPECT_EQ(segments_->files(), 2u) << "the first three entries are gone, 4 to 6 are not";
  EXPECT_EQ(Read().raft.entries.size(), 4u);

  // What the log had reached once stays until it begins after that, whatever a truncation has left.
  ASSERT_EQ(Write({.truncate_from = raft::LogIndex(6)}), absl::OkStatus());
  Append(1);
  ASSERT_TRUE(segments_->Sync(middle));
  segments_->DropUpTo(middle);
  EXPECT_EQ(segments_->files(), 3u) << "the last entry is in a file of its own";
}

// In memory mode a file in which the start stands may itself not be on the disk yet.
TEST(MemorySegmentsTest, TheFileWithWhatWasSyncedLastStays) {
  const TestFolder folder;
  HEDGEROW_CHECK(MakeFolder(folder.log()).ok() && MakeFolder(folder.segments()).ok());
  const std::unique_ptr<Segments> segments =
      *Segments::Open({.log_path = folder.log(), .copy_id = kCopyId, .file_bytes = kFile_bytes}, {}, 0);
  LogTail tail;
  const auto append = [&](uint64_t index) {
    raft::Persist persist;
    if (index == 1) persist.hard_state = raft::HardState{.term = raft::Term(1)};
    persist.entries = {TestEntry(index, 1, std::string(3'000, 'p'))};
    tail.Apply(persist);
    ASSERT_EQ(segments->Append(tail.Finish(), tail.state().last_index, true), absl::OkStatus());
  };
  for (uint64_t index = 1; index <= 4; ++index) append(index);
  segments->DropUpTo(raft::LogIndex(4));
  EXPECT_EQ(segments->files(), 2u) << "nothing was synced";
  ASSERT_TRUE(segments->Sync(raft::LogIndex(4)));
  for (uint64_t index = 5; index <= 10; ++index) append(index);
  segments->DropUpTo(raft::LogIndex(10));
  EXPECT_EQ(segments->files(), 3u) << "from the second one on";
}

TEST_P(SegmentsTest, FilesThatHaveComeBackArePassedOver) {
  Append(12);
  std::vector<std::pair<std::string, std::string>> before;
  for (const FoundSegment& file : Read().files) before.emplace_back(file.path, ReadFile(file.path));
  StartAtEnd();
  Append(9);
  const ReadLog expected = Read();
  // The first and the third one, where they were; not the one between them.
  for (const size_t back : {size_t{0}, size_t{2}}) {
    bool in_use = false;
    for (const FoundSegment& file : expected.files) in_use = in_use || file.path == before[back].first;
    WriteFile(before[back].first + (in_use ? "00" : ""), before[back].second);
  }
  const ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_TRUE(Same(log.raft, expected.raft));
  EXPECT_EQ(log.state, expected.state);
  Open();
  Append(9);
  EXPECT_EQ(Read().damage, "");
}

// Its blocks are there before the first record is, so that a sync has the record to write and nothing else.
TEST_P(SegmentsTest, AFileHasItsSizeBeforeItIsUsed) {
  ASSERT_EQ(segments_->PrepareSpare(), absl::OkStatus());
  struct stat about {};
  ASSERT_EQ(stat(Files().begin()->c_str(), &about), 0);
  EXPECT_EQ(static_cast<size_t>(about.st_size), kFile_bytes);
  EXPECT_GE(static_cast<size_t>(about.st_blocks) * 512, kFile_bytes);
  Append(1);
  ASSERT_EQ(stat(Files().begin()->c_str(), &about), 0);
  EXPECT_EQ(static_cast<size_t>(about.st_size), kFile_bytes);
}

}  // namespace
}  // namespace hedgerow::storage
