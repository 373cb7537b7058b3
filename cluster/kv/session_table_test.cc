// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/session_table.h"

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using SequenceStatus = SessionTable::SequenceStatus;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr SessionLimits kLimits = {.timeout_ns = 10 * kSecond, .sessions_max = 3, .answers_max = 4};

Result Said(const char* value) { return {.code = ResultCode::kOk, .session = 0, .values = {value}}; }

TEST(SessionTable, DuplicatesOfAnOpenReturnTheSameSession) {
  SessionTable table(kLimits);
  EXPECT_EQ(table.Open(77, 1, 0), 1u);
  EXPECT_EQ(table.Open(77, 2, 0), 1u);
  EXPECT_EQ(table.Open(78, 3, 0), 3u);
}

TEST(SessionTable, AFastCopyOfALaterSeqDoesNotHideAnEarlierOne) {
  SessionTable table(kLimits);
  table.Open(1, 1, 0);
  ASSERT_EQ(table.Arrive(1, 6, 5, 0), SequenceStatus::kFresh);
  table.Record(1, 6, Said("six"));
  ASSERT_EQ(table.Arrive(1, 5, 5, 0), SequenceStatus::kFresh);
  table.Record(1, 5, Said("five"));
  EXPECT_EQ(table.Arrive(1, 6, 5, 0), SequenceStatus::kAnswered);
  EXPECT_EQ(*table.Answer(1, 6), Said("six"));
  EXPECT_EQ(*table.Answer(1, 5), Said("five"));
}

TEST(SessionTable, WhatIsBelowLowestIsNeverFreshAgain) {
  SessionTable table(kLimits);
  table.Open(1, 1, 0);
  table.Arrive(1, 1, 1, 0);
  table.Record(1, 1, Said("one"));
  EXPECT_EQ(table.Arrive(1, 2, 2, 0), SequenceStatus::kFresh);
  EXPECT_EQ(table.Answer(1, 1), nullptr) << "forgotten";
  EXPECT_EQ(table.Arrive(1, 1, 1, 0), SequenceStatus::kBelowLowest) << "a late copy";
  EXPECT_EQ(table.Arrive(1, 2, 1, 0), SequenceStatus::kFresh) << "lowest does not go down";
}

TEST(SessionTable, AnExpiredSessionIsUnknownAndStaysSo) {
  SessionTable table(kLimits);
  table.Open(1, 1, 0);
  table.Open(2, 2, 0);
  table.Arrive(1, 1, 1, 5 * kSecond);
  table.Expire(12 * kSecond);
  EXPECT_EQ(table.Arrive(2, 1, 1, 12 * kSecond), SequenceStatus::kUnknown);
  EXPECT_EQ(table.Arrive(2, 1, 1, 12 * kSecond), SequenceStatus::kUnknown) << "asking does not create it";
  EXPECT_EQ(table.Arrive(1, 1, 1, 12 * kSecond), SequenceStatus::kFresh) << "it was active";
}

TEST(SessionTable, BoundsAreErrorsNotEvictions) {
  SessionTable table(kLimits);
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(table.Open(id, id, 0), id);
  EXPECT_EQ(table.Open(4, 4, 0), 0u);
  for (uint64_t seq = 1; seq <= 4; ++seq) {
    ASSERT_EQ(table.Arrive(1, seq, 1, 0), SequenceStatus::kFresh);
    table.Record(1, seq, Said("x"));
  }
  EXPECT_EQ(table.Arrive(1, 5, 1, 0), SequenceStatus::kFull);
  EXPECT_EQ(table.Arrive(1, 5, 2, 0), SequenceStatus::kFresh) << "one answer was given up";
}

}  // namespace
}  // namespace hedgerow::kv
