// SPDX-License-Identifier: Apache-2.0
//
// Logs that are no logs: each record is well, but they do not belong together.

#include "cluster/storage/log_reader.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cluster/raft/check.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/records.h"
#include "cluster/storage/segment_file.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCopyId = 77;

class LogReaderTest : public ::testing::Test {
 protected:
  LogReaderTest() {
    HEDGEROW_CHECK(MakeFolder(folder_.log()).ok() && MakeFolder(folder_.segments()).ok());
    Begin("1");
  }
  void Begin(const std::string& name) {
    path_ = folder_.segments() + "/" + name;
    segment_ = *MakeSegment(path_, kCopyId, 64 * 1024, false);
    end_ = kPage_bytes;
  }
  // The batch after the last one, in which `state` says nothing but what is unusual.
  void Put(std::vector<raft::Entry> entries, uint64_t term_before, StateRecord state = {}) {
    RecordBuilder builder;
    for (const raft::Entry& entry : entries) builder.Append(entry);
    if (state.batch == 0) state.batch = batch_ + 1;
    if (state.hard_state.term == raft::Term()) state.hard_state.term = raft::Term(3);
    if (!entries.empty()) {
      state.last_index = entries.back().index;
      if (state.last_term == raft::Term()) state.last_term = entries.back().term;
    }
    if (state.start == raft::EntryId()) state.start = start_;
    start_ = state.start;
    batch_ = state.batch;
    std::string& record = builder.Finish(state, raft::Term(term_before));
    SealRecord(record, segment_.salt);
    ASSERT_TRUE(WriteAt(segment_.file, path_, record, end_).ok());
    end_ += record.size();
  }
  // Terms 1, 1, 2, 3.
  void PutFour() {
    Put({}, 0, {.hard_state = {.term = raft::Term(1)}});
    Put({TestEntry(1, 1, "x"), TestEntry(2, 1, "x")}, 0);
    Put({TestEntry(3, 2, "x")}, 1);
    Put({TestEntry(4, 3, "x")}, 2);
  }
  ReadLog Read() const {
    absl::StatusOr<ReadLog> log = ReadSegments(folder_.log(), kCopyId);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }

  TestFolder folder_;
  std::string path_;
  OpenSegment segment_;
  size_t end_ = 0;
  uint64_t batch_ = 0;
  raft::EntryId start_;
};

TEST_F(LogReaderTest, NothingIsALogToo) {
  const ReadLog log = Read();
  EXPECT_EQ(log.state.batch, 0u);
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.others, std::vector<std::string>{path_});
}

TEST_F(LogReaderTest, AWholeLogIsRestored) {
  PutFour();
  const ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries.size(), 4u);
  EXPECT_EQ(log.raft.hard_state.term, raft::Term(3));
  EXPECT_EQ(log.state.batch, 4u);
}

TEST_F(LogReaderTest, SaysHowFarItIsAndThatItIsThroughAtItsEnd) {
  PutFour();
  LoadProgress progress;
  ASSERT_TRUE(ReadSegments(folder_.log(), kCopyId, &progress).ok());
  EXPECT_EQ(progress.stage(), LoadProgress::Stage::kReplaying);
  EXPECT_EQ(progress.total_bytes(), std::filesystem::file_size(path_));
  EXPECT_EQ(progress.done_bytes(), progress.total_bytes());
}

TEST_F(LogReaderTest, ABatchReplacesWhatStoodInItsPlace) {
  PutFour();
  Put({TestEntry(2, 3, "y"), TestEntry(3, 3, "y")}, 1);
  ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries,
            (std::vector<raft::Entry>{TestEntry(1, 1, "x"), TestEntry(2, 3, "y"), TestEntry(3, 3, "y")}));
  Put({}, 1, {.last_index = raft::LogIndex(1), .last_term = raft::Term(1)});
  log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries.size(), 1u);
}

TEST_F(LogReaderTest, AGapIsSeen) {
  PutFour();
  Put({TestEntry(6, 3, "x")}, 3);
  EXPECT_THAT(Read().damage, HasSubstr("batch 5: entry 5 is missing before entry 6"));
}

TEST_F(LogReaderTest, AMissingBeginningIsSeen) {
  batch_ = 1;
  Put({TestEntry(2, 1, "x")}, 1);
  EXPECT_THAT(Read().damage, HasSubstr("entry 1 is missing before entry 2"));
}

TEST_F(LogReaderTest, EntriesOfABatchThatWasReplacedAreSeen) {
  PutFour();
  Put({TestEntry(5, 3, "x")}, 2);
  EXPECT_THAT(Read().damage, HasSubstr("entry 5 follows an entry of term 2, but entry 4 is of term 3"));
}

TEST_F(LogReaderTest, ATermAboveTheHardStatesIsSeen) {
  PutFour();
  Put({TestEntry(5, 4, "x")}, 3);
  EXPECT_THAT(Read().damage, HasSubstr("entry 5 is of term 4, which is not between term 3 of the entry before and "
                                       "the node's term 3"));
}

TEST_F(LogReaderTest, AStateOfAnotherEndIsSeen) {
  PutFour();
  Put({TestEntry(5, 3, "x")}, 3, {.last_term = raft::Term(2)});
  EXPECT_THAT(Read().damage, HasSubstr("its last entry is not of the term that it says"));
}

TEST_F(LogReaderTest, WhatStandsBeforeItsStartMeansNothing) {
  PutFour();
  Put({}, 3,
      {.last_index = raft::LogIndex(4),
       .last_term = raft::Term(3),
       .start = {.index = raft::LogIndex(3), .term = raft::Term(2)}});
  const ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.start.index, raft::LogIndex(3));
  EXPECT_EQ(log.raft.entries.size(), 1u);
}

TEST_F(LogReaderTest, ASnapshotThatContradictsTheLogReplacesIt) {
  PutFour();
  Put({}, 5,
      {.hard_state = {.term = raft::Term(5)},
       .last_index = raft::LogIndex(3),
       .last_term = raft::Term(5),
       .start = {.index = raft::LogIndex(3), .term = raft::Term(5)}});
  Put({TestEntry(4, 5, "z")}, 5, {.hard_state = {.term = raft::Term(5)}});
  const ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries, std::vector<raft::Entry>{TestEntry(4, 5, "z")});
}

TEST_F(LogReaderTest, AStartOfAnotherTermIsSeen) {
  PutFour();
  Put({}, 3,
      {.last_index = raft::LogIndex(4),
       .last_term = raft::Term(3),
       .start = {.index = raft::LogIndex(3), .term = raft::Term(1)}});
  EXPECT_THAT(Read().damage, HasSubstr("it begins after entry 3 of term 1, but that entry is of term 2"));
}

// Files before the last run of batches may be gone if the log begins late enough, to the entry.
TEST_F(LogReaderTest, AGapBetweenFilesIsDamageWhileTheLogBeginsBeforeItsEnd) {
  PutFour();
  Begin("2");
  batch_ = 9;
  Put({TestEntry(8, 3, "x"), TestEntry(9, 3, "x")}, 3);
  EXPECT_THAT(Read().damage, HasSubstr("it holds batch 10 right after batch 4; what stood between them is gone"));
  EXPECT_EQ(Read().raft.entries.size(), 4u) << "what comes before the gap";
  Put({}, 3,
      {.last_index = raft::LogIndex(9),
       .last_term = raft::Term(3),
       .start = {.index = raft::LogIndex(6), .term = raft::Term(3)}});
  EXPECT_THAT(Read().damage, HasSubstr("entry 7 is missing before entry 8"));
  Put({}, 3,
      {.last_index = raft::LogIndex(9),
       .last_term = raft::Term(3),
       .start = {.index = raft::LogIndex(7), .term = raft::Term(3)}});
  const ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries.size(), 2u);
  EXPECT_EQ(log.others.size(), 1u);
}

// What a client writes may look like records. It costs no more than other bytes, and none is taken for one.
TEST_F(LogReaderTest, RecordsInPayloadsAreNoRecords) {
  RecordBuilder builder;
  std::string& forged = builder.Finish({.batch = 6}, raft::Term());
  SealRecord(forged, 1);
  std::string payload(3, ' ');  // so that they are at places where records may stand
  while (payload.size() < 30'000) payload += forged;
  PutFour();
  const size_t before = end_;
  Put({TestEntry(5, 3, payload)}, 3);
  ReadLog log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries.size(), 5u);
  ASSERT_TRUE(WriteAt(segment_.file, path_, "torn", before).ok());
  log = Read();
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.raft.entries.size(), 4u);
}

}  // namespace
}  // namespace hedgerow::storage
