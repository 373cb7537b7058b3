// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/sharded_map.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace hedgerow::kv {

// All of one hash: they share a shard and a bucket, however many there are.
struct Alike {
  int number = 0;
  bool operator==(const Alike&) const = default;
};

uint64_t KeyedHash(const HashSecret&, const Alike&) { return 7; }

namespace {

using Numbers = ShardedMap<std::string, uint64_t>;

std::map<std::string, uint64_t> WalkedOver(Numbers& map) {
  std::map<std::string, uint64_t> found;
  Numbers::Walk walk;
  while (map.VisitSome(walk, [&](const std::string& key, uint64_t value) {
    EXPECT_TRUE(found.emplace(key, value).second) << key << " was visited twice";
  })) {
  }
  return found;
}

TEST(ShardedMap, HoldsWhatAnOrderedMapHolds) {
  std::mt19937_64 random(1);
  Numbers map(16);
  std::map<std::string, uint64_t> expected;
  for (uint64_t step = 1; step <= 100'000; ++step) {
    const std::string key = "bench/" + std::to_string(random() % 3000);
    if (random() % 3 == 0) {
      map.Erase(key);
      expected.erase(key);
    } else {
      const auto [value, fresh] = map.Emplace(key);
      EXPECT_EQ(fresh, !expected.contains(key));
      EXPECT_EQ(*value, fresh ? 0 : expected.at(key));
      *value = expected[key] = step;
    }
    ASSERT_EQ(map.size(), expected.size());
  }
  for (int number = 0; number < 3000; ++number) {
    const std::string key = "bench/" + std::to_string(number);
    const uint64_t* const value = map.Find(key);
    ASSERT_EQ(value != nullptr, expected.contains(key));
    if (value == nullptr) continue;
    EXPECT_EQ(*value, expected.at(key));
  }
  EXPECT_EQ(WalkedOver(map), expected);
}

// An incremental snapshot needs no more: it writes down what changes or goes before the walk has come to it, and what
// comes meanwhile is none of its.
TEST(ShardedMap, AWalkVisitsWhatStaysThereWhileShardsGrow) {
  Numbers map(4);
  for (int i = 0; i < 500; ++i) *map.Emplace("stays" + std::to_string(i)).first = 1;
  std::map<std::string, uint64_t> visits;
  Numbers::Walk walk;
  int steps = 0;
  while (map.VisitSome(walk, [&visits](const std::string& key, uint64_t) { ++visits[key]; })) {
    if (++steps > 400) continue;  // each growth makes a walk longer: some time it must have an end
    for (int i = 0; i < 10; ++i) map.Emplace("comes" + std::to_string(10 * steps + i));
    map.Erase("comes" + std::to_string(10 * steps));
  }
  for (int i = 0; i < 500; ++i) EXPECT_GE(visits["stays" + std::to_string(i)], 1u) << i;
}

// What a step takes bounds how long a node's loop stops for it.
TEST(ShardedMap, AStepOfAWalkVisitsAHandful) {
  Numbers map(16);
  for (int i = 0; i < 100'000; ++i) map.Emplace("bench/" + std::to_string(i));
  size_t most = 0;
  Numbers::Walk walk;
  while (true) {
    size_t visited = 0;
    if (!map.VisitSome(walk, [&visited](const std::string&, uint64_t) { ++visited; })) break;
    most = std::max(most, visited);
  }
  EXPECT_LE(most, 16u);
}

TEST(ShardedMap, NumbersThatFollowEachOtherAreSpread) {
  ShardedMap<uint64_t, uint64_t> map(256);
  for (uint64_t key = 1; key <= 100'000; ++key) map.Emplace(key);
  size_t most = 0;
  ShardedMap<uint64_t, uint64_t>::Walk walk;
  while (true) {
    size_t visited = 0;
    if (!map.VisitSome(walk, [&visited](uint64_t, uint64_t) { ++visited; })) break;
    most = std::max(most, visited);
  }
  EXPECT_LE(most, 16u);
}

TEST(ShardedMap, KeysOfOneHashAreToldApart) {
  ShardedMap<Alike, int> map(4);
  for (int i = 0; i < 100; ++i) *map.Emplace({i}).first = i;
  for (int i = 0; i < 100; i += 3) map.Erase({i});
  map.Erase({1000});
  for (int i = 0; i < 100; ++i) {
    const int* const value = map.Find({i});
    ASSERT_EQ(value != nullptr, i % 3 != 0) << i;
    if (value == nullptr) continue;
    EXPECT_EQ(*value, i);
  }
  EXPECT_EQ(map.size(), 66u);
}

// The hash of texts in GNU's standard library (MurmurHash64A with a seed that everybody knows), which the map used
// before, can be inverted: here 16 bytes whose second half makes up for the first.
std::string OfOneStdHash(uint64_t number) {
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  constexpr uint64_t kSeed = 0xc70f6907;
  const auto mix = [](uint64_t word) { return word ^ (word >> 47); };  // its own inverse
  uint64_t inverse = kMultiplier;                                      // modulo 2^64, by Newton's iteration
  for (int i = 0; i < 5; ++i) inverse *= 2 - kMultiplier * inverse;
  const uint64_t first = number;
  const uint64_t after_first = ((kSeed ^ 16 * kMultiplier) ^ mix(first * kMultiplier) * kMultiplier) * kMultiplier;
  const uint64_t second = mix((after_first ^ 0x1234) * inverse) * inverse;
  std::string key(16, '\0');
  std::memcpy(key.data(), &first, sizeof(first));
  std::memcpy(key.data() + 8, &second, sizeof(second));
  return key;
}

TEST(ShardedMap, KeysOfOneStandardHashAreSpread) {
  Numbers map(4096);
  for (uint64_t i = 0; i < 20'000; ++i) {
    const std::string key = OfOneStdHash(i);
#if defined(__GLIBCXX__) && __SIZEOF_SIZE_T__ == 8
    ASSERT_EQ(std::hash<std::string>()(key), std::hash<std::string>()(OfOneStdHash(0)));
#endif
    map.Emplace(key);
  }
  size_t most = 0;
  Numbers::Walk walk;
  while (true) {
    size_t visited = 0;
    if (!map.VisitSome(walk, [&visited](const std::string&, uint64_t) { ++visited; })) break;
    most = std::max(most, visited);
  }
  EXPECT_LE(most, 16u);
}

TEST(ShardedMap, TwoSecretsWalkInTwoOrders) {
  std::vector<std::vector<std::string>> orders;
  for (const HashSecret& secret : {HashSecret{1, 2}, HashSecret{3, 4}}) {
    const ScopedHashSecret scoped(secret);
    Numbers map(16);
    for (int i = 0; i < 1000; ++i) map.Emplace(std::to_string(i));
    std::vector<std::string>& order = orders.emplace_back();
    Numbers::Walk walk;
    while (map.VisitSome(walk, [&order](const std::string& key, uint64_t) { order.push_back(key); })) {
    }
  }
  EXPECT_NE(orders[0], orders[1]);
  for (std::vector<std::string>& order : orders) std::sort(order.begin(), order.end());
  EXPECT_EQ(orders[0], orders[1]);
}

TEST(ShardedMap, PrefetchOfWhatIsNotThereDoesNothing) {
  Numbers map(16);
  map.Prefetch("a");
  map.Emplace("b");
  for (int i = 0; i < 100; ++i) map.Prefetch(std::to_string(i));
  EXPECT_EQ(map.size(), 1u);
}

TEST(ShardedMap, IsMovedAsAWhole) {
  ShardedMap<std::string, std::unique_ptr<int>> map(16);
  for (int i = 0; i < 1000; ++i) *map.Emplace(std::to_string(i)).first = std::make_unique<int>(i);
  const std::unique_ptr<int>* const value = map.Find("77");
  ShardedMap<std::string, std::unique_ptr<int>> other(16);
  other.Emplace("gone");
  other = std::move(map);
  EXPECT_EQ(other.size(), 1000u);
  EXPECT_EQ(other.Find("77"), value);
  EXPECT_EQ(other.Find("gone"), nullptr);
}

}  // namespace
}  // namespace hedgerow::kv
