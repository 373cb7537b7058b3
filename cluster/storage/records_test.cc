// SPDX-License-Identifier: Apache-2.0
//
// The records on disk, byte by byte, and what a log's tail makes of persists.

#include "cluster/storage/records.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/storage/log_tail.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

constexpr uint64_t kSalt = 0x1122'3344'5566'7788;

std::string Sealed(const StateRecord& state, raft::Term before, const std::vector<raft::Entry>& entries,
                   uint64_t salt = kSalt) {
  RecordBuilder builder;
  for (const raft::Entry& entry : entries) builder.Append(entry);
  std::string record = builder.Finish(state, before);
  SealRecord(record, salt);
  return record;
}

const StateRecord kState = {.batch = 77,
                            .hard_state = {.term = raft::Term(9), .voted_for = raft::NodeId(3)},
                            .last_index = raft::LogIndex(uint64_t{1} << 40),
                            .last_term = raft::Term(9),
                            .start = {.index = raft::LogIndex(8), .term = raft::Term(2)}};

TEST(RecordsTest, ABatchComesBackAsItWas) {
  for (const size_t size : {0, 1, 7, 8, 100'000}) {
    std::vector<raft::Entry> entries;
    for (const raft::EntryKind kind :
         {raft::EntryKind::kCommand, raft::EntryKind::kNoOp, raft::EntryKind::kConfiguration}) {
      entries.push_back(
          TestEntry((uint64_t{1} << 40) - 2 + entries.size(), 7 + entries.size(), std::string(size, '\0')));
      entries.back().kind = kind;
    }
    const std::string record = Sealed(kState, raft::Term(6), entries);
    EXPECT_EQ(record.size() % kRecordAlign_bytes, 0u);
    ASSERT_EQ(RecordSize(record + "more", kSalt, 77), record.size());
    const std::optional<BatchRecord> back = ParseBatch(record);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->state, kState);
    EXPECT_EQ(back->entries, entries);
    EXPECT_EQ(back->term_before, raft::Term(6));
    EXPECT_EQ(ParseState(record), kState);
  }
}

TEST(RecordsTest, AnyFlippedBitIsSeen) {
  StateRecord state = kState;
  const std::string record = Sealed(state, raft::Term(1), {TestEntry(uint64_t{1} << 40, 9, "payload")});
  ASSERT_EQ(record.size(), kRecordMin_bytes + 4 + 1 + 8 + 7 + 4) << "4 bytes of filling, which carry nothing";
  ASSERT_EQ(ParseBatch(record)->state, state);
  for (size_t bit = 0; bit < 8 * (record.size() - 4); ++bit) {
    std::string flipped = record;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(RecordSize(flipped, kSalt, BatchNumber(flipped)), 0u) << bit;
  }
  for (size_t size = 0; size < record.size(); ++size)
    EXPECT_EQ(RecordSize(std::string_view(record).substr(0, size), kSalt, 77), 0u);
}

// The bytes of an earlier use of the file, also with the very number that comes next.
TEST(RecordsTest, ARecordOfAnotherUseOfItsFileIsNotRead) {
  const std::string record = Sealed(kState, raft::Term(1), {});
  EXPECT_GT(RecordSize(record, kSalt, 77), 0u);
  EXPECT_EQ(RecordSize(record, kSalt + 1, 77), 0u);
  EXPECT_EQ(RecordSize(record, kSalt, 78), 0u);
}

TEST(RecordsTest, ALogHeaderComesBackAsItWasAndAnyFlippedBitOfItIsSeen) {
  LogHeader header = {.identity = {.cluster_id = uint64_t{1} << 62, .node = raft::NodeId(7)},
                      .copy_id = 0x3edc'ba98'7654'3210,
                      .generation = {.epoch = 3, .nonce = ~uint64_t{0}},
                      .began_with = raft::Configuration::OfVoters({raft::NodeId(2), raft::NodeId(9)})};
  header.began_with.members[0].address = "10.0.0.2:4802";
  const std::string bytes = EncodeLogHeader(header);
  const std::optional<LogHeader> back = ParseLogHeader(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->format_version, kFormatVersion);
  EXPECT_EQ(back->identity, header.identity);
  EXPECT_EQ(back->copy_id, header.copy_id);
  EXPECT_EQ(back->generation, header.generation);
  EXPECT_EQ(back->began_with, header.began_with);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ParseLogHeader(flipped).has_value()) << bit;
  }
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(ParseLogHeader(std::string_view(bytes).substr(0, size)).has_value());
  header.copy_id = 0;
  EXPECT_FALSE(ParseLogHeader(EncodeLogHeader(header)).has_value()) << "0 is none";
}

TEST(RecordsTest, OfALaterFormatOnlyTheVersionIsRead) {
  const std::optional<LogHeader> back = ParseLogHeader(EncodeLogHeader(
      {.format_version = kFormatVersion + 1, .identity = {.cluster_id = 1, .node = raft::NodeId(1)}, .copy_id = 5}));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->format_version, kFormatVersion + 1);
  EXPECT_EQ(back->copy_id, 0u);
}

// Two persists of one batch, of which the second takes back what the first has appended.
TEST(LogTailTest, ABatchHoldsWhatIsLeftOfItsPersists) {
  LogTail tail;
  tail.Apply({.sequence = 1,
              .hard_state = raft::HardState{.term = raft::Term(2)},
              .entries = {TestEntry(1, 1, "a"), TestEntry(2, 1, "b"), TestEntry(3, 2, "c")}});
  std::optional<BatchRecord> batch = ParseBatch(tail.Finish());
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->first(), raft::LogIndex(1));
  EXPECT_EQ(batch->term_before, raft::Term());

  tail.Apply({.sequence = 2, .entries = {TestEntry(4, 2, "d"), TestEntry(5, 2, "e")}});
  tail.Apply({.sequence = 3,
              .hard_state = raft::HardState{.term = raft::Term(3)},
              .truncate_from = raft::LogIndex(3),
              .entries = {TestEntry(3, 3, "f")}});
  batch = ParseBatch(tail.Finish());
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->state.batch, 2u);
  EXPECT_EQ(batch->first(), raft::LogIndex(3));
  EXPECT_EQ(batch->entries, std::vector<raft::Entry>{TestEntry(3, 3, "f")});
  EXPECT_EQ(batch->term_before, raft::Term(1));
  EXPECT_EQ(batch->state.hard_state.term, raft::Term(3));

  tail.Apply({.sequence = 4, .truncate_from = raft::LogIndex(2)});
  batch = ParseBatch(tail.Finish());
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(batch->entries.empty());
  EXPECT_EQ(batch->state.last_index, raft::LogIndex(1));
  EXPECT_EQ(batch->state.last_term, raft::Term(1));

  const raft::EntryId start = {.index = raft::LogIndex(50), .term = raft::Term(3)};
  tail.Apply({.sequence = 5, .new_start = raft::NewStart{.after = start, .snapshot = start, .empties = true}});
  batch = ParseBatch(tail.Finish());
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->state.start, start);
  EXPECT_EQ(batch->first(), raft::LogIndex(51));
  EXPECT_EQ(batch->term_before, raft::Term(3));
}

}  // namespace
}  // namespace hedgerow::storage
