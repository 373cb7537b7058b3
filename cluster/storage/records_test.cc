// SPDX-License-Identifier: Apache-2.0
//
// The records on disk, byte by byte.

#include "cluster/storage/records.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "cluster/storage/record_bytes.h"
#include "cluster/storage/storage_story.h"

namespace hedgerow::storage {
namespace {

TEST(RecordsTest, AnEntryComesBackAsItWas) {
  for (const std::string& payload : {std::string(), std::string("x"), std::string(100'000, '\0')}) {
    raft::Entry entry = TestEntry(uint64_t{1} << 40, 9, payload);
    for (const raft::EntryKind kind :
         {raft::EntryKind::kCommand, raft::EntryKind::kNoOp, raft::EntryKind::kConfiguration}) {
      entry.kind = kind;
      const std::optional<StoredEntry> back =
          ParseEntry(EntryKey(entry.index), EncodeEntry(entry, raft::Term(8)));
      ASSERT_TRUE(back.has_value());
      EXPECT_EQ(back->entry, entry);
      EXPECT_EQ(back->previous_term, raft::Term(8));
    }
  }
}

TEST(RecordsTest, TheOrderOfTheKeysIsTheOrderOfTheLog) {
  EXPECT_LT(EntryKey(raft::LogIndex(255)), EntryKey(raft::LogIndex(256)));
  EXPECT_LT(EntryKey(raft::LogIndex(1)), EntryKey(raft::LogIndex(uint64_t{1} << 63)));
  EXPECT_LT(EntryKey(raft::LogIndex(255)), StateKey(raft::LogIndex(255)));
  EXPECT_LT(StateKey(raft::LogIndex(255)), EntryKey(raft::LogIndex(256)));
  EXPECT_LT(StateKey(raft::LogIndex(~uint64_t{0})), kEntriesEnd);
  EXPECT_LT(kEntriesEnd, kFormerIdentityKey) << "a log that was converted ends before what it had";
  EXPECT_LT(kIdentityKey, kOriginKey);
  EXPECT_LT(kOriginKey, EntryKey(raft::LogIndex())) << "or it would be in every table's range";
}

TEST(RecordsTest, AStateIsToldFromAnEntryByItsKey) {
  for (const uint64_t index : {uint64_t{0}, uint64_t{'s'}, ~uint64_t{0}}) {
    EXPECT_TRUE(IsStateKey(StateKey(raft::LogIndex(index))));
    EXPECT_FALSE(IsStateKey(EntryKey(raft::LogIndex(index))));
  }
  for (const std::string_view other : {kIdentityKey, kOriginKey, kFormerStateKey}) {
    EXPECT_FALSE(IsStateKey(other));
  }
}

TEST(RecordsTest, StateAndIdentityComeBackAsTheyWere) {
  const StateRecord state = {.batch = 77,
                             .hard_state = {.term = raft::Term(5), .voted_for = raft::NodeId(3)},
                             .last_index = raft::LogIndex(12),
                             .last_term = raft::Term(4),
                             .start = {.index = raft::LogIndex(8), .term = raft::Term(2)}};
  const std::string key = StateKey(state.last_index);
  EXPECT_EQ(ParseState(key, EncodeState(key, state)), state);
  EXPECT_EQ(ParseState(kFormerStateKey, EncodeState(kFormerStateKey, state)), state) << "up to format 4";
  std::string body = EncodeState(key, state).substr(4);
  AppendNumber(body, 9, 8);
  std::string reserving;
  AppendNumber(reserving, Checksum(key, body), 4);
  const std::optional<StateRecord> after = ParseState(key, reserving + body);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->hard_state, (raft::HardState{.term = raft::Term(10)})) << "term 9 was reserved";
  const IdentityRecord identity = {.identity = {.cluster_id = uint64_t{1} << 62, .node = raft::NodeId(7)}};
  const std::optional<IdentityRecord> back =
      ParseIdentity(kIdentityKey, EncodeIdentity(kIdentityKey, identity));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->identity, identity.identity);
  EXPECT_EQ(back->format_version, kFormatVersion);
  EXPECT_EQ(back->began_with, raft::Configuration()) << "it joined";
}

TEST(RecordsTest, WhatALogBeganWithComesBackAndAnEarlierFormatSaysNothingOfIt) {
  IdentityRecord identity = {.identity = {.cluster_id = 1, .node = raft::NodeId(2)},
                             .began_with = raft::Configuration::OfVoters({raft::NodeId(2), raft::NodeId(9)})};
  identity.began_with->members[0].address = "10.0.0.2:4802";
  EXPECT_EQ(ParseIdentity(kIdentityKey, EncodeIdentity(kIdentityKey, identity))->began_with,
            identity.began_with);
  identity.format_version = 2;
  const std::optional<IdentityRecord> back =
      ParseIdentity(kFormerIdentityKey, EncodeIdentity(kFormerIdentityKey, identity));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->identity, identity.identity);
  EXPECT_FALSE(back->began_with.has_value());
}

TEST(RecordsTest, TheIdentityOfALogOfFormat2IsReadAsItWasWritten) {
  const IdentityRecord identity = {.format_version = 2,
                                   .identity = {.cluster_id = uint64_t{1} << 62, .node = raft::NodeId(7)}};
  const std::string bytes = EncodeIdentity(kFormerIdentityKey, identity);
  EXPECT_EQ(bytes, std::string("\xd8\x5b\x9c\x86\x02\0\0\0\0\0\0\0\0\0\0\x40\x07\0\0\0\0\0\0\0", 24));
  const std::optional<IdentityRecord> back = ParseIdentity(kFormerIdentityKey, bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->identity, identity.identity);
}

TEST(RecordsTest, AnOriginComesBackAsItWasAndAnyFlippedBitOfItIsSeen) {
  const Origin origin = {.epoch = 3, .beginning = ~uint64_t{0}};
  const std::string bytes = EncodeOrigin(kOriginKey, origin);
  EXPECT_EQ(ParseOrigin(kOriginKey, bytes), origin);
  EXPECT_FALSE(ParseOrigin(kFormerOriginKey, bytes).has_value());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ParseOrigin(kOriginKey, flipped).has_value()) << bit;
  }
}

TEST(RecordsTest, ALogIdComesBackAsItWasAndAnyFlippedBitOfItIsSeen) {
  const std::string bytes = EncodeLogId(0x3edc'ba98'7654'3210);
  EXPECT_EQ(ParseLogId(bytes), 0x3edc'ba98'7654'3210u);
  EXPECT_FALSE(ParseLogId(EncodeLogId(0)).has_value()) << "0 is none";
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ParseLogId(flipped).has_value()) << bit;
  }
}

TEST(RecordsTest, OfALaterFormatOnlyTheVersionIsRead) {
  const std::optional<IdentityRecord> back = ParseIdentity(
      kIdentityKey, EncodeIdentity(kIdentityKey, {.format_version = kFormatVersion + 1,
                                                  .identity = {.cluster_id = 1, .node = raft::NodeId(1)}}));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->format_version, kFormatVersion + 1);
  EXPECT_EQ(back->identity, StoredIdentity{});
}

TEST(RecordsTest, AnyFlippedBitIsSeen) {
  const raft::Entry entry = TestEntry(3, 2, "payload");
  const std::string key = EntryKey(entry.index);
  const std::string value = EncodeEntry(entry, raft::Term(1));
  for (size_t bit = 0; bit < 8 * value.size(); ++bit) {
    std::string flipped = value;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ParseEntry(key, flipped).has_value()) << bit;
  }
  const std::string state_key = StateKey(raft::LogIndex());
  const std::string state = EncodeState(state_key, {.batch = 1, .hard_state = {.term = raft::Term(2)}});
  for (size_t bit = 0; bit < 8 * state.size(); ++bit) {
    std::string flipped = state;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ParseState(state_key, flipped).has_value()) << bit;
  }
}

TEST(RecordsTest, AnEntryUnderAnothersKeyIsSeen) {
  const std::string value = EncodeEntry(TestEntry(3, 2, "payload"), raft::Term(1));
  EXPECT_FALSE(ParseEntry(EntryKey(raft::LogIndex(4)), value).has_value());
  EXPECT_FALSE(ParseEntry("e", value).has_value());
  EXPECT_FALSE(ParseEntry(StateKey(raft::LogIndex(3)), value).has_value());
}

TEST(RecordsTest, AStateUnderAnothersKeyIsSeen) {
  const StateRecord state = {.batch = 1, .last_index = raft::LogIndex(3), .last_term = raft::Term(1)};
  const std::string key = StateKey(raft::LogIndex(3));
  const std::string other = StateKey(raft::LogIndex(4));
  ASSERT_TRUE(ParseState(key, EncodeState(key, state)).has_value());
  EXPECT_FALSE(ParseState(other, EncodeState(key, state)).has_value());
  EXPECT_FALSE(ParseState(other, EncodeState(other, state)).has_value()) << "it is the end of another log";
}

TEST(RecordsTest, AnythingCutShortIsSeen) {
  const std::string key = EntryKey(raft::LogIndex(3));
  const std::string entry = EncodeEntry(TestEntry(3, 2, "payload"), raft::Term(1));
  const std::string state_key = StateKey(raft::LogIndex());
  const std::string state = EncodeState(state_key, {.batch = 1, .hard_state = {.term = raft::Term(2)}});
  const std::string identity = EncodeIdentity(kIdentityKey, {});
  for (size_t size = 0; size < entry.size(); ++size)
    EXPECT_FALSE(ParseEntry(key, entry.substr(0, size)).has_value());
  for (size_t size = 0; size < state.size(); ++size)
    EXPECT_FALSE(ParseState(state_key, state.substr(0, size)).has_value());
  for (size_t size = 0; size < identity.size(); ++size)
    EXPECT_FALSE(ParseIdentity(kIdentityKey, identity.substr(0, size)).has_value());
}

}  // namespace
}  // namespace hedgerow::storage
