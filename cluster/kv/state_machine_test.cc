// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using testing::ElementsAre;
constexpr uint64_t kSecond = 1'000'000'000;

Operation Put(std::string key, std::string value) {
  return {.kind = OperationKind::kPut, .key = std::move(key), .value = std::move(value), .expected = {}, .delta = 0};
}
Operation Increment(std::string key, int64_t delta) {
  return {.kind = OperationKind::kIncrement, .key = std::move(key), .value = {}, .expected = {}, .delta = delta};
}
Operation CompareAndSet(std::string key, std::optional<std::string> expected, std::string value) {
  return {.kind = OperationKind::kCompareAndSet,
          .key = std::move(key),
          .value = std::move(value),
          .expected = std::move(expected),
          .delta = 0};
}
Operation Delete(std::string key) {
  return {.kind = OperationKind::kDelete, .key = std::move(key), .value = {}, .expected = {}, .delta = 0};
}

constexpr SessionName kSession{.id = 0x1111, .token = 0x2222};

class StateMachineTest : public testing::Test {
 protected:
  StateMachineTest() {
    const Result opened = state_.Apply(1, {.key = {.kind = CommandKind::kOpen, .a = 99}, .session = kSession});
    EXPECT_EQ(opened.session, kSession.id);
    EXPECT_EQ(opened.token, kSession.token);
    state_.Apply(++index_,
                 {.key = {.kind = CommandKind::kSettings}, .settings = {{Setting::kSessionTimeout, 60 * kSecond}}});
  }
  Result Apply(const RequestKey& key, std::vector<Operation> operations, uint64_t elapsed_ns = 0, uint64_t lowest = 1) {
    return state_.Apply(
        ++index_,
        {.key = key, .lowest_unanswered = lowest, .elapsed_ns = elapsed_ns, .operations = std::move(operations)});
  }
  Result Write(uint64_t seq, std::vector<Operation> operations, uint64_t elapsed_ns = 0) {
    const RequestKey key = WriteKey(kSession, seq, operations);
    return Apply(key, std::move(operations), elapsed_ns);
  }
  Result Windowed(uint64_t nonce, std::vector<Operation> operations, uint64_t elapsed_ns = 0) {
    const RequestKey key = OnceKey(nonce, operations);
    return Apply(key, std::move(operations), elapsed_ns);
  }
  StateMachine state_;
  uint64_t index_ = 1;
};

// A copy that lay before a machine that stood still, until its request was forgotten and overwritten.
TEST_F(StateMachineTest, WhatCameLongAgoWithoutASessionIsNotDone) {
  const auto write = [this](uint64_t nonce, const std::string& value, uint64_t came_ns, uint64_t elapsed_ns) {
    const std::vector<Operation> operations = {Put("k", value)};
    return state_.Apply(
        ++index_,
        {.key = OnceKey(nonce, operations), .came_ns = came_ns, .elapsed_ns = elapsed_ns, .operations = operations});
  };
  const auto set = [this](uint64_t id, const std::string& value, uint64_t came_ns, uint64_t elapsed_ns) {
    return state_.Apply(++index_, {.key = {.kind = CommandKind::kMemcached, .a = 1, .c = 2, .d = id},
                                   .came_ns = came_ns,
                                   .elapsed_ns = elapsed_ns,
                                   .item = {.verb = ItemVerb::kSet, .key = "k", .value = value},
                                   .age_ns = 0});
  };
  const auto tick = [this](uint64_t elapsed_ns) {
    state_.Apply(++index_, {.key = {.kind = CommandKind::kTick}, .elapsed_ns = elapsed_ns});
  };
  tick(kSecond);
  EXPECT_EQ(write(1, "old", kSecond, 0).code, ResultCode::kOk);
  EXPECT_EQ(set(1, "old", kSecond, 0).code, ResultCode::kOk);
  EXPECT_TRUE(state_.waits_for_time());
  EXPECT_EQ(write(1, "old", kSecond, kSecond).code, ResultCode::kOk) << "known";
  for (int second = 0; second < 80; ++second) tick(kSecond);
  EXPECT_FALSE(state_.waits_for_time());
  const uint64_t now_ns = state_.committed_time_ns();
  // An idle hour has no ticks, and what comes then is new.
  EXPECT_EQ(write(2, "new", now_ns, 3600 * kSecond).code, ResultCode::kOk);
  EXPECT_EQ(set(2, "new", state_.committed_time_ns(), 0).code, ResultCode::kOk);
  EXPECT_EQ(write(1, "old", kSecond, 0).code, ResultCode::kSuperseded);
  EXPECT_EQ(set(1, "old", kSecond, 0).code, ResultCode::kSuperseded);
  EXPECT_EQ(state_.Get("k"), "new");
  EXPECT_EQ(state_.FindItem("k")->value, "new");
  // As long as it may be held.
  const uint64_t later_ns = state_.committed_time_ns();
  EXPECT_EQ(write(3, "3", later_ns, kCopyAgeMax_ns).code, ResultCode::kOk);
  EXPECT_EQ(write(4, "4", later_ns, 1).code, ResultCode::kSuperseded);
  EXPECT_EQ(write(5, "5", 0, 0).code, ResultCode::kOk) << "of an earlier program, which does not say it";
}

TEST_F(StateMachineTest, DoesWhatTheOperationsSay) {
  EXPECT_EQ(Write(1, {Put("a", "x")}).code, ResultCode::kOk);
  EXPECT_EQ(state_.Get("a"), "x");
  EXPECT_THAT(Write(2, {Increment("n", 5)}).values, ElementsAre("5"));
  EXPECT_THAT(Write(3, {Increment("n", -7)}).values, ElementsAre("-2"));
  EXPECT_EQ(Write(4, {CompareAndSet("a", "y", "z")}).code, ResultCode::kMismatch);
  EXPECT_EQ(Write(5, {CompareAndSet("a", "x", "z")}).code, ResultCode::kOk);
  EXPECT_EQ(Write(6, {CompareAndSet("new", std::nullopt, "1")}).code, ResultCode::kOk);
  EXPECT_EQ(Write(7, {Delete("a")}).code, ResultCode::kOk);
  EXPECT_EQ(state_.Get("a"), std::nullopt);
  EXPECT_EQ(Write(8, {Put("s", "text"), Increment("s", 1)}).code, ResultCode::kNotANumber);
  EXPECT_EQ(Write(9, {Put("m", "9223372036854775807"), Increment("m", 1)}).code, ResultCode::kNotANumber);
}

TEST_F(StateMachineTest, SeveralKeysChangeTogetherOrNotAtAll) {
  EXPECT_EQ(Write(1, {Put("a", "1"), Put("b", "1"), CompareAndSet("c", "absent", "1")}).code, ResultCode::kMismatch);
  EXPECT_EQ(state_.Get("a"), std::nullopt);
  EXPECT_THAT(Write(2, {Increment("a", 1), Increment("a", 1)}).values, ElementsAre("1", "2"));
}

TEST_F(StateMachineTest, ADuplicateIsAnsweredAndNotApplied) {
  EXPECT_THAT(Write(1, {Increment("n", 1)}).values, ElementsAre("1"));
  EXPECT_THAT(Write(1, {Increment("n", 1)}).values, ElementsAre("1"));
  EXPECT_EQ(state_.Get("n"), "1");
  EXPECT_EQ(state_.Known(WriteKey(kSession, 1, {Increment("n", 1)}))->values[0], "1");
  EXPECT_FALSE(state_.Known(WriteKey(kSession, 2, {Increment("n", 1)})).has_value());
}

// Any program that reaches a node may send this; only the client has the token.
TEST_F(StateMachineTest, UnderAnotherClientsSessionNothingIsDoneAndNothingIsTold) {
  EXPECT_THAT(Write(1, {Increment("secret", 4242)}).values, ElementsAre("4242"));
  const uint64_t before = state_.fingerprint();
  for (const SessionName& forged : {SessionName{.id = kSession.id}, SessionName{.id = kSession.id, .token = 0x2223},
                                    SessionName{.id = 0x1112, .token = kSession.token}}) {
    for (const uint64_t seq : {1, 2, 3, 1'000'000}) {
      for (const std::vector<Operation>& operations : {std::vector<Operation>{}, {Increment("secret", 4242)}}) {
        const RequestKey key = WriteKey(forged, seq, operations);
        EXPECT_FALSE(state_.Known(key).has_value());
        EXPECT_EQ(Apply(key, operations, 0, UINT64_MAX), Result{.code = ResultCode::kUnknownSession});
        EXPECT_EQ(Apply(CancelKey(key), {}, 0, UINT64_MAX), Result{.code = ResultCode::kUnknownSession});
      }
    }
  }
  EXPECT_EQ(state_.fingerprint(), before);
  EXPECT_THAT(Write(2, {Increment("secret", 1)}).values, ElementsAre("4243"));
}

TEST_F(StateMachineTest, AnotherRequestUnderAUsedNumberIsNotDoneAndNeverOk) {
  Write(1, {Put("k", "1")});
  EXPECT_EQ(Write(1, {Put("k", "2")}).code, ResultCode::kMismatch);
  EXPECT_EQ(Write(1, {}).code, ResultCode::kMismatch);
  EXPECT_EQ(state_.Known(WriteKey(kSession, 1, {Put("k", "2")}))->code, ResultCode::kMismatch) << "any node knows";
  EXPECT_EQ(state_.Get("k"), "1");
  EXPECT_EQ(Write(1, {Put("k", "1")}).code, ResultCode::kOk) << "the first one's answer is there";
  EXPECT_EQ(Write(2, {}).code, ResultCode::kOk);
  EXPECT_EQ(Write(2, {Put("k", "3")}).code, ResultCode::kMismatch) << "acknowledged it would be lost";
  EXPECT_EQ(state_.Get("k"), "1");
  Windowed(7, {Put("w", "1")});
  EXPECT_EQ(Windowed(7, {Put("w", "2")}).code, ResultCode::kMismatch);
  EXPECT_EQ(state_.Get("w"), "1");
  EXPECT_EQ(Windowed(7, {Put("w", "1")}).code, ResultCode::kOk);
}

TEST_F(StateMachineTest, AWriteThatIsCancelledFirstIsNeverDone) {
  const RequestKey late = WriteKey(kSession, 1, {Increment("n", 1)});
  EXPECT_EQ(Apply(CancelKey(late), {}), Result());
  EXPECT_EQ(Apply(late, {Increment("n", 1)}).code, ResultCode::kMismatch);
  EXPECT_EQ(Apply(CancelKey(late), {}), Result());
  const RequestKey once = OnceKey(8, {Increment("n", 1)});
  EXPECT_EQ(Apply(CancelKey(once), {}), Result());
  EXPECT_EQ(Apply(once, {Increment("n", 1)}).code, ResultCode::kMismatch);
  EXPECT_EQ(state_.Get("n"), std::nullopt);
}

TEST_F(StateMachineTest, ACancelThatComesLateTellsWhatTheWriteDid) {
  const RequestKey write = WriteKey(kSession, 1, {Increment("n", 1)});
  Apply(write, {Increment("n", 1)});
  EXPECT_THAT(Apply(CancelKey(write), {}).values, ElementsAre("1"));
  const RequestKey once = OnceKey(8, {Increment("n", 1)});
  Apply(once, {Increment("n", 1)});
  EXPECT_THAT(Apply(CancelKey(once), {}).values, ElementsAre("2"));
  EXPECT_THAT(state_.Known(CancelKey(once))->values, ElementsAre("2"));
}

// A table that an unknown client has filled does not lock the others out.
TEST_F(StateMachineTest, SessionsThatNeverWroteMakeRoomForOthers) {
  Apply({.kind = CommandKind::kSettings}, {});
  state_.Apply(++index_, {.key = {.kind = CommandKind::kSettings}, .settings = {{Setting::kSessionsMax, 50}}});
  Write(1, {Put("k", "1")});
  for (uint64_t i = 1; i <= 200; ++i) {
    const Result opened = state_.Apply(
        ++index_, {.key = {.kind = CommandKind::kOpen, .a = 1000 + i}, .session = {.id = 0x9000 + i, .token = i}});
    EXPECT_EQ(opened.session, 0x9000 + i);
  }
  EXPECT_EQ(state_.sessions(), 50u);
  EXPECT_EQ(state_.sessions_evicted(), 151u);
  EXPECT_EQ(Write(2, {Put("k", "2")}).code, ResultCode::kOk) << "a session that wrote stays";
}

TEST_F(StateMachineTest, AWindowedDuplicateIsKnownAsLongAsTheWindow) {
  EXPECT_THAT(Windowed(1, {Increment("n", 1)}).values, ElementsAre("1"));
  EXPECT_THAT(Windowed(1, {Increment("n", 1)}, 69 * kSecond).values, ElementsAre("1"));
  EXPECT_THAT(Windowed(1, {Increment("n", 1)}, 2 * kSecond).values, ElementsAre("2")) << "the promise has ended";
}

TEST_F(StateMachineTest, SessionsEndByCommittedTimeOnly) {
  EXPECT_EQ(Write(1, {}, 59 * kSecond).code, ResultCode::kOk);
  EXPECT_EQ(Write(2, {}, 59 * kSecond).code, ResultCode::kOk) << "a write without operations keeps it alive";
  EXPECT_EQ(Write(3, {}, 61 * kSecond).code, ResultCode::kUnknownSession);
}

TEST(CommittedClock, CountsOnlyTheTimeOfOneLeader) {
  CommittedClock clock;
  clock.StartTerm(1000);
  EXPECT_EQ(clock.Elapsed_ns(1000), 0u);
  EXPECT_EQ(clock.Elapsed_ns(1500), 500u);
  clock.StartTerm(9000);
  EXPECT_EQ(clock.Elapsed_ns(9200), 200u) << "from its election on";
}

}  // namespace
}  // namespace hedgerow::kv
