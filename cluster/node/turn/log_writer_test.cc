// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/turn/log_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kNow_ns = 7'000'000'000;

class LogWriterTest : public testing::Test {
 protected:
  LogWriterTest()
      : storage_(storage::OpenOrDie(storage::TestOptions(folder_, /*sync=*/false))),
        writer_([this](raft::Persist persist) { storage_->Write(std::move(persist)); }) {
    raft::Persist term{.sequence = 1};
    term.hard_state = raft::HardState{.term = raft::Term(1)};
    writer_.Write(std::move(term));
  }

  // One entry.
  static raft::Persist Entry(uint64_t sequence, uint64_t index) {
    raft::Persist persist{.sequence = sequence};
    persist.entries.push_back(storage::TestEntry(index, 1, "x"));
    return persist;
  }
  std::vector<raft::Entry> Restored() {
    storage_.reset();
    storage_ = storage::OpenOrDie(storage::TestOptions(folder_, /*sync=*/false));
    return storage_->TakeRestored().entries;
  }

  storage::TestFolder folder_;
  std::unique_ptr<storage::LogStorage> storage_;
  LogWriter writer_;
};

raft::Configuration Members(size_t count, uint32_t voters, uint32_t next_voters = 0) {
  std::vector<raft::NodeId> ids;
  for (size_t i = 0; i < count; ++i) ids.emplace_back(i + 1);
  raft::Configuration configuration = raft::Configuration::OfVoters(ids);
  configuration.voters = voters;
  configuration.next_voters = next_voters;
  return configuration;
}

TEST(OthersDecide, IfTheyAreAMajorityWithoutThisNode) {
  EXPECT_FALSE(LogWriter::OthersDecide(Members(1, 0b1), 0)) << "alone";
  EXPECT_FALSE(LogWriter::OthersDecide(Members(2, 0b11), 0)) << "one of two";
  EXPECT_TRUE(LogWriter::OthersDecide(Members(3, 0b111), 0));
  EXPECT_TRUE(LogWriter::OthersDecide(Members(8, 0b11111111), 7));
}

TEST(OthersDecide, LearnersDoNot) {
  EXPECT_FALSE(LogWriter::OthersDecide(Members(3, 0b001), 0)) << "a voter and two learners";
  EXPECT_FALSE(LogWriter::OthersDecide(Members(4, 0b0011), 0));
  EXPECT_TRUE(LogWriter::OthersDecide(Members(4, 0b0111), 0));
}

TEST(OthersDecide, InBothOfTwoJointConfigurations) {
  EXPECT_FALSE(LogWriter::OthersDecide(Members(4, 0b0111, 0b1001), 0)) << "the next ones are two, and this is one";
  EXPECT_FALSE(LogWriter::OthersDecide(Members(4, 0b0011, 0b1101), 0)) << "the old ones were";
  EXPECT_TRUE(LogWriter::OthersDecide(Members(4, 0b0111, 0b1101), 0));
}

TEST(OthersDecide, AlwaysWhereThisNodeDecidesNothing) {
  EXPECT_TRUE(LogWriter::OthersDecide(Members(3, 0b110), 0)) << "it leads until it is known that it has left";
  EXPECT_TRUE(LogWriter::OthersDecide(Members(2, 0b11), raft::Configuration::kNoSlot));
}

TEST_F(LogWriterTest, OnlyEntriesAloneCanWait) {
  EXPECT_TRUE(LogWriter::CanBeHeld(Entry(2, 1)));
  EXPECT_FALSE(LogWriter::CanBeHeld({.sequence = 2}));
  raft::Persist vote = Entry(2, 1);
  vote.hard_state = raft::HardState{.term = raft::Term(2)};
  EXPECT_FALSE(LogWriter::CanBeHeld(vote));
  raft::Persist cut = Entry(2, 1);
  cut.truncate_from = raft::LogIndex(1);
  EXPECT_FALSE(LogWriter::CanBeHeld(cut));
  raft::Persist start = Entry(2, 1);
  start.new_start.emplace();
  EXPECT_FALSE(LogWriter::CanBeHeld(start));
}

TEST_F(LogWriterTest, WhatIsHeldIsNotDurableAndIsWrittenAsOne) {
  writer_.Hold(Entry(2, 1), kNow_ns);
  writer_.Hold(Entry(3, 2), kNow_ns);
  EXPECT_TRUE(writer_.holds());
  EXPECT_EQ(storage_->TakeDurable(), 1u);
  const uint64_t batches = storage_->statistics().batches;
  writer_.WriteHeld();
  EXPECT_FALSE(writer_.holds());
  EXPECT_EQ(storage_->TakeDurable(), 3u);
  EXPECT_EQ(storage_->statistics().batches, batches + 1);
  EXPECT_EQ(Restored().size(), 2u);
}

TEST_F(LogWriterTest, WhatCannotWaitComesAfterWhatIsHeld) {
  writer_.Hold(Entry(2, 1), kNow_ns);
  raft::Persist replaced = Entry(3, 1);
  replaced.truncate_from = raft::LogIndex(1);
  replaced.entries.front() = storage::TestEntry(1, 1, "another");
  writer_.Write(std::move(replaced));
  EXPECT_EQ(storage_->TakeDurable(), 3u);
  const std::vector<raft::Entry> entries = Restored();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries.front().payload.view(), "another");
}

TEST_F(LogWriterTest, IsDueOnceAnAnswerMayWaitForItOrItIsMuchOrOld) {
  EXPECT_FALSE(writer_.Due(kNow_ns, raft::LogIndex()));
  writer_.Hold(Entry(2, 1), kNow_ns);
  EXPECT_TRUE(writer_.Due(kNow_ns, raft::LogIndex())) << "it is not committed yet";
  EXPECT_FALSE(writer_.Due(kNow_ns, raft::LogIndex(1)));
  EXPECT_TRUE(writer_.Due(kNow_ns + LogWriter::kHeldMax_ns, raft::LogIndex(1)));
  for (uint64_t index = 2; index <= LogWriter::kHeldMax_entries; ++index)
    writer_.Hold(Entry(index + 1, index), kNow_ns);
  EXPECT_TRUE(writer_.Due(kNow_ns, raft::LogIndex(1000)));
}

}  // namespace
}  // namespace hedgerow::node
