// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/session_table.h"

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using SequenceStatus = SessionTable::SequenceStatus;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr SessionLimits kLimits = {.timeout_ns = 10 * kSecond, .sessions_max = 3, .answers_max = 4};

Result Said(const char* value) { return {.code = ResultCode::kOk, .session = 0, .values = {value}}; }

// A session's token tells its id, so that a test need not remember it.
SessionName Name(uint64_t id) { return {.id = id, .token = 1000 + id}; }

std::vector<Operation> Put(std::string value) {
  return {{.kind = OperationKind::kPut, .key = "k", .value = std::move(value)}};
}
RequestKey Write(uint64_t id, uint64_t seq, std::string value = "v") {
  return WriteKey(Name(id), seq, Put(std::move(value)));
}

class SessionTableTest : public testing::Test {
 protected:
  uint64_t Open(uint64_t nonce, uint64_t id, uint64_t now_ns = 0) {
    const Result* const opened = table_.Open(nonce, Name(id), now_ns);
    return opened == nullptr ? 0 : opened->session;
  }
  // Arrives, and is done if it is fresh.
  SequenceStatus Do(const RequestKey& write, uint64_t lowest, uint64_t now_ns = 0, const char* said = "x") {
    const SequenceStatus status = table_.Arrive(write, lowest, now_ns);
    if (status == SequenceStatus::kFresh) table_.Record(write, Said(said), /*wrote=*/true);
    return status;
  }

  SessionTable table_{kLimits};
};

TEST_F(SessionTableTest, DuplicatesOfAnOpenReturnTheSameSessionAndToken) {
  EXPECT_EQ(Open(77, 1), 1u);
  EXPECT_EQ(Open(77, 2), 1u);
  EXPECT_EQ(Open(78, 3), 3u);
  EXPECT_EQ(table_.OpenAnswer(77)->token, 1001u);
  EXPECT_EQ(table_.OpenAnswer(79), nullptr);
}

TEST_F(SessionTableTest, AFastCopyOfALaterSeqDoesNotHideAnEarlierOne) {
  Open(1, 1);
  ASSERT_EQ(Do(Write(1, 6), 5, 0, "six"), SequenceStatus::kFresh);
  ASSERT_EQ(Do(Write(1, 5), 5, 0, "five"), SequenceStatus::kFresh);
  EXPECT_EQ(table_.Arrive(Write(1, 6), 5, 0), SequenceStatus::kAnswered);
  EXPECT_EQ(*table_.Answer(Write(1, 6)), Said("six"));
  EXPECT_EQ(*table_.Answer(Write(1, 5)), Said("five"));
}

TEST_F(SessionTableTest, WhatIsBelowLowestIsNeverFreshAgain) {
  Open(1, 1);
  Do(Write(1, 1), 1);
  EXPECT_EQ(table_.Arrive(Write(1, 2), 2, 0), SequenceStatus::kFresh);
  EXPECT_EQ(table_.Answer(Write(1, 1)), nullptr) << "forgotten";
  EXPECT_EQ(table_.Arrive(Write(1, 1), 1, 0), SequenceStatus::kBelowLowest) << "a late copy";
  EXPECT_EQ(table_.Arrive(Write(1, 2), 1, 0), SequenceStatus::kFresh) << "lowest does not go down";
}

TEST_F(SessionTableTest, AnExpiredSessionIsUnknownAndStaysSo) {
  Open(1, 1);
  Open(2, 2);
  table_.Arrive(Write(1, 1), 1, 5 * kSecond);
  table_.Expire(12 * kSecond);
  EXPECT_EQ(table_.Arrive(Write(2, 1), 1, 12 * kSecond), SequenceStatus::kUnknown);
  EXPECT_EQ(table_.Arrive(Write(2, 1), 1, 12 * kSecond), SequenceStatus::kUnknown) << "asking does not create it";
  EXPECT_EQ(table_.Arrive(Write(1, 1), 1, 12 * kSecond), SequenceStatus::kFresh) << "it was active";
}

TEST_F(SessionTableTest, AnswersAreBounded) {
  Open(1, 1);
  for (uint64_t seq = 1; seq <= 4; ++seq) ASSERT_EQ(Do(Write(1, seq), 1), SequenceStatus::kFresh);
  EXPECT_EQ(table_.Arrive(Write(1, 5), 1, 0), SequenceStatus::kFull);
  EXPECT_EQ(table_.Arrive(Write(1, 5), 2, 0), SequenceStatus::kFresh) << "one answer was given up";
}

TEST_F(SessionTableTest, UnderAnotherTokenASessionDoesNotExist) {
  Open(1, 1);
  Do(Write(1, 1), 1);
  const uint64_t content = table_.content();
  for (const uint64_t token : {uint64_t{0}, uint64_t{1000}, uint64_t{1001} << 32, ~uint64_t{1001}}) {
    const SessionName forged{.id = 1, .token = token};
    for (const RequestKey& key : {WriteKey(forged, 1, Put("v")), WriteKey(forged, 2, {}),
                                  CancelKey(WriteKey(forged, 2, {})), CancelKey(WriteKey(forged, 1, {}))}) {
      EXPECT_EQ(table_.Arrive(key, UINT64_MAX, 11 * kSecond), SequenceStatus::kUnknown);
      EXPECT_EQ(table_.Answer(key), nullptr);
    }
  }
  EXPECT_EQ(table_.content(), content) << "nothing of it has changed";
  EXPECT_EQ(Do(Write(1, 2), 1), SequenceStatus::kFresh);
  table_.Expire(10 * kSecond);
  EXPECT_EQ(table_.size(), 0u) << "nor did it live on";
}

TEST_F(SessionTableTest, AnotherRequestUnderTheSameSeqIsAMismatchAndDestroysNothing) {
  Open(1, 1);
  Do(Write(1, 1, "first"), 1, 0, "one");
  const uint64_t content = table_.content();
  for (const RequestKey& other : {Write(1, 1, "second"), WriteKey(Name(1), 1, {})}) {
    EXPECT_EQ(table_.Arrive(other, 1, 0), SequenceStatus::kAnswered);
    EXPECT_EQ(table_.Answer(other)->code, ResultCode::kMismatch);
  }
  EXPECT_EQ(*table_.Answer(Write(1, 1, "first")), Said("one"));
  EXPECT_EQ(table_.content(), content);
}

TEST_F(SessionTableTest, ACancelIsAnsweredAsItsWriteWasAndIsAMismatchToOneThatComesLater) {
  Open(1, 1);
  Do(Write(1, 1), 1, 0, "one");
  EXPECT_EQ(*table_.Answer(CancelKey(Write(1, 1))), Said("one"));
  const RequestKey cancel = CancelKey(Write(1, 2));
  ASSERT_EQ(table_.Arrive(cancel, 1, 0), SequenceStatus::kFresh);
  table_.Record(cancel, {}, /*wrote=*/false);
  EXPECT_EQ(*table_.Answer(cancel), Result());
  EXPECT_EQ(table_.Arrive(Write(1, 2), 1, 0), SequenceStatus::kAnswered);
  EXPECT_EQ(table_.Answer(Write(1, 2))->code, ResultCode::kMismatch);
}

TEST_F(SessionTableTest, AFullTableMakesRoomByTheSessionThatNeverWroteAndIsIdleTheLongest) {
  Open(1, 1, 0);
  Open(2, 2, 1);
  Open(3, 3, 2);
  Do(Write(1, 1), 1, 3);
  table_.Arrive(WriteKey(Name(2), 1, {}), 1, 4);  // kept alive, and nothing done in it
  EXPECT_EQ(Open(4, 4, 5), 4u);
  EXPECT_EQ(table_.Arrive(Write(3, 1), 1, 5), SequenceStatus::kUnknown);
  EXPECT_EQ(Open(5, 5, 6), 5u);
  EXPECT_EQ(table_.Arrive(Write(2, 1), 1, 6), SequenceStatus::kUnknown);
  EXPECT_EQ(table_.evicted(), 2u);
  EXPECT_EQ(table_.size(), 3u);
  EXPECT_EQ(table_.Arrive(Write(1, 2), 1, 6), SequenceStatus::kFresh) << "it wrote";
}

TEST_F(SessionTableTest, SessionsThatWroteEndForNoOther) {
  for (uint64_t id = 1; id <= 3; ++id) {
    Open(id, id);
    Do(Write(id, 1), 1);
  }
  EXPECT_EQ(Open(4, 4, 9 * kSecond), 0u);
  EXPECT_EQ(table_.evicted(), 0u);
  table_.Expire(10 * kSecond);
  EXPECT_EQ(Open(4, 4, 10 * kSecond), 4u);
}

// Which one makes room must not depend on how a replica came by its table.
TEST_F(SessionTableTest, OfTheSameCommittedTimeTheLeastIdMakesRoomAlsoAfterARestore) {
  SessionTable restored(kLimits);
  for (const uint64_t id : {9, 3, 6}) Open(id, id, 5);
  for (const uint64_t id : {6, 9, 3}) {
    ASSERT_TRUE(restored.Restore({.name = Name(id), .nonce = id, .active_ns = 5}, {}));
  }
  restored.FinishRestore();
  EXPECT_EQ(restored.content(), table_.content());
  for (SessionTable* table : {&table_, &restored}) {
    ASSERT_NE(table->Open(4, Name(4), 5), nullptr);
    EXPECT_EQ(table->Arrive(Write(3, 1), 1, 5), SequenceStatus::kUnknown);
  }
  EXPECT_EQ(restored.content(), table_.content());
}

TEST_F(SessionTableTest, AnIdThatIsTakenOpensNothing) {
  Open(1, 1);
  EXPECT_EQ(Open(2, 1), 0u);
  EXPECT_EQ(Open(2, 0), 0u);
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(SessionTableTest, ALowerMaximumEndsOneSessionForEachOpenAndThenTakesIt) {
  for (uint64_t id = 1; id <= 3; ++id) Open(id, id);
  table_.SetLimits({.timeout_ns = 10 * kSecond, .sessions_max = 2, .answers_max = 4});
  EXPECT_EQ(Open(4, 4), 0u);
  EXPECT_EQ(table_.size(), 2u);
  EXPECT_EQ(Open(4, 4), 4u);
  EXPECT_EQ(table_.size(), 2u);
}

}  // namespace
}  // namespace hedgerow::kv
