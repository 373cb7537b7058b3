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
  Result Do(RequestKey key, ItemOperation item, uint64_t elapsed_ns = 0, uint64_t age_ns = 0) {
    return state_.Apply(++index_, {.key = key, .elapsed_ns = elapsed_ns, .item = std::move(item), .age_ns = age_ns});
  }
  Result Set(RequestKey key, const std::string& value, uint64_t elapsed_ns = 0, uint64_t age_ns = 0) {
    return Do(key, {.verb = ItemVerb::kSet, .key = "lamp", .value = value}, elapsed_ns, age_ns);
  }
  std::string Lamp() { return state_.FindItem("lamp")->value; }
  Result Count(RequestKey key, uint64_t elapsed_ns = 0, uint64_t age_ns = 0) {
    return Do(key, {.verb = ItemVerb::kIncrement, .key = "n", .delta = 1}, elapsed_ns, age_ns);
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

// Off, on and off again with one frame id and without a pause.
TEST_F(MemcachedStateTest, ARequestWhoseIdStoodForAnotherMeanwhileIsNew) {
  const RequestKey off = Key(1, 10, 1);
  const RequestKey on = Key(1, 11, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Set(off, "off", 1).code, ResultCode::kOk);
    EXPECT_EQ(Lamp(), "off");
    EXPECT_EQ(Set(on, "on", 1).code, ResultCode::kOk);
    EXPECT_EQ(Lamp(), "on");
  }
  EXPECT_EQ(Set(Key(2, 12, 1), "dim").code, ResultCode::kOk);
  EXPECT_EQ(Set(on, "on", 1).code, ResultCode::kOk);
  EXPECT_EQ(Lamp(), "dim") << "a duplicate: its client has said nothing else under this id";
  EXPECT_EQ(state_.memcached().seen(), 4u) << "the one of SetUp, and each request once";
}

TEST_F(MemcachedStateTest, ALockThatAnotherClientTookIsNotGivenTwice) {
  const ItemOperation add{.verb = ItemVerb::kAdd, .key = "lock", .value = "a"};
  EXPECT_EQ(Do(Key(1, 20, 1), add).code, ResultCode::kOk);
  EXPECT_EQ(Do(Key(1, 21, 1), {.verb = ItemVerb::kDelete, .key = "lock"}, 1).code, ResultCode::kOk);
  EXPECT_EQ(Do(Key(2, 22, 1), add, 1).code, ResultCode::kOk);
  EXPECT_EQ(Do(Key(1, 20, 1), add, 1).code, ResultCode::kNotStored);
}

// It lay in the socket of a node that stood still, and the leader stamps it with its age.
TEST_F(MemcachedStateTest, ALateCopyOfWhatAnotherRequestHasSupersededIsNotDone) {
  Set(Key(1, 10, 1), "off", kSecond);
  Set(Key(1, 11, 1), "on", kSecond);
  EXPECT_EQ(Set(Key(1, 10, 1), "off", kSecond, kSecond + 1).code, ResultCode::kSuperseded);
  EXPECT_EQ(Lamp(), "on");
  EXPECT_EQ(Set(Key(1, 11, 1), "on", 0, kSecond + 1).code, ResultCode::kOk) << "a copy of the newest is known";
  EXPECT_EQ(Set(Key(1, 10, 1), "off", 0, kSecond).code, ResultCode::kOk) << "it came after the other was stamped";
  EXPECT_EQ(Lamp(), "off");
}

// Its client has given it up and gone on. Were it done, the newer one would count as superseded, and a copy of that one
// would be done a second time.
TEST_F(MemcachedStateTest, ARequestThatANewerOneOvertookIsNotDoneAfterIt) {
  EXPECT_THAT(Count(Key(1, 10, 1), kSecond).values, ElementsAre("1"));
  EXPECT_EQ(Count(Key(1, 11, 1), kSecond, 3 * kSecond).code, ResultCode::kSuperseded);
  EXPECT_THAT(Count(Key(1, 10, 1), 1).values, ElementsAre("1")) << "a duplicate, as before";
  EXPECT_THAT(Count(Key(1, 12, 1), 1).values, ElementsAre("2"));
}

// They may be stamped at one instant, long after both have come.
TEST_F(MemcachedStateTest, RequestsThatAClientSendsWithoutWaitingAreAllDone) {
  EXPECT_EQ(Set(Key(1, 10, 1), "off", kSecond, 200).code, ResultCode::kOk);
  EXPECT_EQ(Set(Key(1, 11, 1), "on", 0, 100).code, ResultCode::kOk);
  EXPECT_EQ(Lamp(), "on");
  EXPECT_EQ(Set(Key(1, 12, 1), "dim", 0, 100).code, ResultCode::kOk);
  EXPECT_EQ(Lamp(), "dim");
}

// Replicas that have applied such an entry with the earlier program must not differ from those that apply it now.
TEST_F(MemcachedStateTest, AnEntryWithoutAnAgeGoesByTheRuleOfItsTime) {
  const auto set = [this](uint64_t fingerprint, const std::string& value) {
    return state_.Apply(
        ++index_, {.key = Key(1, fingerprint, 1), .item = {.verb = ItemVerb::kSet, .key = "lamp", .value = value}});
  };
  set(10, "off");
  set(11, "on");
  EXPECT_EQ(set(10, "off").code, ResultCode::kOk);
  EXPECT_EQ(Lamp(), "on");
}

TEST_F(MemcachedStateTest, ASetOfWhatIsTooLargeRemovesWhatWasThere) {
  const ItemOperation too_large{.verb = ItemVerb::kDiscard, .key = "lamp"};
  Set(Key(1, 10, 1), "on");
  EXPECT_EQ(Do(Key(1, 11, 2), too_large).code, ResultCode::kTooLarge);
  EXPECT_EQ(state_.FindItem("lamp"), nullptr);
  EXPECT_EQ(Do(Key(1, 11, 3), too_large).code, ResultCode::kTooLarge);
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

// A node that lags, or leads no more and does not know it, may not know what has superseded a request.
TEST_F(MemcachedStateTest, NoNodeAnswersFromItsTableAlone) {
  Count(Key(1, 1, 1));
  EXPECT_FALSE(state_.Known(Key(1, 1, 1)).has_value());
}

}  // namespace
}  // namespace hedgerow::kv
