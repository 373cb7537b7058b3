// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/log.h"

#include <gtest/gtest.h>

#include "cluster/raft/check.h"

namespace hedgerow::raft {
namespace {

Log LogOf(const std::vector<uint64_t>& terms, size_t payload_bytes = 0) {
  std::vector<Entry> entries;
  for (const uint64_t term : terms) {
    entries.push_back({.term = Term(term),
                       .index = LogIndex(entries.size() + 1),
                       .payload = Payload(std::string(payload_bytes, 'x'))});
  }
  return Log(std::move(entries));
}

TEST(Log, IndexZeroIsThereWithTermZero) {
  const Log log({});
  EXPECT_TRUE(log.Has(LogIndex()));
  EXPECT_EQ(log.TermAt(LogIndex()), Term());
  EXPECT_EQ(log.last_index(), LogIndex());
}

TEST(Log, FindsTheEndsOfTerms) {
  const Log log = LogOf({1, 1, 3, 3, 3, 6});
  EXPECT_EQ(log.FirstOfTermAt(LogIndex(5)), LogIndex(3));
  EXPECT_EQ(log.FirstOfTermAt(LogIndex(2)), LogIndex(1));
  EXPECT_EQ(log.LastUpToTerm(Term(3)), LogIndex(5));
  EXPECT_EQ(log.LastUpToTerm(Term(2)), LogIndex(2));
  EXPECT_EQ(log.LastUpToTerm(Term(0)), LogIndex());
}

TEST(Log, ASliceHasAtLeastOneEntryAndKeepsItsBounds) {
  const Log log = LogOf({1, 1, 1, 1}, 100);
  EXPECT_EQ(log.Slice(LogIndex(1), 10, 1).size(), 1u);
  EXPECT_EQ(log.Slice(LogIndex(1), 10, 250).size(), 2u);
  EXPECT_EQ(log.Slice(LogIndex(2), 2, 10'000).size(), 2u);
  EXPECT_TRUE(log.Slice(LogIndex(5), 2, 10'000).empty());
}

TEST(Log, AfterItsStartItGoesOnWithTheSameIndices) {
  Log log = LogOf({1, 1, 3, 3, 3, 6});
  log.CompactTo(LogIndex(4));
  EXPECT_EQ(log.start(), (EntryId{.index = LogIndex(4), .term = Term(3)}));
  EXPECT_EQ(log.last_index(), LogIndex(6));
  EXPECT_FALSE(log.Has(LogIndex(3)));
  EXPECT_EQ(log.TermAt(LogIndex(4)), Term(3));
  EXPECT_EQ(log.At(LogIndex(5)).term, Term(3));
  EXPECT_EQ(log.FirstOfTermAt(LogIndex(5)), LogIndex(5));
  EXPECT_EQ(log.LastUpToTerm(Term(3)), LogIndex(5));
  EXPECT_EQ(log.LastUpToTerm(Term(1)), LogIndex(4)) << "nothing is known before it";
  EXPECT_EQ(log.Slice(LogIndex(5), 10, 10'000).size(), 2u);
  for (uint64_t index = 7; index <= 20; ++index) log.Append({.term = Term(6), .index = LogIndex(index)});
  EXPECT_EQ(log.At(LogIndex(6)).term, Term(6));
  EXPECT_EQ(log.At(LogIndex(20)).index, LogIndex(20));
  log.TruncateFrom(LogIndex(6));
  EXPECT_EQ(log.last_index(), LogIndex(5));
  log.CompactTo(LogIndex(5));
  EXPECT_EQ(log.last_term(), Term(3));
  log.RestartAfter({.index = LogIndex(90), .term = Term(7)});
  EXPECT_EQ(log.last_index(), LogIndex(90));
  EXPECT_EQ(log.last_term(), Term(7));
  log.Append({.term = Term(8), .index = LogIndex(91)});
  EXPECT_EQ(log.At(LogIndex(91)).term, Term(8));
}

TEST(LogDeathTest, AGapOrAnOlderTermIsABrokenInvariant) {
  EXPECT_DEATH(LogOf({2, 1}), "broken invariant");
  Log log = LogOf({1, 2});
  EXPECT_DEATH(log.Append({.term = Term(2), .index = LogIndex(4), .payload = {}}), "broken invariant");
}

}  // namespace
}  // namespace hedgerow::raft
