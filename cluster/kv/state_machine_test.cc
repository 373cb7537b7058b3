// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using testing::ElementsAre;
constexpr uint64_t kSecond = 1'000'000'000;

Operation Put(std::string key, std::string value) {
  return {.kind = OperationKind::kPut,
          .key = std::move(key),
          .value = std::move(value),
          .expected = {},
          .delta = 0};
}
Operation Increment(std::string key, int64_t delta) {
  return {
      .kind = OperationKind::kIncrement, .key = std::move(key), .value = {}, .expected = {}, .delta = delta};
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

class StateMachineTest : public testing::Test {
 protected:
  StateMachineTest() {
    state_.Apply(1, {.key = {.kind = CommandKind::kOpen, .a = 99}, .operations = {}});
    state_.Apply(++index_, {.key = {.kind = CommandKind::kSettings},
                            .settings = {{Setting::kSessionTimeout, 60 * kSecond}}});
  }
  Result Write(uint64_t seq, std::vector<Operation> operations, uint64_t elapsed_ns = 0) {
    return state_.Apply(++index_, {.key = {.kind = CommandKind::kWrite, .a = 1, .b = seq},
                                   .lowest_unanswered = 1,
                                   .elapsed_ns = elapsed_ns,
                                   .operations = std::move(operations)});
  }
  Result Windowed(uint64_t nonce, std::vector<Operation> operations, uint64_t elapsed_ns = 0) {
    return state_.Apply(++index_, {.key = {.kind = CommandKind::kWindowed, .a = nonce},
                                   .elapsed_ns = elapsed_ns,
                                   .operations = std::move(operations)});
  }
  StateMachine state_;
  uint64_t index_ = 1;
};

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
  EXPECT_EQ(Write(1, {Put("a", "1"), Put("b", "1"), CompareAndSet("c", "absent", "1")}).code,
            ResultCode::kMismatch);
  EXPECT_EQ(state_.Get("a"), std::nullopt);
  EXPECT_THAT(Write(2, {Increment("a", 1), Increment("a", 1)}).values, ElementsAre("1", "2"));
}

TEST_F(StateMachineTest, ADuplicateIsAnsweredAndNotApplied) {
  EXPECT_THAT(Write(1, {Increment("n", 1)}).values, ElementsAre("1"));
  EXPECT_THAT(Write(1, {Increment("n", 1)}).values, ElementsAre("1"));
  EXPECT_EQ(state_.Get("n"), "1");
  EXPECT_EQ(state_.Known({.kind = CommandKind::kWrite, .a = 1, .b = 1})->values[0], "1");
  EXPECT_FALSE(state_.Known({.kind = CommandKind::kWrite, .a = 1, .b = 2}).has_value());
}

TEST_F(StateMachineTest, AWindowedDuplicateIsKnownAsLongAsTheWindow) {
  EXPECT_THAT(Windowed(1, {Increment("n", 1)}).values, ElementsAre("1"));
  EXPECT_THAT(Windowed(1, {Increment("n", 1)}, 69 * kSecond).values, ElementsAre("1"));
  EXPECT_THAT(Windowed(1, {Increment("n", 1)}, 2 * kSecond).values, ElementsAre("2"))
      << "the promise has ended";
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
