// SPDX-License-Identifier: Apache-2.0
//
// The formats of the log: what earlier programs have left is read and made the present one, a later one is
// named, and the present one is what it is for, a log whose tables do not overlap.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/metadata.h>
#include <rocksdb/write_batch.h>

#include "cluster/raft/configuration.h"
#include "cluster/storage/golden_log.h"
#include "cluster/storage/log_restore.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/record_bytes.h"
#include "cluster/storage/records.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

constexpr StoredIdentity kIdentity = {.cluster_id = kTestCluster, .node = kTestNode};
constexpr Origin kOrigin = {.epoch = 2, .beginning = 77};

raft::Configuration Voters(uint64_t count) {
  std::vector<raft::NodeId> ids;
  for (uint64_t id = 1; id <= count; ++id) ids.emplace_back(id);
  return raft::Configuration::OfVoters(ids);
}

// As long as it is there no file grows beyond so many bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    Set(bytes);
  }
  ~FileLimit() { Set(RLIM_INFINITY); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  static void Set(rlim_t bytes) {
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
};

class LogFormatTest : public ::testing::Test {
 protected:
  bool Has(std::string_view key) const {
    std::string value;
    return OpenTestDatabase(folder_)->Get(rocksdb::ReadOptions(), SliceOf(key), &value).ok();
  }
  uint32_t Format() const {
    return CheckIdentity(*OpenTestDatabase(folder_), folder_.log(), kIdentity).value_or(IdentityRecord()).format_version;
  }

  // Up to format 4: the keys, and what stood under them.
  std::string FormerState(const StateRecord& state, uint32_t format) const {
    if (format > 1) return EncodeState(kFormerStateKey, state);
    std::string body;
    for (const uint64_t number :
         {state.batch, state.hard_state.term.value(), state.hard_state.voted_for.value(),
          state.last_index.value(), state.last_term.value()}) {
      AppendNumber(body, number, 8);
    }
    std::string record;
    AppendNumber(record, Checksum(kFormerStateKey, body), 4);
    return record + body;
  }
  void MakeFormer(uint32_t format) const {
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    const absl::StatusOr<StateRecord> state = ReadState(*db, folder_.log(), kFormatVersion);
    ASSERT_TRUE(state.ok()) << state.status();
    rocksdb::WriteBatch batch;
    const std::unique_ptr<rocksdb::Iterator> records(db->NewIterator(rocksdb::ReadOptions()));
    for (records->SeekToFirst(); records->Valid(); records->Next()) {
      const rocksdb::Slice key = records->key();
      const bool entry = key.starts_with(SliceOf(kEntryPrefix)) && !IsStateKey({key.data(), key.size()});
      if (!entry) batch.Delete(key);
    }
    batch.Put(SliceOf(kFormerStateKey), FormerState(*state, format));
    batch.Put(SliceOf(kFormerIdentityKey),
              EncodeIdentity(kFormerIdentityKey,
                             {.format_version = format, .identity = kIdentity, .began_with = Voters(3)}));
    if (format == 4) batch.Put(SliceOf(kFormerOriginKey), EncodeOrigin(kFormerOriginKey, kOrigin));
    ASSERT_TRUE(db->Write(rocksdb::WriteOptions(), &batch).ok());
  }
  // One more batch of a log that MakeFormer(3) has made, in the write-ahead log alone.
  void AppendFormer(size_t payload_bytes) const {
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    absl::StatusOr<StateRecord> state = ReadState(*db, folder_.log(), 3);
    ASSERT_TRUE(state.ok()) << state.status();
    const raft::Term previous_term = std::exchange(state->last_term, state->hard_state.term);
    state->last_index = state->last_index.Next();
    ++state->batch;
    const raft::Entry entry =
        TestEntry(state->last_index.value(), state->last_term.value(), std::string(payload_bytes, 'p'));
    rocksdb::WriteBatch batch;
    batch.Put(EntryKey(entry.index), EncodeEntry(entry, previous_term));
    batch.Put(SliceOf(kFormerStateKey), FormerState(*state, 3));
    ASSERT_TRUE(db->Write(rocksdb::WriteOptions(), &batch).ok());
  }
  // Some hundred batches, in tables and in the write-ahead log, with truncations.
  raft::RestoredState WriteStory() const {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder_, true));
    Story story(3, {});
    for (int i = 0; i < 300; ++i) storage->Write(story.Next());
    return story.state();
  }

  TestFolder folder_;
};

class FormerFormatTest : public LogFormatTest, public ::testing::WithParamInterface<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Formats, FormerFormatTest, ::testing::Values(1, 2, 3, 4));

TEST_P(FormerFormatTest, IsReadAndMadeThePresentOne) {
  const uint32_t format = GetParam();
  const raft::RestoredState expected = WriteStory();
  MakeFormer(format);
  StorageOptions options = TestOptions(folder_, true);
  for (const uint64_t voters : {3, 5}) {
    options.begins_with = Voters(voters);
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
    EXPECT_TRUE(Same(storage->TakeRestored(), expected));
    EXPECT_EQ(storage->began_with().voters, 0b111u)
        << "the file's, when the format was made this one, or what was recorded";
    EXPECT_EQ(storage->origin(), format == 4 ? kOrigin : Origin());
  }
  EXPECT_EQ(Format(), format == 4 ? kFormatBegunAnew : kFormatOfFirstBeginning);
  for (const std::string_view former : {kFormerIdentityKey, kFormerOriginKey, kFormerStateKey}) {
    EXPECT_FALSE(Has(former)) << former;
  }
}

TEST_P(FormerFormatTest, GoesOnAsThePresentOne) {
  raft::RestoredState state = WriteStory();
  MakeFormer(GetParam());
  for (uint64_t life = 1; life <= 2; ++life) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder_, true));
    ASSERT_TRUE(Same(storage->TakeRestored(), state));
    Story story(life, state);
    for (int i = 0; i < 100; ++i) storage->Write(story.Next());
    state = story.state();
  }
  EXPECT_TRUE(Same(OpenOrDie(TestOptions(folder_, true))->TakeRestored(), state));
}

TEST_P(FormerFormatTest, OfAStoppedNodeIsReadAndNotChanged) {
  const raft::RestoredState expected = WriteStory();
  MakeFormer(GetParam());
  {
    const absl::StatusOr<StoppedLog> log =
        ReadStoppedLog(TestOptions(folder_, true), kIdentity, [](SnapshotReader&) { return absl::OkStatus(); });
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_TRUE(Same(log->raft, expected));
    EXPECT_THAT(log->doubts, ::testing::IsEmpty());
    EXPECT_EQ(log->origin, GetParam() == 4 ? kOrigin : Origin());
  }
  EXPECT_EQ(Format(), GetParam());
}

TEST_P(FormerFormatTest, WithoutItsStateIsRefused) {
  WriteStory();
  MakeFormer(GetParam());
  {
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    ASSERT_TRUE(db->Delete(rocksdb::WriteOptions(), SliceOf(kFormerStateKey)).ok());
    ASSERT_TRUE(db->Flush(rocksdb::FlushOptions()).ok());
  }
  const auto storage = LogStorage::Open(TestOptions(folder_, true), kIdentity);
  EXPECT_EQ(storage.status().code(), absl::StatusCode::kDataLoss) << storage.status();
  EXPECT_THAT(std::string(storage.status().message()), HasSubstr("it has no state record"));
}

// It is synced, and what it follows may be in the page cache only: after a power cut it would be there alone,
// and a batch missing before it.
TEST_F(LogFormatTest, TheConversionWaitsUntilWhatItFollowsIsInATable) {
  WriteStory();
  MakeFormer(3);
  AppendFormer(200'000);
  {
    const FileLimit limit(100'000);  // for the conversion that is enough, and for that table it is not
    EXPECT_FALSE(LogStorage::Open(TestOptions(folder_, true), kIdentity).ok());
  }
  EXPECT_EQ(Format(), 3u);
  OpenOrDie(TestOptions(folder_, true));
  EXPECT_EQ(Format(), kFormatOfFirstBeginning);
}

TEST_F(LogFormatTest, ABeginningWithoutItsOriginIsRefused) {
  WriteStory();
  MakeFormer(4);
  {
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    ASSERT_TRUE(db->Delete(rocksdb::WriteOptions(), SliceOf(kFormerOriginKey)).ok());
    ASSERT_TRUE(db->Flush(rocksdb::FlushOptions()).ok());
  }
  const auto storage = LogStorage::Open(TestOptions(folder_, true), kIdentity);
  EXPECT_THAT(std::string(storage.status().message()), HasSubstr("with which recovery its cluster began"));
}

// Its batches look like damage to this program, and it is not to be told that its disk is broken.
TEST_F(LogFormatTest, ALaterOneIsNamedWhateverItsBatchesLookLike) {
  { OpenOrDie(TestOptions(folder_, true)); }
  {
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), SliceOf(kIdentityKey),
                        EncodeIdentity(kIdentityKey, {.format_version = kFormatVersion + 1}))
                    .ok());
    ASSERT_TRUE(db->Flush(rocksdb::FlushOptions()).ok());
    ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), "of a format", "that nobody knows yet").ok());
  }
  const auto storage = LogStorage::Open(TestOptions(folder_, true), kIdentity);
  EXPECT_EQ(storage.status().code(), absl::StatusCode::kFailedPrecondition) << storage.status();
  EXPECT_THAT(std::string(storage.status().message()), HasSubstr("has format 7"));
}

// What the present keys are for (docs/adr/0020): with tables that overlap, each entry is written again, and the
// end of the log with every few tables.
class TablesTest : public LogFormatTest {
 protected:
  // Batches of one entry of 1 KB, enough for some tables.
  void Append(LogStorage& storage, uint64_t from, uint64_t count, raft::Term term) const {
    for (uint64_t i = 0; i < count; ++i) {
      raft::Persist persist = {.sequence = i + 1};
      if (i == 0) persist.hard_state = raft::HardState{.term = term};
      persist.entries.push_back(TestEntry(from + i, term.value(), std::string(1000, 'p')));
      storage.Write(persist);
    }
    ASSERT_TRUE(AwaitDurable(storage, count));
  }
  std::vector<rocksdb::LiveFileMetaData> Tables() const {
    rocksdb::DB* raw = nullptr;
    EXPECT_TRUE(rocksdb::DB::OpenForReadOnly(rocksdb::Options(), folder_.rocksdb(), &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    std::vector<rocksdb::LiveFileMetaData> tables;
    db->GetLiveFilesMetaData(&tables);
    std::sort(tables.begin(), tables.end(),
              [](const auto& a, const auto& b) { return a.smallestkey < b.smallestkey; });
    return tables;
  }
  bool HoldFormerKeys() const {
    const std::vector<rocksdb::LiveFileMetaData> tables = Tables();
    return std::any_of(tables.begin(), tables.end(),
                       [](const auto& table) { return table.largestkey > kEntriesEnd; });
  }
  void ExpectApart() const {
    const std::vector<rocksdb::LiveFileMetaData> tables = Tables();
    EXPECT_GT(tables.size(), 2u);  // what a start reads from the write-ahead log becomes one
    for (size_t i = 1; i < tables.size(); ++i) {
      EXPECT_LT(tables[i - 1].largestkey, tables[i].smallestkey) << i << " of " << tables.size();
    }
  }
};

TEST_F(TablesTest, DoNotOverlap) {
  for (uint64_t life = 0; life < 3; ++life) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder_, true));
    storage->TakeRestored();
    Append(*storage, 1 + 2000 * life, 2000, raft::Term(1));
  }
  ExpectApart();
}

TEST_F(TablesTest, OfALogThatWasConvertedDoNotOverlapEither) {
  { Append(*OpenOrDie(TestOptions(folder_, true)), 1, 2000, raft::Term(1)); }
  MakeFormer(3);
  { Append(*OpenOrDie(TestOptions(folder_, true)), 2001, 4000, raft::Term(1)); }
  ExpectApart();
}

TEST_F(TablesTest, WhatWasCutShortOfAConversionIsDoneAtTheNextStart) {
  { Append(*OpenOrDie(TestOptions(folder_, true)), 1, 2000, raft::Term(1)); }
  MakeFormer(3);
  OpenOrDie(TestOptions(folder_, true));
  EXPECT_FALSE(HoldFormerKeys());
  {
    // As it is between the batch that converts and the compaction that forgets.
    const std::unique_ptr<rocksdb::DB> db = OpenTestDatabase(folder_);
    for (const std::string_view former : {kFormerIdentityKey, kFormerOriginKey, kFormerStateKey}) {
      ASSERT_TRUE(db->Delete(rocksdb::WriteOptions(), SliceOf(former)).ok());
    }
    ASSERT_TRUE(db->Flush(rocksdb::FlushOptions()).ok());
  }
  EXPECT_TRUE(HoldFormerKeys());
  OpenOrDie(TestOptions(folder_, true));
  EXPECT_FALSE(HoldFormerKeys());
  { Append(*OpenOrDie(TestOptions(folder_, true)), 2001, 4000, raft::Term(1)); }
  ExpectApart();
}

// Its range is not that of the entries before the start.
TEST_F(TablesTest, WhatALogIsSaidToBeStaysWhenItsBeginningGoes) {
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder_, true));
    Append(*storage, 1, 4000, raft::Term(1));
    const raft::EntryId end = {.index = raft::LogIndex(4000), .term = raft::Term(1)};
    WriteWithSnapshot(*storage, {.sequence = 4001, .new_start = raft::NewStart{.after = end, .snapshot = end}});
    ASSERT_TRUE(AwaitDurable(*storage, 4001));
  }
  for (int life = 0; life < 2; ++life) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder_, true));
    const raft::RestoredState restored = storage->TakeRestored();
    EXPECT_EQ(restored.start.index, raft::LogIndex(4000));
    EXPECT_EQ(restored.hard_state.term, raft::Term(1));
    EXPECT_TRUE(restored.entries.empty());
  }
  EXPECT_EQ(Format(), kFormatOfFirstBeginning);
}

}  // namespace
}  // namespace hedgerow::storage
