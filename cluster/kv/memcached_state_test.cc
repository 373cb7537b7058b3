// SPDX-License-Identifier: Apache-2.0
//
// A request of a memcached client is done once within the window, known by its client, frame id and bytes, by
// committed time alone; ADR 0014.
#include "cluster/kv/memcached_state.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/kv/state_machine.h"

namespace hedgerow::kv {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSecond = 1'000'000'000;

class MemcachedStateTest : public testing::Test {
 protected:
  static RequestKey Key(uint64_t client, uint64_t fingerprint, uint64_t frame) {
    return {.kind = CommandKind::kMemcached, .a = client, .b = 0, .c = fingerprint, .d = frame};
  }
  Result Do(RequestKey key, ItemOperation item, uint64_t elapsed_ns = 0) {
    return state_.Apply(++index_, {.key = key, .elapsed_ns = elapsed_ns, .item = std::move(item)});
  }
  Result Count(RequestKey key, uint64_t elapsed_ns = 0) {
    return Do(key, {.verb = ItemVerb::kIncrement, .key = "n", .delta = 1}, elapsed_ns);
  }
  void SetUp() override {
    state_.Apply(++index_, {.key = {.kind = CommandKind::kSettings}, .settings = {{Setting::kMemcachedWindowMax, 4}}});
    Do(Key(9, 9, 9), {.verb = ItemVerb::kSet, .key = "n", .value = "0"});
  }

  StateMachine state_;
  uint64_t index_ = 0;
};

TEST_F(MemcachedStateTest, ADuplicateHearsTheSameAndIsNotDone) {
  EXPECT_THAT(Count(Key(1, 1, 1)).values, ElementsAre("1"));
  EXPECT_THAT(Count(Key(1, 1, 1), 4 * kSecond).values, ElementsAre("1"));
  EXPECT_EQ(state_.FindItem("n")->value, "1");
}

TEST_F(MemcachedStateTest, AnotherClientIdOrCommandIsAnotherRequest) {
  EXPECT_THAT(Count(Key(1, 1, 1)).values, ElementsAre("1"));
  EXPECT_THAT(Count(Key(2, 1, 1)).values, ElementsAre("2")) << "client";
  EXPECT_THAT(Count(Key(1, 1, 2)).values, ElementsAre("3")) << "frame id";
}

TEST_F(MemcachedStateTest, TheSameIdWithOtherBytesIsAnotherRequest) {
  EXPECT_THAT(Count(Key(1, 1, 1)).values, ElementsAre("1"));
  EXPECT_THAT(Count(Key(1, 2, 1)).values, ElementsAre("2"));
}

TEST_F(MemcachedStateTest, TheWindowEndsByCommittedTime) {
  EXPECT_THAT(Count(Key(1, 1, 1)).values, ElementsAre("1"));
  EXPECT_THAT(Count(Key(1, 1, 1), 5 * kSecond - 1).values, ElementsAre("1"));
  EXPECT_THAT(Count(Key(1, 1, 1), 1).values, ElementsAre("2")) << "the promise has ended";
}

TEST_F(MemcachedStateTest, ARefusalIsAnAnswerToo) {
  const RequestKey cas = Key(1, 7, 1);
  EXPECT_EQ(Do(cas, {.verb = ItemVerb::kAdd, .key = "n", .value = "x"}).code, ResultCode::kNotStored);
  Do(Key(1, 8, 2), {.verb = ItemVerb::kDelete, .key = "n"});
  EXPECT_EQ(Do(cas, {.verb = ItemVerb::kAdd, .key = "n", .value = "x"}).code, ResultCode::kNotStored)
      << "a copy that comes late is told what the first was told";
  EXPECT_EQ(state_.FindItem("n"), nullptr);
}

TEST_F(MemcachedStateTest, AFullWindowRefusesAndForgetsNothingEarly) {
  EXPECT_THAT(Count(Key(1, 1, 1)).values, ElementsAre("1"));
  EXPECT_THAT(Count(Key(1, 1, 2)).values, ElementsAre("2"));
  EXPECT_THAT(Count(Key(1, 1, 3)).values, ElementsAre("3"));
  EXPECT_EQ(Count(Key(1, 1, 4)).code, ResultCode::kOverloaded) << "the window holds the set and three of these";
  EXPECT_THAT(Count(Key(1, 1, 1)).values, ElementsAre("1")) << "what is in it is known all the same";
  EXPECT_EQ(state_.FindItem("n")->value, "3");
  EXPECT_THAT(Count(Key(1, 1, 4), 5 * kSecond).values, ElementsAre("4")) << "a refusal is not remembered";
}

TEST_F(MemcachedStateTest, ATickMovesTimeAndNothingElse) {
  Do(Key(1, 1, 1), {.verb = ItemVerb::kSet, .key = "k", .value = "v", .life_s = 6});
  EXPECT_TRUE(state_.memcached().waits_for_time());
  const auto tick = [this] {
    state_.Apply(++index_, {.key = {.kind = CommandKind::kTick}, .elapsed_ns = 5 * kSecond});
  };
  tick();
  EXPECT_EQ(state_.memcached().seen(), 0u);
  EXPECT_NE(state_.FindItem("k"), nullptr);
  EXPECT_TRUE(state_.memcached().waits_for_time());
  tick();
  EXPECT_EQ(state_.FindItem("k"), nullptr);
  EXPECT_FALSE(state_.memcached().waits_for_time()) << "nothing ends any more";
  EXPECT_EQ(state_.FindItem("n")->value, "0");
}

TEST_F(MemcachedStateTest, ItemsAreNoKeysOfSessions) {
  Do(Key(1, 1, 1), {.verb = ItemVerb::kSet, .key = "k", .value = "v"});
  EXPECT_FALSE(state_.Get("k").has_value());
}

TEST_F(MemcachedStateTest, WhatIsKnownIsForgottenByTimeThatOnlyTheNodeHasSeen) {
  Count(Key(1, 1, 1));
  EXPECT_TRUE(state_.Known(Key(1, 1, 1)).has_value());
  EXPECT_TRUE(state_.Known(Key(1, 1, 1), 5 * kSecond - 1).has_value());
  EXPECT_FALSE(state_.Known(Key(1, 1, 1), 5 * kSecond).has_value());
  EXPECT_FALSE(state_.Known(Key(1, 1, 1), UINT64_MAX).has_value());
  EXPECT_FALSE(state_.Known(Key(1, 1, 2)).has_value());
}

}  // namespace
}  // namespace hedgerow::kv
