// SPDX-License-Identifier: Apache-2.0
//
// Files that are not as they were left: what a crash does to the end of a log is accepted, anything else is
// refused, and refused again the next time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <string_view>
#include <vector>

#include "cluster/storage/log_reader.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/records.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr StoredIdentity kIdentity = {.cluster_id = kTestCluster, .node = kTestNode};
constexpr size_t kHeaderSealed_bytes = 28;  // of a file: magic, copy id, salt, checksum
constexpr size_t kPayload_bytes = 3003;     // with what is around it a multiple of a record's alignment

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class LogDamageTest : public ::testing::Test {
 protected:
  // Batches of one write each, whose places in the only file are known. The log's own first one comes before.
  void WriteLog(int batches, size_t payload_bytes, size_t segment_bytes = 1024 * 1024) {
    segment_bytes_ = segment_bytes;
    {
      const std::unique_ptr<LogStorage> storage = OpenOrDie(options(folder_));
      storage->TakeRestored();
      for (int i = 1; i <= batches; ++i) {
        raft::Persist persist = {.sequence = static_cast<uint64_t>(i)};
        if (i == 1) persist.hard_state = raft::HardState{.term = raft::Term(1), .voted_for = raft::NodeId(2)};
        persist.entries.push_back(TestEntry(static_cast<uint64_t>(i), 1, std::string(payload_bytes, 'p')));
        marks_.push_back(ReadFile(Watermark()));
        storage->Write(persist);
        ASSERT_TRUE(AwaitDurable(*storage, persist.sequence));
        ApplyToModel(states_.emplace_back(states_.empty() ? raft::RestoredState() : states_.back()), persist);
      }
    }
    for (const FoundSegment& file : FilesOf(folder_)) files_.push_back(file.path);
    bytes_ = ReadFile(files_[0]);
    const FoundSegment file = FilesOf(folder_)[0];
    size_t place = file.records.begin;
    for (uint64_t batch = 1; batch <= file.records.last_batch; ++batch) {
      const size_t size = RecordSize(std::string_view(bytes_).substr(place), file.salt, batch);
      if (batch > 1) spans_.push_back({.begin = place, .end = place + size});
      place += size;
    }
  }

  // Opens a copy of the log, so that each trial begins with the same files.
  absl::StatusOr<raft::RestoredState> Open(const std::string& file_bytes, const std::string& mark_bytes = "",
                                           size_t file = 0) {
    const TestFolder copy;
    Copy(copy);
    WriteFile(InCopy(copy, files_[file]), file_bytes);
    if (!mark_bytes.empty()) WriteFile(copy.log() + "/watermark", mark_bytes);
    return OpenTwice(copy);
  }
  // Of a log that is open, too, whose writer may take a file away in between: then once more.
  void Copy(const TestFolder& copy) const {
    std::error_code error;
    for (int tries = 0; tries < 100; ++tries) {
      std::filesystem::remove_all(copy.log());
      std::filesystem::copy(folder_.log(), copy.log(), std::filesystem::copy_options::recursive, error);
      if (!error) return;
    }
    ADD_FAILURE() << error.message();
  }
  std::string InCopy(const TestFolder& copy, const std::string& path) const {
    return copy.log() + path.substr(folder_.log().size());
  }
  // What is refused must be refused the second time, too; what is accepted must stay the same.
  absl::StatusOr<raft::RestoredState> OpenTwice(const TestFolder& copy) const {
    absl::StatusOr<raft::RestoredState> first = OpenOnce(copy);
    const absl::StatusOr<raft::RestoredState> second = OpenOnce(copy);
    EXPECT_EQ(first.ok(), second.ok()) << first.status() << " and then " << second.status();
    if (first.ok() && second.ok()) {
      EXPECT_TRUE(Same(*first, *second));
    }
    return first;
  }
  absl::StatusOr<raft::RestoredState> OpenOnce(const TestFolder& copy) const {
    absl::StatusOr<std::unique_ptr<LogStorage>> storage = LogStorage::Open(options(copy), kIdentity);
    if (!storage.ok()) return storage.status();
    return (*storage)->TakeRestored();
  }
  static void ExpectRefused(const absl::StatusOr<raft::RestoredState>& state, const std::string& text = "") {
    ASSERT_FALSE(state.ok()) << Describe(*state);
    EXPECT_EQ(state.status().code(), absl::StatusCode::kDataLoss) << state.status();
    const std::string message(state.status().message());
    EXPECT_THAT(message, HasSubstr("is damaged: "));
    EXPECT_THAT(message, HasSubstr("Leave this node stopped"));
    EXPECT_THAT(message, HasSubstr(text));
  }

  StorageOptions options(const TestFolder& folder) const {
    StorageOptions options = TestOptions(folder, true);
    options.segment_bytes = segment_bytes_;
    return options;
  }
  std::string Watermark() const { return folder_.log() + "/watermark"; }

  TestFolder folder_;
  size_t segment_bytes_ = 0;
  std::vector<std::string> files_;
  std::string bytes_;                        // of the first one
  std::vector<Span> spans_;                  // of the batches in it
  std::vector<std::string> marks_;           // before each batch
  std::vector<raft::RestoredState> states_;  // after each batch
};

TEST_F(LogDamageTest, ATornEndIsCutWhateverItsShape) {
  WriteLog(4, 100'000);
  const std::string mark = marks_.back();  // the last batch was never reported
  const Span last = spans_.back();
  const raft::RestoredState expected = states_[states_.size() - 2];
  const size_t size = last.end - last.begin;
  for (const size_t kept :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{87}, size_t{88}, size / 3, size / 2, size - 41}) {
    const size_t cut = last.begin + kept;
    const std::string cut_short = bytes_.substr(0, cut);
    for (const std::string& torn :
         {cut_short, cut_short + std::string(bytes_.size() - cut, '\0'), cut_short + std::string(70'000, '\xee')}) {
      const absl::StatusOr<raft::RestoredState> state = Open(torn, mark);
      ASSERT_TRUE(state.ok()) << kept << ": " << state.status();
      EXPECT_TRUE(Same(*state, expected)) << kept << ": " << Describe(*state);
    }
  }
  // A sector of it did not reach the disk, and the others did.
  for (size_t sector = last.begin / 512; sector <= (last.end - 1) / 512; sector += 7) {
    std::string holed = bytes_;
    const size_t from = std::max(last.begin, sector * 512);
    std::fill_n(holed.begin() + static_cast<ptrdiff_t>(from), sector * 512 + 512 - from, '\0');
    const absl::StatusOr<raft::RestoredState> state = Open(holed, mark);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_TRUE(Same(*state, expected));
  }
}

TEST_F(LogDamageTest, WhatFollowsATornEndIsWrittenInItsPlace) {
  WriteLog(4, 10'000);
  const TestFolder copy;
  Copy(copy);
  WriteFile(InCopy(copy, files_[0]), bytes_.substr(0, spans_.back().begin + 5'000) + std::string(6'000, '\xee'));
  WriteFile(copy.log() + "/watermark", marks_.back());
  raft::RestoredState expected = states_[states_.size() - 2];
  for (uint64_t run = 0; run < 3; ++run) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options(copy));
    ASSERT_TRUE(Same(storage->TakeRestored(), expected)) << run;
    const raft::Persist persist = {.sequence = 1, .entries = {TestEntry(expected.entries.size() + 1, 1, "after")}};
    storage->Write(persist);
    ASSERT_TRUE(AwaitDurable(*storage, 1));
    ApplyToModel(expected, persist);
  }
  EXPECT_TRUE(Same(*OpenTwice(copy), expected));
}

TEST_F(LogDamageTest, AWholeBatchThatWasNotReportedIsRestored) {
  WriteLog(4, 1000);
  const absl::StatusOr<raft::RestoredState> state = Open(bytes_, marks_.back());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(Same(*state, states_.back()));
}

TEST_F(LogDamageTest, AnEndThatWasDurableMayNotBeMissing) {
  WriteLog(4, 1003);
  ExpectRefused(Open(bytes_.substr(0, spans_.back().end - 1)), "it ends with batch 4, though batch 5 was durable");
  ExpectRefused(Open(bytes_.substr(0, spans_.back().begin)));
  ExpectRefused(Open(""), "nothing is in it, though 5 batches were durable");
}

TEST_F(LogDamageTest, AFlippedByteAnywhereIsRefused) {
  WriteLog(60, kPayload_bytes);
  int refused = 0;
  for (size_t at = 0; at < spans_.back().end; at += 1 + at % 1999) {
    if (at >= kHeaderSealed_bytes && at < kPage_bytes) at = kPage_bytes;
    std::string flipped = bytes_;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    ExpectRefused(Open(flipped));
    ++refused;
  }
  EXPECT_GT(refused, 100);
}

TEST_F(LogDamageTest, EveryByteOfAHeadIsGuarded) {
  WriteLog(10, 203);
  std::vector<size_t> places;
  for (size_t at = 0; at < kHeaderSealed_bytes; at += 3) places.push_back(at);
  for (const size_t batch : {size_t{0}, size_t{5}, size_t{9}}) {
    for (size_t at = 0; at < kRecordMin_bytes; ++at) places.push_back(spans_[batch].begin + at);
  }
  for (const size_t at : places) {
    std::string flipped = bytes_;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    ExpectRefused(Open(flipped));
  }
}

// After a power cut the watermark may be older than what was synced.
TEST_F(LogDamageTest, DamageBeforeAWholeBatchIsRefusedWithoutTheWatermarksHelp) {
  WriteLog(100, kPayload_bytes);
  const std::string mark = marks_.front();
  std::string flipped = bytes_;
  flipped[spans_[50].begin + 1000] ^= 1;
  ExpectRefused(Open(flipped, mark), "it holds batch 53 right after batch 51; what stood between them is gone");
  flipped = bytes_;
  flipped[spans_[50].begin] ^= 1;  // its size
  ExpectRefused(Open(flipped, mark), "it holds batch 53 right after batch 51");
  flipped = bytes_;
  flipped[kPage_bytes] ^= 1;  // of the very first one
  ExpectRefused(Open(flipped, mark), "what stands before batch 2 in its file is not what was written there");
  std::string holed = bytes_;
  std::fill_n(holed.begin() + static_cast<ptrdiff_t>(spans_[50].begin), spans_[50].end - spans_[50].begin, '\0');
  ExpectRefused(Open(holed, mark));
  std::fill(holed.begin() + static_cast<ptrdiff_t>(spans_[50].begin),
            holed.begin() + static_cast<ptrdiff_t>(spans_[98].end), '\0');
  ExpectRefused(Open(holed, mark), "it holds batch 101 right after batch 51");
}

TEST_F(LogDamageTest, ASealedFileIsGuardedAsTheLastOneIs) {
  WriteLog(100, kPayload_bytes, 64 * 1024);
  ASSERT_GT(files_.size(), 4u);
  for (size_t file = 0; file + 1 < files_.size(); ++file) {
    const std::string bytes = ReadFile(files_[file]);
    for (const size_t at : {size_t{8}, size_t{kPage_bytes}, size_t{kPage_bytes + 40}, size_t{20'000}, size_t{59'000}}) {
      std::string flipped = bytes;
      flipped[at] ^= 1;
      ExpectRefused(Open(flipped, marks_.front(), file));
    }
    const TestFolder copy;
    Copy(copy);
    ASSERT_TRUE(std::filesystem::remove(InCopy(copy, files_[file])));
    WriteFile(copy.log() + "/watermark", marks_.front());
    ExpectRefused(OpenTwice(copy));
  }
}

TEST_F(LogDamageTest, OfAStoppedLogWhatFollowsAGapIsNotRead) {
  WriteLog(12, 100);
  for (const size_t kept : {size_t{0}, size_t{1}, size_t{6}, size_t{10}, size_t{11}}) {
    const TestFolder copy;
    Copy(copy);
    std::string holed = bytes_;
    std::fill_n(holed.begin() + static_cast<ptrdiff_t>(spans_[kept].begin), spans_[kept].end - spans_[kept].begin,
                '\0');
    WriteFile(InCopy(copy, files_[0]), holed);
    {
      const absl::StatusOr<StoppedLog> log = ReadStoppedLog(options(copy), kIdentity, ReadThrough);
      ASSERT_TRUE(log.ok()) << kept << ": " << log.status();
      EXPECT_TRUE(Same(log->raft, kept == 0 ? raft::RestoredState() : states_[kept - 1]))
          << kept << ": " << Describe(log->raft);
      EXPECT_THAT(log->doubts, Contains(HasSubstr("though batch 13 had been written"))) << kept;
    }
    ExpectRefused(OpenTwice(copy));
  }
}

// Files in which everything comes before the log's beginning go, and with them the number of the first batch.
TEST_F(LogDamageTest, OfAStoppedLogWhoseFirstFilesHaveGoneTheEndIsRead) {
  WriteLog(60, 10'000, 64 * 1024);
  const raft::EntryId start = {.index = raft::LogIndex(1000), .term = raft::Term(1)};
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options(folder_));
  storage->TakeRestored();
  WriteWithSnapshot(*storage,
                    {.sequence = 1, .new_start = raft::NewStart{.after = start, .snapshot = start, .empties = true}});
  storage->Write({.sequence = 2, .entries = {TestEntry(1001, 1, "acknowledged")}});
  ASSERT_TRUE(AwaitDurable(*storage, 2));

  const TestFolder copy;  // of a node that was killed
  Copy(copy);
  // The log is open: one of its first files may have been on its way to be used again.
  for (int tries = 0; tries < 100 && !IsWhole(copy); ++tries) Copy(copy);
  const std::string last = FilesOf(copy).back().path;
  for (const std::string& file : files_) {
    if (InCopy(copy, file) != last) std::filesystem::remove(InCopy(copy, file));
  }
  EXPECT_EQ(FilesOf(copy).size(), 1u);
  const absl::StatusOr<StoppedLog> log = ReadStoppedLog(options(copy), kIdentity, ReadThrough);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last.index, raft::LogIndex(1001));
  EXPECT_THAT(log->doubts, IsEmpty());
}

TEST_F(LogDamageTest, MissingFilesAreRefused) {
  WriteLog(10, 1000);
  for (const std::string& gone : {files_[0], folder_.segments(), LogHeaderOf(folder_.log()), Watermark()}) {
    const TestFolder copy;
    Copy(copy);
    ASSERT_GT(std::filesystem::remove_all(InCopy(copy, gone)), 0u);
    ExpectRefused(OpenTwice(copy));
  }
}

TEST_F(LogDamageTest, ADamagedWatermarkIsRefused) {
  WriteLog(3, 10);
  for (const size_t at : {size_t{0}, size_t{4}, size_t{12}, size_t{13}, size_t{127}}) {
    std::string mark = ReadFile(Watermark());
    mark[at] ^= 1;
    ExpectRefused(Open(bytes_, mark), "`watermark` is not what was written to it");
  }
  ExpectRefused(Open(bytes_, ReadFile(Watermark()).substr(0, 100)));
}

TEST_F(LogDamageTest, ADamagedLogHeaderIsRefused) {
  WriteLog(3, 10);
  const std::string header = ReadFile(LogHeaderOf(folder_.log()));
  for (size_t at = 0; at < header.size(); ++at) {
    const TestFolder copy;
    Copy(copy);
    std::string flipped = header;
    flipped[at] ^= 1;
    WriteFile(LogHeaderOf(copy.log()), flipped);
    ExpectRefused(OpenTwice(copy), "the file `log-header`, which says whose log it is and which,");
  }
}

TEST_F(LogDamageTest, AnOlderCopyOfItsFilesIsRefused) {
  WriteLog(5, 100);
  const TestFolder old;
  Copy(old);
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options(folder_));
    storage->Write({.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(2)}});
    ASSERT_TRUE(AwaitDurable(*storage, 1));
  }
  std::filesystem::remove_all(folder_.segments());
  std::filesystem::copy(old.segments(), folder_.segments(), std::filesystem::copy_options::recursive);
  ExpectRefused(OpenTwice(folder_), "it ends with batch 6, though batch 7 was durable");
}

// Under the node's own identity: only the copy id tells.
TEST_F(LogDamageTest, AnotherLogsFilesAreNotRead) {
  WriteLog(5, 100);
  const TestFolder other;
  OpenOrDie(options(other));
  std::filesystem::remove_all(other.segments());
  std::filesystem::copy(folder_.segments(), other.segments(), std::filesystem::copy_options::recursive);
  ExpectRefused(OpenTwice(other), "nothing is in it, though 1 batches were durable");
}

}  // namespace
}  // namespace hedgerow::storage
