// SPDX-License-Identifier: Apache-2.0
//
// Logs that are no logs, made with RocksDB itself: each record is well, but they do not belong together.

#include "cluster/storage/log_restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include <rocksdb/db.h>

#include "cluster/storage/records.h"
#include "cluster/storage/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

class LogRestoreTest : public ::testing::Test {
 protected:
  LogRestoreTest() {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    EXPECT_TRUE(rocksdb::DB::Open(options, folder_.path() + "/db", &db).ok());
    db_.reset(db);
    // Terms 1, 1, 2, 3.
    PutState({.batch = 9,
              .hard_state = {.term = raft::Term(3)},
              .last_index = raft::LogIndex(4),
              .last_term = raft::Term(3)});
    PutEntry(1, 1, 0);
    PutEntry(2, 1, 1);
    PutEntry(3, 2, 1);
    PutEntry(4, 3, 2);
  }

  void Put(std::string_view key, const std::string& value) {
    EXPECT_TRUE(db_->Put(rocksdb::WriteOptions(), rocksdb::Slice(key.data(), key.size()), value).ok());
  }
  void PutState(const StateRecord& state) {
    const std::string key = StateKey(state.last_index);
    Put(key, EncodeState(key, state));
  }
  void PutEntry(uint64_t index, uint64_t term, uint64_t previous_term) {
    Put(EntryKey(raft::LogIndex(index)), EncodeEntry(TestEntry(index, term, "x"), raft::Term(previous_term)));
  }
  std::string Damage() {
    const absl::StatusOr<RestoredLog> log = RestoreLog(*db_, "THE_PATH", kFormatVersion);
    if (log.ok()) return "";
    EXPECT_EQ(log.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(log.status().message()), HasSubstr("the log in THE_PATH is damaged: "));
    EXPECT_THAT(std::string(log.status().message()), HasSubstr("Do not empty the folder"));
    return std::string(log.status().message());
  }

  TestFolder folder_;
  std::unique_ptr<rocksdb::DB> db_;
};

TEST_F(LogRestoreTest, AWholeLogIsRestored) {
  const absl::StatusOr<RestoredLog> log = RestoreLog(*db_, "THE_PATH", kFormatVersion);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->raft.entries.size(), 4u);
  EXPECT_EQ(log->raft.hard_state.term, raft::Term(3));
  EXPECT_EQ(log->state.batch, 9u);
}

TEST_F(LogRestoreTest, AGapIsSeen) {
  ASSERT_TRUE(db_->Delete(rocksdb::WriteOptions(), EntryKey(raft::LogIndex(2))).ok());
  EXPECT_THAT(Damage(), HasSubstr("entry 2 is missing before entry 3"));
}

TEST_F(LogRestoreTest, WhatStandsBeforeItsStartMeansNothing) {
  PutState({.batch = 9,
            .hard_state = {.term = raft::Term(3)},
            .last_index = raft::LogIndex(4),
            .last_term = raft::Term(3),
            .start = {.index = raft::LogIndex(2), .term = raft::Term(1)}});
  ASSERT_TRUE(db_->Delete(rocksdb::WriteOptions(), EntryKey(raft::LogIndex(1))).ok());
  Put(EntryKey(raft::LogIndex(2)), "rubbish");
  const absl::StatusOr<RestoredLog> log = RestoreLog(*db_, "THE_PATH", kFormatVersion);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->raft.start.index, raft::LogIndex(2));
  EXPECT_EQ(log->raft.entries.size(), 2u);
}

TEST_F(LogRestoreTest, AStartOfAnotherTermIsSeen) {
  PutState({.batch = 9,
            .hard_state = {.term = raft::Term(3)},
            .last_index = raft::LogIndex(4),
            .last_term = raft::Term(3),
            .start = {.index = raft::LogIndex(2), .term = raft::Term(2)}});
  EXPECT_THAT(Damage(), HasSubstr("entry 3 follows an entry of term 1, but entry 2 is of term 2"));
}

TEST_F(LogRestoreTest, AMissingBeginningIsSeen) {
  ASSERT_TRUE(db_->Delete(rocksdb::WriteOptions(), EntryKey(raft::LogIndex(1))).ok());
  EXPECT_THAT(Damage(), HasSubstr("entry 1 is missing before entry 2"));
}

TEST_F(LogRestoreTest, AMissingEndIsSeen) {
  ASSERT_TRUE(db_->Delete(rocksdb::WriteOptions(), EntryKey(raft::LogIndex(4))).ok());
  EXPECT_THAT(Damage(), HasSubstr("it ends with entry 3 of term 2 instead of entry 4 of term 3"));
}

TEST_F(LogRestoreTest, EntriesOfABatchThatWasReplacedAreSeen) {
  PutEntry(3, 1, 1);  // what stood there before entry 3 of term 2
  EXPECT_THAT(Damage(), HasSubstr("entry 4 follows an entry of term 2, but entry 3 is of term 1"));
}

TEST_F(LogRestoreTest, EntriesThatWereTruncatedAreSeen) {
  PutEntry(5, 3, 3);
  EXPECT_THAT(Damage(), HasSubstr("entry 5 is there, though the log ended with entry 4"));
}

TEST_F(LogRestoreTest, ATermAboveTheHardStatesIsSeen) {
  PutState({.batch = 9,
            .hard_state = {.term = raft::Term(2)},
            .last_index = raft::LogIndex(4),
            .last_term = raft::Term(3)});
  EXPECT_THAT(
      Damage(),
      HasSubstr("entry 4 is of term 3, which is not between term 2 of the entry before and the node's term 2"));
}

TEST_F(LogRestoreTest, AnEntryWithAWrongChecksumIsSeen) {
  std::string value = EncodeEntry(TestEntry(3, 2, "x"), raft::Term(1));
  value.back() = 'y';
  Put(EntryKey(raft::LogIndex(3)), value);
  EXPECT_THAT(Damage(), HasSubstr("the entry after entry 2 has a wrong checksum"));
}

TEST_F(LogRestoreTest, AMissingStateIsSeen) {
  ASSERT_TRUE(db_->Delete(rocksdb::WriteOptions(), StateKey(raft::LogIndex(4))).ok());
  EXPECT_THAT(Damage(), HasSubstr("it has no state record"));
}

TEST_F(LogRestoreTest, TheStatesOfEarlierBatchesMeanNothing) {
  PutState({.batch = 3, .hard_state = {.term = raft::Term(1)}});
  PutState({.batch = 7,
            .hard_state = {.term = raft::Term(9)},
            .last_index = raft::LogIndex(2),
            .last_term = raft::Term(8)});
  Put(StateKey(raft::LogIndex(3)), "rubbish");
  const absl::StatusOr<RestoredLog> log = RestoreLog(*db_, "THE_PATH", kFormatVersion);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->state.batch, 9u);
  EXPECT_EQ(log->raft.entries.size(), 4u);
}

TEST_F(LogRestoreTest, AStateWithAWrongChecksumIsSeenAndNoEarlierOneTakenForIt) {
  PutState({.batch = 8, .hard_state = {.term = raft::Term(3)}, .last_index = raft::LogIndex(3)});
  Put(StateKey(raft::LogIndex(4)), "rubbish");
  EXPECT_THAT(Damage(), HasSubstr("the state record has a wrong checksum"));
}

// What a truncation did not delete would be the last state.
TEST_F(LogRestoreTest, AStateBehindTheLogsEndIsSeen) {
  PutState({.batch = 8,
            .hard_state = {.term = raft::Term(3)},
            .last_index = raft::LogIndex(6),
            .last_term = raft::Term(3)});
  EXPECT_THAT(Damage(), HasSubstr("it ends with entry 4 of term 3 instead of entry 6 of term 3"));
}

TEST_F(LogRestoreTest, AnotherFormatIsRefusedBeforeAnythingElseIsRead) {
  Put(kIdentityKey, EncodeIdentity(kIdentityKey, {.format_version = kFormatVersion + 1}));
  const absl::StatusOr<IdentityRecord> empty =
      CheckIdentity(*db_, "THE_PATH", {.cluster_id = 1, .node = raft::NodeId(1)});
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(empty.status().message()),
      HasSubstr("the log in THE_PATH has format 7, and this program reads formats up to 6: start the version"));
}

TEST_F(LogRestoreTest, ALogOfNobodyIsRefused) {
  const absl::StatusOr<IdentityRecord> empty =
      CheckIdentity(*db_, "THE_PATH", {.cluster_id = 1, .node = raft::NodeId(1)});
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hedgerow::storage
