// SPDX-License-Identifier: Apache-2.0
//
// The journal of memory mode: what it gives back, whatever a crash or a power cut has left of its files, and
// what may be removed from it.

#include "cluster/storage/journal.h"

#include <gmock/gmock.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/storage/batch_state.h"
#include "cluster/storage/journal_reader.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/log_tail.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/storage_story.h"

namespace {

std::atomic<int> fail_fdatasync = 0;  // so many of the next ones
std::function<void()> at_unlink;      // called before each

}  // namespace

// In the C library's place, for this program, as is unlink.
extern "C" int fdatasync(int file) {
  if (fail_fdatasync > 0 && fail_fdatasync-- > 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fdatasync, file));
}
extern "C" int unlink(const char* path) noexcept {
  if (at_unlink) at_unlink();
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

namespace hedgerow::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kLogId = 77;
constexpr size_t kFile_bytes = 1000;  // a few batches

raft::EntryId At(uint64_t index, uint64_t term) {
  return {.index = raft::LogIndex(index), .term = raft::Term(term)};
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::filesystem::create_directories(folder_.log());
    journal_ = *Journal::Create(folder_.log(), kLogId, raft::LogIndex(), kFile_bytes);
    Write({.hard_state = raft::HardState{.term = raft::Term(1)}});
  }

  void Write(const raft::Persist& persist) {
    rocksdb::WriteBatch batch;
    tail_.Apply(persist, batch);
    tail_.Finish(batch);
    ASSERT_TRUE(journal_->Append(tail_.state().batch, tail_.state().last_index, batch.Data()).ok());
    batches_.push_back(batch.Data());
  }
  // One entry each.
  void WriteEntries(uint64_t count, size_t payload_bytes = 100) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t index = tail_.state().last_index.value() + 1;
      Write({.entries = {
                 TestEntry(index, tail_.state().hard_state.term.value(), std::string(payload_bytes, 'p'))}});
    }
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(JournalFolderOf(folder_.log())))
      files.push_back(file.path().native());
    std::sort(files.begin(), files.end());
    return files;
  }
  JournalReader Read(uint64_t batch_in_tables = 0, uint64_t log_id = kLogId) const {
    absl::StatusOr<JournalReader> reader = JournalReader::Open(folder_.log(), log_id, batch_in_tables);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }
  static std::vector<uint64_t> BatchesOf(const JournalReader& reader) {
    std::vector<uint64_t> batches;
    EXPECT_TRUE(reader
                    .ForEach([&batches](const rocksdb::WriteBatch& batch) {
                      batches.push_back(StateOf(batch)->batch);
                      return absl::OkStatus();
                    })
                    .ok());
    return batches;
  }
  static std::vector<uint64_t> Range(uint64_t first, uint64_t last) {
    std::vector<uint64_t> range;
    for (uint64_t i = first; i <= last; ++i) range.push_back(i);
    return range;
  }
  uint64_t LastBatch() const { return tail_.state().batch; }

  TestFolder folder_;
  LogTail tail_;
  std::unique_ptr<Journal> journal_;
  std::vector<std::string> batches_;  // bytes, from batch 1 on
};

TEST_F(JournalTest, GivesEveryBatchBackInItsOrderAndAsItWas) {
  WriteEntries(40);
  ASSERT_GT(Files().size(), 4u);
  const JournalReader reader = Read();
  EXPECT_EQ(reader.last_batch(), LastBatch());
  EXPECT_EQ(reader.damage(), "");
  std::vector<std::string> found;
  ASSERT_TRUE(reader
                  .ForEach([&found](const rocksdb::WriteBatch& batch) {
                    found.push_back(batch.Data());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(found, batches_);
}

TEST_F(JournalTest, WhatTheTablesHoldIsNotGivenAgain) {
  WriteEntries(40);
  EXPECT_EQ(BatchesOf(Read(17)), Range(18, LastBatch()));
  EXPECT_TRUE(Read(LastBatch()).empty());
  EXPECT_EQ(Read(LastBatch()).last_batch(), LastBatch());
}

TEST_F(JournalTest, ATornEndIsNoDamage) {
  WriteEntries(40);
  const std::string newest = Files().back();
  const std::string bytes = ReadFile(newest);
  uint64_t last = LastBatch();
  for (size_t kept = bytes.size(); kept-- > 0;) {
    WriteFile(newest, bytes.substr(0, kept));
    const JournalReader reader = Read();
    ASSERT_EQ(reader.damage(), "") << kept;
    ASSERT_LE(reader.last_batch(), last) << kept;
    ASSERT_GE(reader.last_batch() + 1, last) << kept;
    last = reader.last_batch();
    // What an overwritten file, or one that had grown before its pages were written, holds behind it.
    WriteFile(newest, bytes.substr(0, kept) + std::string(bytes.size() - kept, '\xee'));
    ASSERT_EQ(Read().last_batch(), last) << kept;
  }
  EXPECT_LT(last, LastBatch());
}

TEST_F(JournalTest, AFlippedByteEndsItThereAndIsDamageBeforeAnotherFile) {
  WriteEntries(40);
  const std::vector<std::string> files = Files();
  for (const std::string& path : {files[1], files.back()}) {
    const std::string bytes = ReadFile(path);
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ 4);
      WriteFile(path, flipped);
      const JournalReader reader = Read();
      ASSERT_LT(reader.last_batch(), LastBatch()) << at;
      ASSERT_EQ(reader.damage().empty(), path == files.back()) << at;
      ASSERT_EQ(BatchesOf(reader), Range(1, reader.last_batch())) << at;
    }
    WriteFile(path, bytes);
  }
  EXPECT_EQ(Read().last_batch(), LastBatch());
}

TEST_F(JournalTest, AFileThatIsMissingInTheMiddleIsDamageAndWhatComesBeforeIsGiven) {
  WriteEntries(40);
  std::filesystem::remove(Files()[2]);
  const JournalReader reader = Read();
  EXPECT_THAT(reader.damage(), HasSubstr("what stood between them is gone"));
  EXPECT_EQ(BatchesOf(reader), Range(1, reader.last_batch()));
  EXPECT_GT(reader.last_batch(), 3u);
  EXPECT_LT(reader.last_batch(), LastBatch());
}

TEST_F(JournalTest, AnotherLogsJournalIsNotRead) {
  WriteEntries(3);
  EXPECT_TRUE(Read(0, kLogId + 1).empty());
}

TEST_F(JournalTest, ItsBeginningGoesOnceTheLogBeginsLaterAndThatIsSynced) {
  WriteEntries(40);
  Write({.new_start = raft::NewStart{.after = At(30, 1), .snapshot = At(30, 1)}});
  const size_t before = Files().size();
  journal_->DropUpTo(raft::LogIndex(30));
  EXPECT_EQ(Files().size(), before) << "the start might be lost";
  ASSERT_TRUE(journal_->Sync());
  journal_->DropUpTo(raft::LogIndex(30));
  EXPECT_LT(Files().size(), before);

  const JournalReader reader = Read();
  EXPECT_EQ(reader.damage(), "");
  const std::vector<uint64_t> batches = BatchesOf(reader);
  EXPECT_EQ(batches, Range(batches.front(), LastBatch()));
  EXPECT_GT(batches.front(), 2u);
  EXPECT_LE(batches.front(), 32u) << "entry 31 came with batch 32";
}

TEST_F(JournalTest, TheFileWithWhatWasSyncedLastStays) {
  WriteEntries(40);
  Write({.new_start = raft::NewStart{.after = At(40, 1), .snapshot = At(40, 1)}});
  ASSERT_TRUE(journal_->Sync());
  const std::string synced = Files().back();
  // They may be lost; then the file before them says where the log begins.
  for (int i = 0; i < 20; ++i) Write({.hard_state = raft::HardState{.term = raft::Term(uint64_t(i) + 2)}});
  ASSERT_NE(Files().back(), synced);
  journal_->DropUpTo(raft::LogIndex(40));
  EXPECT_EQ(Files().front(), synced);
}

// What a truncation has taken back stands in RocksDB still, which an earlier start gave it to, and the
// deletions in the journal only: while the log begins before them they may not go.
TEST_F(JournalTest, DeletionsOfWhatTheLogHadReachedStay) {
  WriteEntries(20);
  journal_ = *Journal::Create(folder_.log(), kLogId, raft::LogIndex(20), kFile_bytes);
  Write({.hard_state = raft::HardState{.term = raft::Term(2)}, .truncate_from = raft::LogIndex(6)});
  Write({.new_start = raft::NewStart{.after = At(5, 1), .snapshot = At(5, 1)}});
  for (int i = 0; i < 20; ++i) Write({.hard_state = raft::HardState{.term = raft::Term(uint64_t(i) + 3)}});
  ASSERT_TRUE(journal_->Sync());
  journal_->DropUpTo(raft::LogIndex(5));
  EXPECT_EQ(BatchesOf(Read(21)), Range(22, LastBatch())) << "batch 22 holds the deletions";
}

TEST_F(JournalTest, AGapIsDamageWhileTheLogBeginsBeforeWhatStoodInIt) {
  WriteEntries(40);
  Write({.new_start = raft::NewStart{.after = At(3, 1), .snapshot = At(3, 1)}});
  const std::vector<std::string> files = Files();
  std::filesystem::remove(files[0]);
  std::filesystem::remove(files[1]);
  const JournalReader reader = Read();
  EXPECT_THAT(reader.damage(), HasSubstr("right after batch 0"));
  EXPECT_TRUE(reader.empty());
}

// A power cut may undo the removal of a file.
TEST_F(JournalTest, AFileThatHasComeBackIsPassedOver) {
  WriteEntries(40);
  const std::string oldest = Files().front();
  const std::string bytes = ReadFile(oldest);
  Write({.new_start = raft::NewStart{.after = At(30, 1), .snapshot = At(30, 1)}});
  ASSERT_TRUE(journal_->Sync());
  journal_->DropUpTo(raft::LogIndex(30));
  const std::vector<uint64_t> expected = BatchesOf(Read());
  WriteFile(oldest, bytes);
  const JournalReader reader = Read();
  EXPECT_EQ(reader.damage(), "");
  EXPECT_EQ(BatchesOf(reader), expected);
}

// A start at the very end of a file: the next one begins with what comes after it.
TEST_F(JournalTest, ItsBeginningGoesUpToTheEndOfAFile) {
  WriteEntries(40);
  for (const std::string& file : Files()) {
    const uint64_t first_batch = std::stoull(std::filesystem::path(file).filename().string(), nullptr, 16);
    const uint64_t reached = first_batch < 3 ? 0 : first_batch - 2;  // entry i came with batch i + 1
    if (reached == 0) continue;
    Write({.new_start = raft::NewStart{.after = At(reached, 1), .snapshot = At(reached, 1)}});
    ASSERT_TRUE(journal_->Sync(raft::LogIndex(reached)));
    journal_->DropUpTo(raft::LogIndex(reached));
    ASSERT_EQ(Files().front(), file);
    const JournalReader reader = Read();
    ASSERT_EQ(reader.damage(), "") << file;
    ASSERT_EQ(BatchesOf(reader), Range(first_batch, LastBatch())) << file;
  }
}

TEST_F(JournalTest, NobodyAppendsOrBelievesASyncAfterOneThatHasFailed) {
  WriteEntries(3);
  fail_fdatasync = 1;
  EXPECT_FALSE(journal_->Sync());
  EXPECT_FALSE(journal_->Sync());
  EXPECT_EQ(journal_->Append(LastBatch() + 1, raft::LogIndex(4), "a batch").code(),
            absl::StatusCode::kInternal);
}

// The loop appends, and a large file takes milliseconds to remove. While each file is removed, an append ends.
TEST_F(JournalTest, AppendsDoNotWaitForRemovals) {
  WriteEntries(30);
  ASSERT_TRUE(journal_->Sync());
  const uint64_t written = LastBatch();
  uint64_t appended = 0;
  std::vector<std::future<bool>> appends;
  int waited = 0;
  at_unlink = [&] {
    if (waited > 0) return;
    appends.push_back(std::async(std::launch::async, [&, batch = written + ++appended] {
      return journal_->Append(batch, raft::LogIndex(100), "a batch").ok();
    }));
    waited += appends.back().wait_for(std::chrono::seconds(10)) != std::future_status::ready;
  };
  journal_->DropUpTo(raft::LogIndex(30));
  at_unlink = nullptr;
  EXPECT_GT(appended, 2u);
  EXPECT_EQ(waited, 0) << "of " << appended;
  for (std::future<bool>& append : appends) EXPECT_TRUE(append.get());
}

// In a log.
class JournaledLogTest : public ::testing::Test {
 protected:
  StorageOptions options(bool sync = false) const { return TestOptions(folder_, sync); }
  static constexpr StoredIdentity kSelf = {.cluster_id = kTestCluster, .node = kTestNode};

  // `count` writes of a story in memory mode, reported durable; what the log is then.
  raft::RestoredState Write(uint64_t seed, int count, bool with_snapshots = true) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    Story story(seed, storage->TakeRestored(), with_snapshots);
    raft::Persist persist;
    for (int i = 0; i < count; ++i) {
      persist = story.Next();
      WriteWithSnapshot(*storage, persist);
    }
    EXPECT_TRUE(AwaitDurable(*storage, persist.sequence));
    return story.state();
  }
  std::string journal() const { return JournalFolderOf(folder_.log()); }

  TestFolder folder_;
};

TEST_F(JournaledLogTest, MemoryModeWritesItAndNoTables) {
  OpenOrDie(options());
  const auto tables = [this] {
    return std::count_if(std::filesystem::directory_iterator(folder_.rocksdb()), {},
                         [](const auto& file) { return file.path().extension() == ".sst"; });
  };
  const ptrdiff_t before = tables();
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  raft::Persist persist = {.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1)}};
  for (uint64_t i = 1; i <= 1000; ++i) persist.entries.push_back(TestEntry(i, 1, std::string(1000, 'p')));
  storage->Write(std::move(persist));
  ASSERT_TRUE(AwaitDurable(*storage, 1));
  EXPECT_LE(tables(), before + 1);
  EXPECT_FALSE(std::filesystem::is_empty(journal()));
}

TEST_F(JournaledLogTest, DiskModeTakesItOver) {
  const raft::RestoredState expected = Write(5, 500);
  EXPECT_TRUE(Same(OpenOrDie(options(/*sync=*/true))->TakeRestored(), expected));
  EXPECT_FALSE(std::filesystem::exists(journal()));
  EXPECT_TRUE(Same(OpenOrDie(options(/*sync=*/true))->TakeRestored(), expected));
}

TEST_F(JournaledLogTest, AStoppedLogIsReadWithItAndNotChanged) {
  for (uint64_t life = 0; life < 10; ++life) {
    const raft::RestoredState expected = Write(life, 300);
    for (int again = 0; again < 2; ++again) {
      const absl::StatusOr<StoppedLog> log = ReadStoppedLog(options(), kSelf, ReadThrough);
      ASSERT_TRUE(log.ok()) << log.status();
      EXPECT_TRUE(Same(log->raft, expected)) << "life " << life << ": " << Describe(log->raft);
      EXPECT_THAT(log->doubts, IsEmpty());
    }
  }
}

// A program that knows of no journal finds a log that ends early, and so does this one if somebody removes it.
TEST_F(JournaledLogTest, ALogWithoutItIsRefused) {
  Write(5, 100);
  std::filesystem::remove_all(journal());
  for (int again = 0; again < 2; ++again) {
    const absl::Status status = LogStorage::Open(options(), kSelf).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("was durable"));
  }
}

TEST_F(JournaledLogTest, AFlippedByteIsRefusedAndRefusedAgain) {
  Write(5, 200, /*with_snapshots=*/false);
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(journal())) files.push_back(file.path().native());
  ASSERT_GT(files.size(), 1u);
  std::sort(files.begin(), files.end());
  for (const std::string& path : files) {
    const std::string bytes = ReadFile(path);
    std::string flipped = bytes;
    flipped[bytes.size() / 2] ^= 1;
    WriteFile(path, flipped);
    for (int again = 0; again < 2; ++again) {
      const absl::Status status = LogStorage::Open(options(), kSelf).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << path << ": " << status;
    }
    WriteFile(path, bytes);
  }
  EXPECT_TRUE(LogStorage::Open(options(), kSelf).ok());
}

// Cut short at any point, a start that takes the journal over is done again by the next.
TEST_F(JournaledLogTest, TakenOverInPartItIsTakenOverAgain) {
  const raft::RestoredState expected = Write(6, 400);
  const TestFolder kept;
  std::filesystem::copy(folder_.log(), kept.log(), std::filesystem::copy_options::recursive);
  EXPECT_TRUE(Same(OpenOrDie(options())->TakeRestored(), expected));
  // Killed just before it removed the files.
  std::filesystem::remove_all(journal());
  std::filesystem::copy(JournalFolderOf(kept.log()), journal());
  EXPECT_TRUE(Same(OpenOrDie(options())->TakeRestored(), expected));
}

}  // namespace
}  // namespace hedgerow::storage
