// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/log.h"

#include <random>

#include <gtest/gtest.h>

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

// The place that a walk over every entry finds.
LogIndex SlowTailBefore(const Log& log, LogIndex last, uint64_t max_entries, size_t max_bytes) {
  LogIndex end = last;
  size_t bytes = 0;
  for (uint64_t kept = 0; kept < max_entries && end > log.start().index; ++kept) {
    bytes += CostBytes(log.At(end));
    if (bytes > max_bytes) break;
    end = end.Previous();
  }
  return end;
}

TEST(Log, ATailIsFoundWithoutAWalkOverIt) {
  std::mt19937_64 random(1);
  Log log = LogOf({});
  for (int round = 0; round < 300; ++round) {
    for (uint64_t count = random() % 40; count > 0; --count) {
      log.Append(
          {.term = Term(1), .index = log.last_index().Next(), .payload = Payload(std::string(random() % 200, 'x'))});
    }
    const auto any = [&] {
      return log.start().index + random() % (log.last_index().value() - log.start().index.value() + 1);
    };
    for (int i = 0; i < 20; ++i) {
      const LogIndex last = any();
      const uint64_t entries = random() % 50;
      const size_t bytes = random() % 5000;
      ASSERT_EQ(log.TailBefore(last, entries, bytes), SlowTailBefore(log, last, entries, bytes));
    }
    switch (random() % 4) {
      case 0: log.CompactTo(any()); break;
      case 1: log.TruncateFrom(std::max(any(), log.first_index())); break;
      case 2:
        if (round % 20 == 0) log.RestartAfter({.index = log.last_index() + random() % 5, .term = Term(1)});
        break;
      default: break;
    }
  }
}

TEST(LogDeathTest, AGapOrAnOlderTermIsABrokenInvariant) {
  EXPECT_DEATH(LogOf({2, 1}), "broken invariant");
  Log log = LogOf({1, 2});
  EXPECT_DEATH(log.Append({.term = Term(2), .index = LogIndex(4), .payload = {}}), "broken invariant");
}

}  // namespace
}  // namespace hedgerow::raft
