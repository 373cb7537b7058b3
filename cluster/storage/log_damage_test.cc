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
#include <utility>
#include <vector>

#include <rocksdb/db.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Where a record of the write-ahead log is at risk: its bytes, and where the next one begins.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class LogDamageTest : public ::testing::Test {
 protected:
  // Batches of one write each, whose places in the write-ahead log are known.
  void WriteLog(int batches, size_t payload_bytes) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    storage->TakeRestored();
    wal_ = folder_.Newest(".log");
    for (int i = 1; i <= batches; ++i) {
      raft::Persist persist = {.sequence = static_cast<uint64_t>(i)};
      if (i == 1) persist.hard_state = raft::HardState{.term = raft::Term(1), .voted_for = raft::NodeId(2)};
      persist.entries.push_back(TestEntry(static_cast<uint64_t>(i), 1, std::string(payload_bytes, 'p')));
      const size_t begin = std::filesystem::file_size(wal_);
      marks_.push_back(ReadFile(Watermark()));
      storage->Write(persist);
      ASSERT_TRUE(AwaitDurable(*storage, persist.sequence));
      spans_.push_back({begin, std::filesystem::file_size(wal_)});
      ApplyToModel(states_.emplace_back(states_.empty() ? raft::RestoredState() : states_.back()), persist);
    }
    ASSERT_EQ(folder_.Newest(".log"), wal_);
  }

  // Opens a copy of the log, so that each trial begins with the same files.
  absl::StatusOr<raft::RestoredState> Open(const std::string& wal_bytes, const std::string& mark_bytes = "") {
    const TestFolder copy;
    std::filesystem::copy(folder_.log(), copy.log(), std::filesystem::copy_options::recursive);
    WriteFile(absl::StrCat(copy.rocksdb(), "/", std::filesystem::path(wal_).filename().string()), wal_bytes);
    if (!mark_bytes.empty()) WriteFile(copy.log() + "/watermark", mark_bytes);
    return OpenTwice(copy);
  }
  // What is refused must be refused the second time, too; what is accepted must stay the same.
  static absl::StatusOr<raft::RestoredState> OpenTwice(const TestFolder& copy) {
    absl::StatusOr<raft::RestoredState> first = OpenOnce(copy);
    const absl::StatusOr<raft::RestoredState> second = OpenOnce(copy);
    EXPECT_EQ(first.ok(), second.ok()) << first.status() << " and then " << second.status();
    if (first.ok() && second.ok()) {
      EXPECT_TRUE(Same(*first, *second));
    }
    return first;
  }
  static absl::StatusOr<raft::RestoredState> OpenOnce(const TestFolder& copy) {
    absl::StatusOr<std::unique_ptr<LogStorage>> storage =
        LogStorage::Open(TestOptions(copy, true), {.cluster_id = kTestCluster, .node = kTestNode});
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

  StorageOptions options() const {
    StorageOptions options = TestOptions(folder_, true);
    options.write_buffer_bytes = 8 * 1024 * 1024;  // all of it in one write-ahead log
    return options;
  }
  std::string Watermark() const { return folder_.log() + "/watermark"; }

  TestFolder folder_;
  std::string wal_;
  std::vector<Span> spans_;
  std::vector<std::string> marks_;           // before each batch
  std::vector<raft::RestoredState> states_;  // after each batch
};

TEST_F(LogDamageTest, ATornEndIsAcceptedWhateverItsShape) {
  WriteLog(4, 100'000);
  const std::string wal = ReadFile(wal_);
  const std::string mark = marks_.back();  // the last batch was never reported
  const Span last = spans_.back();
  const raft::RestoredState expected = states_[states_.size() - 2];
  const size_t size = last.end - last.begin;
  for (const size_t kept :
       {size_t{0}, size_t{1}, size_t{6}, size_t{7}, size_t{8}, size / 3, size / 2, size - 41}) {
    const size_t cut = last.begin + kept;
    const std::string cut_short = wal.substr(0, cut);
    for (const std::string& torn : {cut_short, cut_short + std::string(wal.size() - cut, '\0'),
                                    cut_short + std::string(70'000, '\xee')}) {
      const absl::StatusOr<raft::RestoredState> state = Open(torn, mark);
      ASSERT_TRUE(state.ok()) << kept << ": " << state.status();
      EXPECT_TRUE(Same(*state, expected)) << kept << ": " << Describe(*state);
    }
  }
  // A page in its middle did not reach the disk, and the next ones did.
  std::string holed = wal;
  std::fill_n(holed.begin() + static_cast<ptrdiff_t>(last.begin / 4096 * 4096 + 8192), 4096, '\0');
  const absl::StatusOr<raft::RestoredState> state = Open(holed, mark);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(Same(*state, expected));
}

TEST_F(LogDamageTest, AWholeBatchThatWasNotReportedIsRestored) {
  WriteLog(4, 1000);
  const absl::StatusOr<raft::RestoredState> state = Open(ReadFile(wal_), marks_.back());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(Same(*state, states_.back()));
}

TEST_F(LogDamageTest, AnEndThatWasDurableMayNotBeMissing) {
  WriteLog(4, 1000);
  const std::string wal = ReadFile(wal_);
  ExpectRefused(Open(wal.substr(0, spans_.back().end - 1)), "it ends with batch 4, though batch 5 was durable");
  ExpectRefused(Open(wal.substr(0, spans_.back().begin)));
  ExpectRefused(Open(""));
}

// RocksDB by itself accepts most of these, and drops what follows.
TEST_F(LogDamageTest, AFlippedByteAnywhereIsRefused) {
  WriteLog(60, 3000);
  const std::string wal = ReadFile(wal_);
  int refused = 0;
  int accepted = 0;
  for (size_t at = 0; at < wal.size(); at += 1 + at % 1999) {
    std::string flipped = wal;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    const absl::StatusOr<raft::RestoredState> state = Open(flipped);
    if (state.ok()) {
      // The filling at the end of a block, which carries nothing.
      ASSERT_TRUE(Same(*state, states_.back())) << "byte " << at << ": " << Describe(*state);
      ++accepted;
    } else {
      ExpectRefused(state);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LE(accepted, 1);
}

TEST_F(LogDamageTest, EveryByteOfARecordsHeaderIsGuarded) {
  WriteLog(10, 200);
  const std::string wal = ReadFile(wal_);
  for (const size_t batch : {size_t{0}, size_t{5}, size_t{9}}) {
    for (size_t at = spans_[batch].begin; at < spans_[batch].begin + 20; ++at) {
      for (const int bit : {0, 7}) {
        std::string flipped = wal;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
        ExpectRefused(Open(flipped));
      }
    }
  }
}

// After a power cut the watermark may be older than what was synced.
TEST_F(LogDamageTest, DamageBeforeAWholeBatchIsRefusedWithoutTheWatermarksHelp) {
  WriteLog(100, 3000);
  const std::string wal = ReadFile(wal_);
  const std::string mark = marks_.front();
  std::string flipped = wal;
  flipped[spans_[50].begin + 1000] ^= 1;
  ExpectRefused(Open(flipped, mark), "what stood between them is gone");
  std::string holed = wal;
  std::fill_n(holed.begin() + static_cast<ptrdiff_t>(spans_[50].begin), spans_[50].end - spans_[50].begin,
              '\0');
  ExpectRefused(Open(holed, mark));
  // Zeros from the end of one record to the end of the block: RocksDB takes them for filling and goes on
  // behind.
  const size_t block_end = (spans_[50].begin / 32768 + 1) * 32768;
  holed = wal;
  std::fill(holed.begin() + static_cast<ptrdiff_t>(spans_[50].begin),
            holed.begin() + static_cast<ptrdiff_t>(block_end), '\0');
  ExpectRefused(Open(holed, mark));
}

// A power cut in memory mode can take the end of one log file and leave the file after it, before the first has
// become a table: RocksDB reads both. What is left is still a state that the log went through.
TEST_F(LogDamageTest, OfAStoppedLogWhatFollowsAGapIsNotRead) {
  WriteLog(12, 100);
  const std::string wal = ReadFile(wal_);
  ASSERT_LT(wal.size(), 32768u) << "records of one block can be moved to its beginning";
  const std::string next = std::filesystem::path(wal_).parent_path() / "000999.log";
  for (const size_t kept : {size_t{0}, size_t{1}, size_t{6}, size_t{10}, size_t{11}}) {
    const TestFolder copy;
    std::filesystem::copy(folder_.log(), copy.log(), std::filesystem::copy_options::recursive);
    const auto in_copy = [&copy](const std::string& path) {
      return absl::StrCat(copy.rocksdb(), "/", std::filesystem::path(path).filename().string());
    };
    WriteFile(in_copy(wal_), wal.substr(0, spans_[kept].begin));
    if (kept + 1 < spans_.size()) WriteFile(in_copy(next), wal.substr(spans_[kept + 1].begin));
    {
      const absl::StatusOr<StoppedLog> log = ReadStoppedLog(
          TestOptions(copy, false), {.cluster_id = kTestCluster, .node = kTestNode}, ReadThrough);
      ASSERT_TRUE(log.ok()) << kept << ": " << log.status();
      EXPECT_TRUE(Same(log->raft, kept == 0 ? raft::RestoredState() : states_[kept - 1]))
          << kept << ": " << Describe(log->raft);
      EXPECT_THAT(log->doubts, Contains(HasSubstr("though batch 13 had been written"))) << kept;
    }
    ExpectRefused(OpenTwice(copy));
  }
}

// Tables in which everything comes before the log's beginning go, also with the last state that stands in
// tables.
TEST_F(LogDamageTest, OfAStoppedLogWhoseTablesHaveGoneTheEndIsRead) {
  WriteLog(60, 10'000);
  OpenOrDie(options());  // into tables
  {
    // Several, below the first level, from which nothing is dropped.
    rocksdb::Options several;
    several.target_file_size_base = 64 * 1024;
    several.compression = rocksdb::kNoCompression;
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(several, folder_.rocksdb(), &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    rocksdb::CompactRangeOptions compaction;
    compaction.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    ASSERT_TRUE(db->CompactRange(compaction, nullptr, nullptr).ok());
  }
  const raft::EntryId start = {.index = raft::LogIndex(1000), .term = raft::Term(1)};
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  storage->TakeRestored();
  WriteWithSnapshot(
      *storage,
      {.sequence = 1, .new_start = raft::NewStart{.after = start, .snapshot = start, .empties = true}});
  storage->Write({.sequence = 2, .entries = {TestEntry(1001, 1, "acknowledged")}});
  ASSERT_TRUE(AwaitDurable(*storage, 2));
  absl::SleepFor(absl::Milliseconds(300));  // the janitor's

  const TestFolder copy;  // of a node that was killed
  std::filesystem::copy(folder_.log(), copy.log(), std::filesystem::copy_options::recursive);
  const absl::StatusOr<StoppedLog> log =
      ReadStoppedLog(TestOptions(copy, true), {.cluster_id = kTestCluster, .node = kTestNode}, ReadThrough);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last.index, raft::LogIndex(1001));
  EXPECT_THAT(log->doubts, ::testing::IsEmpty());
}

TEST_F(LogDamageTest, MissingFilesAreRefused) {
  WriteLog(10, 1000);
  for (const std::string& gone :
       {wal_, folder_.rocksdb() + "/CURRENT", folder_.rocksdb(), Watermark(), folder_.Newest(".sst")}) {
    if (gone.empty()) continue;
    const TestFolder copy;
    std::filesystem::copy(folder_.log(), copy.log(), std::filesystem::copy_options::recursive);
    ASSERT_GT(std::filesystem::remove_all(copy.log() + gone.substr(folder_.log().size())), 0u);
    ExpectRefused(OpenTwice(copy));
  }
}

TEST_F(LogDamageTest, ADamagedWatermarkIsRefused) {
  WriteLog(3, 10);
  for (const size_t at : {size_t{0}, size_t{4}, size_t{12}, size_t{13}, size_t{127}}) {
    std::string mark = ReadFile(Watermark());
    mark[at] ^= 1;
    ExpectRefused(Open(ReadFile(wal_), mark), "`watermark` is not what was written to it");
  }
  ExpectRefused(Open(ReadFile(wal_), ReadFile(Watermark()).substr(0, 100)));
}

TEST_F(LogDamageTest, AFlippedByteInATableIsRefused) {
  WriteLog(60, 3000);
  OpenOrDie(options());  // moves everything into a table
  const std::string table = folder_.Newest(".sst");
  ASSERT_FALSE(table.empty());
  const std::string bytes = ReadFile(table);
  ASSERT_GT(bytes.size(), 100'000u);
  for (size_t at = 1000; at < 170'000; at += 20'011) {
    std::string flipped = bytes;
    flipped[at] ^= 1;
    const TestFolder copy;
    std::filesystem::copy(folder_.log(), copy.log(), std::filesystem::copy_options::recursive);
    WriteFile(absl::StrCat(copy.rocksdb(), "/", std::filesystem::path(table).filename().string()), flipped);
    ExpectRefused(OpenTwice(copy));
  }
}

TEST_F(LogDamageTest, AnOlderCopyOfTheDatabaseIsRefused) {
  WriteLog(5, 100);
  const TestFolder old;
  std::filesystem::copy(folder_.rocksdb(), old.path() + "/rocksdb", std::filesystem::copy_options::recursive);
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    storage->Write({.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(2)}});
    ASSERT_TRUE(AwaitDurable(*storage, 1));
  }
  std::filesystem::remove_all(folder_.rocksdb());
  std::filesystem::copy(old.path() + "/rocksdb", folder_.rocksdb(), std::filesystem::copy_options::recursive);
  ExpectRefused(OpenTwice(folder_), "it ends with batch 6, though batch 7 was durable");
}

}  // namespace
}  // namespace hedgerow::storage
