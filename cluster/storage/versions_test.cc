// SPDX-License-Identifier: Apache-2.0
//
// Logs of all versions there were: what each of them wrote is read, and what this one writes is what is
// documented (golden_log.h).

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include "cluster/storage/golden_log.h"
#include "cluster/storage/log_restore.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/records.h"
#include "cluster/storage/storage_story.h"

namespace hedgerow::storage {
namespace {

constexpr Origin kAnew = {.epoch = 5, .beginning = 55};

class LogVersionsTest : public testing::Test {
 protected:
  StorageOptions Options() const {
    StorageOptions options = TestOptions(folder_, true);
    options.begins_with = raft::Configuration::OfVoters({raft::NodeId(1), raft::NodeId(2), raft::NodeId(3)});
    return options;
  }
  std::map<std::string, std::string> Found() const {
    std::map<std::string, std::string> records;
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator(rocksdb::ReadOptions()));
    for (at->SeekToFirst(); at->Valid(); at->Next()) records[at->key().ToString()] = at->value().ToString();
    return records;
  }

  TestFolder folder_;
};

// What all of them hold.
raft::RestoredState Expected() {
  raft::RestoredState state;
  state.hard_state = {.term = raft::Term(3), .voted_for = raft::NodeId(2)};
  state.entries = {TestEntry(1, 1, ""), TestEntry(2, 1, "one"), TestEntry(3, 3, "two")};
  state.entries[0].kind = raft::EntryKind::kNoOp;
  return state;
}

TEST_F(LogVersionsTest, WhatEachVersionWroteIsReadAndGoesOn) {
  for (uint32_t version = 1; version <= kFormatVersion; ++version) {
    SCOPED_TRACE(version);
    std::filesystem::remove_all(folder_.log());
    PutGoldenLog(folder_, ReadGoldenLog(version));
    uint64_t id = 0;
    {
      const std::unique_ptr<LogStorage> storage = OpenOrDie(Options());
      EXPECT_TRUE(Same(storage->TakeRestored(), Expected()));
      EXPECT_EQ(storage->began_with().voters, 0b111u);
      EXPECT_EQ(storage->origin(), HasOrigin(version) ? kAnew : Origin());
      id = storage->log_id();
      EXPECT_NE(id, 0u);
      storage->Write({.sequence = 1, .entries = {TestEntry(4, 3, "three")}});
      ASSERT_TRUE(AwaitDurable(*storage, 1));
    }
    const std::unique_ptr<LogStorage> again = OpenOrDie(Options());
    EXPECT_EQ(again->log_id(), id);
    raft::RestoredState longer = Expected();
    longer.entries.push_back(TestEntry(4, 3, "three"));
    EXPECT_TRUE(Same(again->TakeRestored(), longer));
  }
}

TEST_F(LogVersionsTest, WhatThisVersionWritesIsAsDocumented) {
  for (const uint32_t version : {kFormatOfFirstBeginning, kFormatBegunAnew}) {
    SCOPED_TRACE(version);
    std::filesystem::remove_all(folder_.log());
    uint64_t id = 0;
    {
      StorageOptions options = Options();
      if (version == kFormatBegunAnew) options.origin = kAnew;
      const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
      id = storage->log_id();
      const std::vector<raft::Entry> entries = Expected().entries;
      storage->Write({.sequence = 1,
                      .hard_state = raft::HardState{.term = raft::Term(1)},
                      .entries = {entries[0], entries[1]}});
      ASSERT_TRUE(AwaitDurable(*storage, 1));
      storage->Write({.sequence = 2, .hard_state = Expected().hard_state, .entries = {entries[2]}});
      ASSERT_TRUE(AwaitDurable(*storage, 2));
    }
    GoldenLog golden = ReadGoldenLog(version);
    const std::string mark = ReadFile(folder_.log() + "/watermark");
    ASSERT_EQ(mark.size(), golden.watermark.size());
    EXPECT_EQ(mark.substr(4, 9), golden.watermark.substr(4, 9)) << "what follows names this run of the host";
    golden.records[std::string(kLogIdKey)] = EncodeLogId(id);
    EXPECT_EQ(Found(), golden.records);
  }
}

}  // namespace
}  // namespace hedgerow::storage
