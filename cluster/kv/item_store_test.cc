// SPDX-License-Identifier: Apache-2.0
//
// The items do what memcached's doc/protocol.txt says of each command, with committed time for the clock.
#include "cluster/kv/item_store.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSecond = 1'000'000'000;

class ItemStoreTest : public testing::Test {
 protected:
  Result Do(ItemOperation operation) { return items_.Execute(operation, ++index_, now_ns_, growth_max_bytes_); }
  ResultCode Say(ItemVerb verb, std::string value, int64_t life_s = 0, std::string key = "k") {
    return Do({.verb = verb, .key = std::move(key), .value = std::move(value), .life_s = life_s}).code;
  }
  std::string Value(const std::string& key = "k") const {
    const Item* item = items_.Find(key, now_ns_);
    return item == nullptr ? "nothing" : item->value;
  }

  ItemStore items_{1'000'000};
  uint64_t growth_max_bytes_ = UINT64_MAX;
  uint64_t index_ = 0;
  uint64_t now_ns_ = 100 * kSecond;
};

TEST_F(ItemStoreTest, AddAndReplaceLookAtWhatIsThere) {
  EXPECT_EQ(Say(ItemVerb::kReplace, "a"), ResultCode::kNotStored);
  EXPECT_EQ(Say(ItemVerb::kAdd, "b"), ResultCode::kOk);
  EXPECT_EQ(Say(ItemVerb::kAdd, "c"), ResultCode::kNotStored);
  EXPECT_EQ(Value(), "b");
  EXPECT_EQ(Say(ItemVerb::kReplace, "d"), ResultCode::kOk);
  EXPECT_EQ(Value(), "d");
}

TEST_F(ItemStoreTest, CasReplacesTheVersionItNames) {
  EXPECT_EQ(Do({.verb = ItemVerb::kCas, .key = "k", .value = "x", .unique = 1}).code, ResultCode::kNotFound);
  EXPECT_EQ(Do({.verb = ItemVerb::kSet, .key = "k", .value = "a", .flags = 7}).code, ResultCode::kOk);
  const uint64_t unique = items_.Find("k", now_ns_)->unique;
  EXPECT_EQ(unique, index_);
  EXPECT_EQ(Do({.verb = ItemVerb::kCas, .key = "k", .value = "b", .unique = unique + 1}).code, ResultCode::kMismatch);
  EXPECT_EQ(Do({.verb = ItemVerb::kCas, .key = "k", .value = "b", .unique = unique}).code, ResultCode::kOk);
  EXPECT_EQ(Do({.verb = ItemVerb::kCas, .key = "k", .value = "c", .unique = unique}).code, ResultCode::kMismatch);
  EXPECT_EQ(Value(), "b");
}

TEST_F(ItemStoreTest, DeleteAndTouchSayWhetherThereWasOne) {
  EXPECT_EQ(Say(ItemVerb::kDelete, ""), ResultCode::kNotFound);
  EXPECT_EQ(Say(ItemVerb::kTouch, "", 5), ResultCode::kNotFound);
  Say(ItemVerb::kSet, "a");
  const uint64_t unique = items_.Find("k", now_ns_)->unique;
  EXPECT_EQ(Say(ItemVerb::kTouch, "", 5), ResultCode::kOk);
  EXPECT_EQ(items_.Find("k", now_ns_)->unique, unique) << "its value is the same";
  EXPECT_EQ(Say(ItemVerb::kDelete, ""), ResultCode::kOk);
  EXPECT_EQ(Value(), "nothing");
  EXPECT_EQ(items_.bytes(), 0u);
  EXPECT_FALSE(items_.waits_for_time());
}

TEST_F(ItemStoreTest, AnItemEndsWithItsLastSecondAndIsFreedAfterwards) {
  Say(ItemVerb::kSet, "a", 2);
  now_ns_ += 2 * kSecond - 1;
  items_.FreeSome(now_ns_, 10);
  EXPECT_EQ(Value(), "a");
  now_ns_ += 1;
  EXPECT_EQ(Value(), "nothing");
  EXPECT_EQ(items_.size(), 1u);
  EXPECT_EQ(Say(ItemVerb::kReplace, "b"), ResultCode::kNotStored) << "also before it is freed";
  EXPECT_EQ(Say(ItemVerb::kTouch, "", 9), ResultCode::kNotFound);
  items_.FreeSome(now_ns_, 10);
  EXPECT_EQ(items_.size(), 0u);
  EXPECT_EQ(items_.bytes(), 0u);
}

TEST_F(ItemStoreTest, AnItemThatEndedCanBeAddedAnew) {
  Say(ItemVerb::kSet, "old value", 1);
  now_ns_ += kSecond;
  EXPECT_EQ(Say(ItemVerb::kAdd, "new"), ResultCode::kOk);
  now_ns_ += 100 * kSecond;
  items_.FreeSome(now_ns_, 10);
  EXPECT_EQ(Value(), "new") << "the old one's end is not the new one's";
  EXPECT_FALSE(items_.waits_for_time());
}

TEST_F(ItemStoreTest, ALifeThatIsOverRemovesWhatWasThere) {
  Say(ItemVerb::kSet, "a");
  EXPECT_EQ(Say(ItemVerb::kSet, "b", -1), ResultCode::kOk);
  EXPECT_EQ(Value(), "nothing");
  Say(ItemVerb::kSet, "a");
  EXPECT_EQ(Say(ItemVerb::kTouch, "", -1), ResultCode::kOk);
  EXPECT_EQ(Value(), "nothing");
}

TEST_F(ItemStoreTest, ALifeBeyondTheEndOfTimeDoesNotEnd) {
  EXPECT_EQ(Say(ItemVerb::kSet, "a", INT64_MAX), ResultCode::kOk);
  now_ns_ = UINT64_MAX;
  EXPECT_EQ(Value(), "a");
}

TEST_F(ItemStoreTest, ArithmeticIsMemcacheds) {
  const auto count = [this](ItemVerb verb, uint64_t delta) { return Do({.verb = verb, .key = "k", .delta = delta}); };
  EXPECT_EQ(count(ItemVerb::kIncrement, 1).code, ResultCode::kNotFound);
  Do({.verb = ItemVerb::kSet, .key = "k", .value = "10", .flags = 3, .life_s = 50});
  EXPECT_THAT(count(ItemVerb::kIncrement, 5).values, ElementsAre("15"));
  EXPECT_THAT(count(ItemVerb::kDecrement, 100).values, ElementsAre("0"));
  EXPECT_EQ(items_.Find("k", now_ns_)->flags, 3u);
  EXPECT_EQ(items_.Find("k", now_ns_)->end_ns, 150 * kSecond);
  Say(ItemVerb::kSet, "18446744073709551615");
  EXPECT_THAT(count(ItemVerb::kIncrement, 2).values, ElementsAre("1")) << "it wraps";
  for (const char* no_number : {"", "x", "1x", "-1", "18446744073709551616", " 1"}) {
    Say(ItemVerb::kSet, no_number);
    EXPECT_EQ(count(ItemVerb::kIncrement, 1).code, ResultCode::kNotANumber) << no_number;
  }
}

TEST_F(ItemStoreTest, AppendAndPrependGrowAnItemUpToItsBound) {
  EXPECT_EQ(Say(ItemVerb::kAppend, "b"), ResultCode::kNotStored);
  Do({.verb = ItemVerb::kSet, .key = "k", .value = "b", .flags = 3});
  EXPECT_EQ(Say(ItemVerb::kAppend, "c"), ResultCode::kOk);
  EXPECT_EQ(Say(ItemVerb::kPrepend, "a"), ResultCode::kOk);
  EXPECT_EQ(Value(), "abc");
  EXPECT_EQ(items_.Find("k", now_ns_)->flags, 3u);
  EXPECT_EQ(Say(ItemVerb::kAppend, std::string(kItemMax_bytes - 3, 'x')), ResultCode::kOk);
  EXPECT_EQ(Say(ItemVerb::kAppend, "x"), ResultCode::kTooLarge);
  EXPECT_EQ(Value().size(), kItemMax_bytes);
}

TEST_F(ItemStoreTest, AFullStoreRefusesAndForgetsNothing) {
  const std::string value(10'000, 'v');
  uint64_t stored = 0;
  while (Say(ItemVerb::kSet, value, 0, "k" + std::to_string(stored)) == ResultCode::kOk) ++stored;
  EXPECT_EQ(stored, 1'000'000 / (value.size() + kItemOverhead_bytes + 3));
  EXPECT_EQ(Say(ItemVerb::kSet, value + value, 0, "k0"), ResultCode::kNoRoom);
  EXPECT_EQ(Value("k0"), value) << "what was there stays";
  EXPECT_EQ(Say(ItemVerb::kSet, "y", 0, "k0"), ResultCode::kOk) << "something smaller in its place";
  EXPECT_EQ(Say(ItemVerb::kDelete, "", 0, "k1"), ResultCode::kOk);
  EXPECT_EQ(Say(ItemVerb::kSet, value, 0, "other"), ResultCode::kOk);
}

TEST_F(ItemStoreTest, WhatTheWholeStoreHasNoRoomForIsRefusedAndWhatShrinksIsNot) {
  Say(ItemVerb::kSet, "value");
  growth_max_bytes_ = 0;
  EXPECT_EQ(Say(ItemVerb::kSet, "values"), ResultCode::kNoRoom);
  EXPECT_EQ(Say(ItemVerb::kAppend, "s"), ResultCode::kNoRoom);
  EXPECT_EQ(Say(ItemVerb::kSet, "x", 0, "other"), ResultCode::kNoRoom);
  EXPECT_EQ(Say(ItemVerb::kSet, "other"), ResultCode::kOk) << "as long as what it replaces";
  EXPECT_EQ(Say(ItemVerb::kDelete, ""), ResultCode::kOk);
  growth_max_bytes_ = kItemOverhead_bytes + 6;
  EXPECT_EQ(Say(ItemVerb::kSet, "value"), ResultCode::kOk);
}

TEST_F(ItemStoreTest, AFlushedItemIsNotFoundAndMakesRoomAtOnce) {
  const std::string value(10'000, 'v');
  int stored = 0;
  while (Say(ItemVerb::kSet, value, 0, "k" + std::to_string(stored)) == ResultCode::kOk) ++stored;
  EXPECT_EQ(Say(ItemVerb::kFlush, ""), ResultCode::kOk);
  EXPECT_EQ(Value("k0"), "nothing");
  EXPECT_TRUE(items_.waits_for_time());
  EXPECT_EQ(Say(ItemVerb::kAdd, value, 0, "k3"), ResultCode::kOk) << "a flushed one is no item";
  EXPECT_EQ(Say(ItemVerb::kTouch, "", 5, "k4"), ResultCode::kNotFound);
  for (int i = 0; i + 1 < stored; ++i)
    EXPECT_EQ(Say(ItemVerb::kSet, value, 0, "n" + std::to_string(i)), ResultCode::kOk) << i;
  EXPECT_EQ(Say(ItemVerb::kSet, value, 0, "last"), ResultCode::kNoRoom);
  EXPECT_FALSE(items_.waits_for_time());
  EXPECT_EQ(Value("k3"), value);
}

TEST_F(ItemStoreTest, AFlushWithADelayTakesWhatIsThereThen) {
  Say(ItemVerb::kSet, "a");
  EXPECT_EQ(Say(ItemVerb::kFlush, "", 10), ResultCode::kOk);
  EXPECT_EQ(Value(), "a");
  now_ns_ += 9 * kSecond;
  items_.Expire(now_ns_, ++index_);
  Say(ItemVerb::kSet, "b", 0, "later");
  EXPECT_EQ(Value("later"), "b");
  now_ns_ += kSecond;
  items_.Expire(now_ns_, ++index_);
  EXPECT_EQ(Value(), "nothing");
  EXPECT_EQ(Value("later"), "nothing");
  Say(ItemVerb::kSet, "c");
  EXPECT_EQ(Value(), "c");
}

TEST_F(ItemStoreTest, EndedItemsAreFreedAFewAtATimeInOneOrder) {
  for (int i = 0; i < 100; ++i) Say(ItemVerb::kSet, "v", 1, "k" + std::to_string(i));
  now_ns_ += kSecond;
  items_.FreeSome(now_ns_, 64);
  EXPECT_EQ(items_.size(), 36u);
  EXPECT_EQ(Value("k99"), "nothing");
  items_.FreeSome(now_ns_, 64);
  EXPECT_EQ(items_.size(), 0u);
}

}  // namespace
}  // namespace hedgerow::kv
