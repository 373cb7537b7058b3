// SPDX-License-Identifier: Apache-2.0
//
// Logs that begin with a backup: whole or not at all, and of their own recovery generation; and what is left of
// a log that its node may not go on with.

#include "cluster/storage/restore_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/storage/backup_file.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr raft::EntryId kLast = {.index = raft::LogIndex(40), .term = raft::Term(3)};
constexpr RecoveryGeneration kOld = {.epoch = 4, .nonce = 44};
constexpr RecoveryGeneration kNew = {.epoch = 5, .nonce = 55};
constexpr StoredIdentity kIdentity = {.cluster_id = kTestCluster, .node = kTestNode};

class RestoreLogTest : public ::testing::Test {
 protected:
  std::string backup() const { return folder_.path() + "/backup"; }

  void WriteBackup() {
    const BackupHeader header{
        .cluster_id = kTestCluster, .of = kOld, .begins = kNew, .node = kTestNode, .last = kLast, .made_s = 12};
    absl::StatusOr<SnapshotFileWriter> writer = SnapshotFileWriter::CreateBehind(
        backup(), EncodeBackupHeader(header), {.cluster_id = kTestCluster, .snapshot = {.last = kLast}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const char* chunk : {"one", "two"}) ASSERT_TRUE(writer->Append(chunk).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  absl::Status Begin() {
    const absl::StatusOr<Backup> opened = OpenBackup(backup());
    if (!opened.ok()) return opened.status();
    return RestoreLog(folder_.log(), kIdentity, opened->header.begins, *opened->snapshot, {});
  }
  StorageOptions options() const { return TestOptions(folder_, true); }
  absl::StatusOr<std::unique_ptr<LogStorage>> Open(StorageOptions options, std::vector<std::string>* chunks = nullptr) {
    return LogStorage::Open(options, kIdentity, [chunks](SnapshotReader& snapshot) {
      std::vector<std::string> read;
      while (true) {
        const absl::StatusOr<std::optional<std::string>> chunk = snapshot.Next();
        if (!chunk.ok()) return chunk.status();
        if (!chunk->has_value()) break;
        read.push_back(**chunk);
      }
      if (chunks != nullptr) *chunks = read;
      return absl::OkStatus();
    });
  }

  TestFolder folder_;
};

TEST_F(RestoreLogTest, OfTwoAtOnceOneIsRefusedAndTheOtherIsWhole) {
  WriteBackup();
  for (int round = 0; round < 50; ++round) {
    std::filesystem::remove_all(folder_.log());
    absl::Status other;
    std::thread at_once([this, &other] { other = Begin(); });
    const absl::Status one = Begin();
    at_once.join();
    ASSERT_NE(one.ok(), other.ok()) << one << " and " << other;
    const absl::Status& refused = one.ok() ? other : one;
    EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
    std::vector<std::string> chunks;
    ASSERT_EQ(Open(options(), &chunks).status(), absl::OkStatus());
    EXPECT_THAT(chunks, ElementsAre("one", "two"));
  }
}

TEST_F(RestoreLogTest, AFilesystemOfItsOwnIsEmpty) {
  WriteBackup();
  std::filesystem::create_directories(folder_.log() + "/lost+found");
  std::filesystem::create_directory(folder_.log() + "/other");
  EXPECT_TRUE(absl::IsAlreadyExists(Begin()));
  std::filesystem::remove(folder_.log() + "/other");
  EXPECT_EQ(Begin(), absl::OkStatus());
  EXPECT_TRUE(Open(options()).ok());
}

TEST_F(RestoreLogTest, ALogBeginsWithABackup) {
  WriteBackup();
  ASSERT_EQ(Begin(), absl::OkStatus());
  std::vector<std::string> chunks;
  for (int start = 0; start < 2; ++start) {
    const auto log = Open(options(), &chunks);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_THAT(chunks, ElementsAre("one", "two"));
    EXPECT_EQ((*log)->generation(), kNew);
    const raft::RestoredState restored = (*log)->TakeRestored();
    EXPECT_EQ(restored.start, FirstOf(kNew, kLast));
    EXPECT_EQ(restored.snapshot.last, FirstOf(kNew, kLast));
    EXPECT_EQ(restored.hard_state, raft::HardState{.term = kLast.term}) << "nobody was voted for";
    EXPECT_THAT(restored.entries, IsEmpty());
  }
  const auto log = Open(options());
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write({.sequence = 1,
                 .hard_state = raft::HardState{.term = raft::Term(9)},
                 .entries = {TestEntry(FirstOf(kNew, kLast).index.value() + 1, 9, "x")}});
  EXPECT_TRUE(AwaitDurable(**log, 1)) << "it goes on like any other";
}

// As its configuration file says: it is made by no command.
TEST_F(RestoreLogTest, ALogThatJoinsHasTheBeginningAndNothingElse) {
  StorageOptions joins = options();
  joins.generation = kNew;
  for (int start = 0; start < 3; ++start) {
    const auto log = Open(joins);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->generation(), kNew);
    EXPECT_TRUE((*log)->began_with().members.empty()) << "it can begin no cluster of its own";
    const raft::RestoredState restored = (*log)->TakeRestored();
    EXPECT_EQ(restored.start, raft::EntryId());
    EXPECT_THAT(restored.entries, IsEmpty());
    joins.generation = {.epoch = kNew.epoch + 1, .nonce = 1};  // what counts is how the log began
  }
}

TEST_F(RestoreLogTest, AFolderInWhichSomethingIsIsLeftAsItIs) {
  WriteBackup();
  { const auto log = OpenOrDie(options()); }
  const std::string mark = ReadFile(folder_.log() + "/watermark");
  EXPECT_TRUE(absl::IsAlreadyExists(Begin()));
  EXPECT_EQ(ReadFile(folder_.log() + "/watermark"), mark);
  EXPECT_EQ(OpenOrDie(options())->generation(), RecoveryGeneration());
}

TEST_F(RestoreLogTest, WhatWasCutShortIsNoLog) {
  WriteBackup();
  const std::string whole = ReadFile(backup());
  std::string flipped = whole;
  flipped[whole.size() - 30] = static_cast<char>(flipped[whole.size() - 30] ^ 1);  // in the last chunk or the end
  for (const std::string& bytes : {flipped, whole.substr(0, whole.size() - 1)}) {
    WriteFile(backup(), bytes);
    EXPECT_TRUE(absl::IsDataLoss(Begin()));
    const auto log = Open(options());
    ASSERT_FALSE(log.ok());
    EXPECT_THAT(std::string(log.status().message()), HasSubstr("that was cut short: empty the folder"));
    EXPECT_TRUE(absl::IsAlreadyExists(Begin())) << "not on top of it";
    std::filesystem::remove_all(folder_.log());
  }
}

TEST_F(RestoreLogTest, AnyFlippedBitOfABackupsHeaderIsSeen) {
  WriteBackup();
  const std::string whole = ReadFile(backup());
  for (size_t bit = 0; bit < 8 * kBackupHeader_bytes; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    WriteFile(backup(), flipped);
    EXPECT_FALSE(OpenBackup(backup()).ok()) << bit;
  }
}

TEST_F(RestoreLogTest, ABackupBehindAnotherOnesHeaderIsNone) {
  WriteBackup();
  const std::string whole = ReadFile(backup());
  const BackupHeader other{
      .cluster_id = kTestCluster, .of = kOld, .begins = kNew, .node = kTestNode, .last = {kLast.index, raft::Term(4)}};
  WriteFile(backup(), EncodeBackupHeader(other) + whole.substr(kBackupHeader_bytes));
  EXPECT_TRUE(absl::IsDataLoss(OpenBackup(backup()).status()));
}

TEST_F(RestoreLogTest, EachRecoveryGenerationIsAnother) {
  const RecoveryGeneration next = NextGeneration(kOld);
  EXPECT_EQ(next.epoch, kOld.epoch + 1);
  EXPECT_NE(next.nonce, 0u);
  EXPECT_NE(next, NextGeneration(kOld));
}

// Ids that are made of indices are in clients' hands.
TEST_F(RestoreLogTest, NoTwoRecoveryGenerationsUseTheSameIndices) {
  constexpr uint64_t kMany = uint64_t{1} << 32;
  std::vector<uint64_t> firsts = {kLast.index.value()};
  for (const RecoveryGeneration& generation :
       {kNew, RecoveryGeneration{.epoch = 6, .nonce = 55}, RecoveryGeneration{.epoch = 5, .nonce = 56}}) {
    const raft::EntryId first = FirstOf(generation, kLast);
    EXPECT_EQ(first.term, kLast.term);
    EXPECT_GT(first.index.value(), kLast.index.value() + kMany);
    EXPECT_EQ(first, FirstOf(generation, kLast)) << "on every member";
    for (const uint64_t other : firsts) {
      const uint64_t apart = std::max(other, first.index.value()) - std::min(other, first.index.value());
      EXPECT_GT(apart, uint64_t{1} << 20);
    }
    firsts.push_back(first.index.value());
  }
  EXPECT_EQ(FirstOf(RecoveryGeneration(), kLast), kLast);
}

class StoppedLogTest : public RestoreLogTest {
 protected:
  void Write(bool sync) {
    const auto log = OpenOrDie(TestOptions(folder_, sync));
    log->Write({.sequence = 1,
                .hard_state = raft::HardState{.term = raft::Term(1)},
                .entries = {TestEntry(1, 1, "a"), TestEntry(2, 1, "b")}});
    ASSERT_TRUE(AwaitDurable(*log, 1));
  }
  absl::StatusOr<StoppedLog> Read(const std::string& boot_id = KernelBootId()) {
    StorageOptions options = this->options();
    options.boot_id = boot_id;
    return ReadStoppedLog(options, kIdentity, ReadThrough);
  }
};

TEST_F(StoppedLogTest, IsReadAndNotChanged) {
  Write(/*sync=*/true);
  const std::string mark = ReadFile(folder_.log() + "/watermark");
  {
    const auto log = Read();
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_THAT(log->doubts, IsEmpty());
    EXPECT_EQ(log->last, (raft::EntryId{.index = raft::LogIndex(2), .term = raft::Term(1)}));
    EXPECT_EQ(log->raft.entries.size(), 2u);
    EXPECT_TRUE(absl::IsFailedPrecondition(Open(options()).status())) << "as long as it is read";
  }
  EXPECT_EQ(ReadFile(folder_.log() + "/watermark"), mark);
}

// What recover can still use, and the node itself must not.
TEST_F(StoppedLogTest, OfAHostThatRestartedIsReadWithADoubtAndStaysRefused) {
  std::string mark;
  {
    const auto log = OpenOrDie(TestOptions(folder_, false));
    log->Write(
        {.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1)}, .entries = {TestEntry(1, 1, "a")}});
    ASSERT_TRUE(AwaitDurable(*log, 1));
    mark = ReadFile(folder_.log() + "/watermark");
  }
  WriteFile(folder_.log() + "/watermark", mark);  // as if it had not been stopped in order
  for (const char* const boot_id : {"the next run of the host", "", "the next run of the host"}) {
    const auto log = Read(boot_id);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_EQ(log->doubts.size(), 1u);
    EXPECT_THAT(log->doubts[0], HasSubstr("this host has restarted since"));
    EXPECT_EQ(log->last.index, raft::LogIndex(1));
  }
  StorageOptions next = TestOptions(folder_, false);
  next.boot_id = "the next run of the host";
  const absl::Status refused = Open(next).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_TRUE(IsLost(refused));
}

TEST_F(StoppedLogTest, AMissingEndIsReported) {
  Write(/*sync=*/true);
  std::string shorter;
  {
    const auto log = OpenOrDie(options());
    shorter = ReadFile(FilesOf(folder_).back().path);
    log->Write({.sequence = 1, .entries = {TestEntry(3, 1, "c")}});
    ASSERT_TRUE(AwaitDurable(*log, 1));
  }
  WriteFile(FilesOf(folder_).back().path, shorter);
  EXPECT_TRUE(absl::IsDataLoss(Open(options()).status()));
  const auto log = Read();
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last.index, raft::LogIndex(2));
  ASSERT_EQ(log->doubts.size(), 1u);
  EXPECT_THAT(log->doubts[0], HasSubstr("what came in between is gone"));
}

class FurtherSnapshotTest : public StoppedLogTest {
 protected:
  void TakeSnapshot(const raft::EntryId& last) {
    const absl::StatusOr<SnapshotFolder> snapshots = SnapshotFolder::Open(folder_.log());
    ASSERT_TRUE(snapshots.ok()) << snapshots.status();
    TakeTestSnapshot(*snapshots, last);
  }
  std::string PathOf(const raft::EntryId& last) { return SnapshotFolder::Open(folder_.log()).value().PathOf(last); }

  const raft::EntryId end_ = {.index = raft::LogIndex(2), .term = raft::Term(1)};
  const raft::EntryId further_ = {.index = raft::LogIndex(1001), .term = raft::Term(2)};
};

// As a power cut leaves it in memory mode: the snapshot was synced, and the log that goes on from it was not.
TEST_F(FurtherSnapshotTest, StandsForTheLogWhoseEndIsGone) {
  Write(/*sync=*/true);
  TakeSnapshot(further_);
  {
    const auto log = Read();
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(log->last, further_);
    EXPECT_EQ(log->raft.start, further_);
    EXPECT_EQ(log->raft.snapshot.last, further_);
    EXPECT_THAT(log->raft.entries, IsEmpty());
    ASSERT_EQ(log->doubts.size(), 1u);
    EXPECT_THAT(log->doubts[0], HasSubstr("goes further than its log, which ends with entry 2"));
  }
  EXPECT_TRUE(std::filesystem::exists(PathOf(further_))) << "nothing is changed";
  const auto storage = Open(options());
  ASSERT_TRUE(storage.ok()) << storage.status();
  EXPECT_EQ((*storage)->TakeRestored().entries.size(), 2u) << "a node goes by its log";
}

TEST_F(FurtherSnapshotTest, IsEnoughWhereTheOneThatTheLogBeginsWithIsGone) {
  Write(/*sync=*/true);
  {
    const auto log = OpenOrDie(options());
    WriteWithSnapshot(*log, {.sequence = 1, .new_start = raft::NewStart{.after = end_, .snapshot = end_}});
    ASSERT_TRUE(AwaitDurable(*log, 1));
  }
  std::filesystem::remove(PathOf(end_));
  EXPECT_TRUE(absl::IsDataLoss(Read().status()));
  TakeSnapshot(further_);
  const auto log = Read();
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last, further_);
}

TEST_F(FurtherSnapshotTest, OfAnEarlierTermOrDamagedDoesNot) {
  Write(/*sync=*/true);
  const raft::EntryId earlier = {.index = raft::LogIndex(1001), .term = raft::Term(0)};
  TakeSnapshot(earlier);
  {
    const auto log = Read();
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(log->last, end_);
    EXPECT_THAT(log->doubts, IsEmpty());
  }
  TakeSnapshot(further_);
  const std::string whole = ReadFile(PathOf(further_));
  WriteFile(PathOf(further_), whole.substr(0, whole.size() - 1));
  {
    const auto log = Read();
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(log->last, end_);
    EXPECT_EQ(log->raft.entries.size(), 2u);
    ASSERT_EQ(log->doubts.size(), 1u);
    EXPECT_THAT(log->doubts[0], HasSubstr("a snapshot cannot be used"));
  }
  WriteFile(PathOf({.index = raft::LogIndex(1002), .term = raft::Term(2)}), whole);
  const auto log = Read();
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last, end_) << "it is of another entry than its name says";
}

}  // namespace
}  // namespace hedgerow::storage
