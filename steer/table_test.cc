// SPDX-License-Identifier: Apache-2.0
//
// Shares, moves and entries, for drawn weights: the seed of a failure is printed.
#include "steer/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

namespace hedgerow::steer {
namespace {

using ::testing::HasSubstr;

constexpr int kSeeds = 25;

std::vector<int> Counted(const Home& home) {
  std::vector<int> counts(HR_STEER_SLOTS);
  for (const uint8_t slot : home) ++counts[slot];
  return counts;
}

int Moved(const Home& from, const Home& to) {
  int moved = 0;
  for (size_t bucket = 0; bucket < from.size(); ++bucket) moved += from[bucket] != to[bucket];
  return moved;
}

// The number of buckets by which some slots have to shrink.
int FewestMoves(const Home& from, absl::Span<const double> weights) {
  std::vector<int> due = *Shares(weights);
  due.resize(HR_STEER_SLOTS);
  const std::vector<int> had = Counted(from);
  int moves = 0;
  for (size_t slot = 0; slot < had.size(); ++slot) moves += std::max(0, had[slot] - due[slot]);
  return moves;
}

// 1 to 256 slots, of which some have no weight.
std::vector<double> DrawWeights(std::mt19937_64& random) {
  std::vector<double> weights(1 + random() % HR_STEER_SLOTS);
  for (double& weight : weights) weight = random() % 5 == 0 ? 0 : static_cast<double>(1 + random() % 10);
  weights[random() % weights.size()] = 3;
  return weights;
}

class TableProperties : public ::testing::Test {
 protected:
  void ForSeeds(const std::function<void(std::mt19937_64&)>& body) {
    const uint64_t first = std::random_device()();
    for (uint64_t seed = first; seed < first + kSeeds && !HasFailure(); ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      std::mt19937_64 random(seed);
      body(random);
    }
  }
};

TEST_F(TableProperties, SharesAreTheExactOnesRoundedDownOrUp) {
  ForSeeds([](std::mt19937_64& random) {
    const std::vector<double> weights = DrawWeights(random);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::vector<int> shares = *Shares(weights);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), HR_STEER_BUCKETS);
    for (size_t slot = 0; slot < weights.size(); ++slot) {
      const double exact = weights[slot] / sum * HR_STEER_BUCKETS;
      EXPECT_GE(shares[slot], std::floor(exact));
      EXPECT_LE(shares[slot], std::ceil(exact));
    }
  });
}

TEST_F(TableProperties, ANewTableHasTheShares) {
  ForSeeds([](std::mt19937_64& random) {
    const std::vector<double> weights = DrawWeights(random);
    std::vector<int> due = *Shares(weights);
    due.resize(HR_STEER_SLOTS);
    EXPECT_EQ(Counted(*NewHome(weights)), due);
  });
}

TEST_F(TableProperties, AChangeReachesTheNewSharesByTheFewestMoves) {
  ForSeeds([](std::mt19937_64& random) {
    Home home = *NewHome(DrawWeights(random));
    for (int change = 0; change < 4; ++change) {
      const std::vector<double> weights = DrawWeights(random);
      const Home moved = *MoveHome(home, weights);
      std::vector<int> due = *Shares(weights);
      due.resize(HR_STEER_SLOTS);
      EXPECT_EQ(Counted(moved), due);
      EXPECT_EQ(Moved(home, moved), FewestMoves(home, weights));
      EXPECT_EQ(*MoveHome(moved, weights), moved);
      home = moved;
    }
  });
}

TEST_F(TableProperties, ASlotThatIsDrainedAndReturnsHasItsOwnBucketsAgain) {
  ForSeeds([](std::mt19937_64& random) {
    const std::vector<double> weights(2 + random() % 30, 1.0);
    const Home home = *NewHome(weights);
    std::vector<double> drained = weights;
    drained[random() % weights.size()] = 0;
    const Home without = *MoveHome(home, drained);
    EXPECT_EQ(*MoveHome(without, weights), home);
  });
}

TEST_F(TableProperties, AnyChangeOfANewTableIsUndoneByTheChangeBack) {
  ForSeeds([](std::mt19937_64& random) {
    const std::vector<double> weights = DrawWeights(random);
    const Home home = *NewHome(weights);
    EXPECT_EQ(*MoveHome(*MoveHome(home, DrawWeights(random)), weights), home);
  });
}

TEST_F(TableProperties, WhatASlotGetsComesFromAllOthersByTheirShares) {
  ForSeeds([](std::mt19937_64& random) {
    const size_t slots = 2 + random() % 15;
    const Home home = *NewHome(std::vector<double>(slots, 1.0));
    const Home grown = *MoveHome(home, std::vector<double>(slots + 1, 1.0));
    std::vector<int> gave(slots);
    for (size_t bucket = 0; bucket < home.size(); ++bucket) {
      if (home[bucket] == grown[bucket]) continue;
      EXPECT_EQ(grown[bucket], slots) << "a bucket moved between two slots that stay";
      ++gave[home[bucket]];
    }
    EXPECT_LE(*std::max_element(gave.begin(), gave.end()) - *std::min_element(gave.begin(), gave.end()), 2);
  });
}

TEST(Table, FromFourWorkersToFiveAFifthMoves) {
  const Home home = *NewHome({1, 1, 1, 1});
  EXPECT_EQ(Moved(home, *MoveHome(home, {1, 1, 1, 1, 1})), 204);
}

TEST(Table, BadWeightsAreRefusedByName) {
  const auto message = [](absl::Span<const double> weights) { return std::string(Shares(weights).status().message()); };
  EXPECT_THAT(message({}), HasSubstr("no slot has a weight above 0"));
  EXPECT_THAT(message({0, 0}), HasSubstr("no slot has a weight above 0"));
  EXPECT_THAT(message({1, -1}), HasSubstr("slot 1 is -1"));
  EXPECT_THAT(message({1, std::nan("")}), HasSubstr("slot 1 is nan"));
  EXPECT_THAT(message({1, INFINITY}), HasSubstr("slot 1 is inf"));
  EXPECT_THAT(message({1e308, 1e308}), HasSubstr("too large"));
  EXPECT_THAT(message({1, 10000}), HasSubstr("less than half a bucket"));
  EXPECT_THAT(message(std::vector<double>(257, 1.0)), HasSubstr("257 workers"));
}

TEST(Entries, ASlotWithAWorkerHasEntriesThatAreNotVacant) {
  const Home home = *NewHome({1, 1, 1});
  for (const hr_steer_entry& entry : Entries(home, {1, 1, 1}, {false, true, false}, HR_STEER_KERNEL)) {
    EXPECT_EQ(entry.is_vacant != 0, entry.slot == 1);
    EXPECT_EQ(entry.empty, HR_STEER_KERNEL);
  }
}

TEST(Entries, TheBucketsOfAnEmptySlotGoToTheOthersByTheirWeights) {
  const std::vector<double> weights = {4, 2, 1, 0};
  const Home home = *NewHome(weights);
  std::vector<int> to(4);
  int all = 0;
  for (const hr_steer_entry& entry : Entries(home, weights, {true, false, false, false}, HR_STEER_OTHER)) {
    if (entry.slot != 0) continue;
    ++all;
    ++to[entry.other_slot];
  }
  EXPECT_EQ(to[0] + to[3], 0) << "to an empty slot, or to one without weight";
  EXPECT_NEAR(static_cast<double>(to[1]) / all, 2.0 / 3, 0.08);
}

TEST(Entries, WhereTheNextSlotIsEmptyTooTheOneAfterItTakesTheBucket) {
  const std::vector<double> weights(5, 1.0);
  const Home home = *NewHome(weights);
  const auto first = Entries(home, weights, {true}, HR_STEER_OTHER);
  for (size_t bucket = 0; bucket < home.size(); ++bucket) {
    std::vector<bool> empty(5);
    empty[0] = empty[first[bucket].other_slot] = true;
    const auto next = Entries(home, weights, empty, HR_STEER_OTHER);
    EXPECT_FALSE(empty[next[bucket].other_slot]);
  }
}

TEST(Entries, WhereNoSlotIsLeftTheKernelChoosesIfThePolicySaysSo) {
  const auto entries = Entries(*NewHome({1, 1}), {1, 1}, {true, false}, HR_STEER_OTHER_OR_KERNEL);
  for (const hr_steer_entry& entry : entries)
    EXPECT_EQ(entry.empty, entry.slot == 0 ? HR_STEER_OTHER_OR_KERNEL : HR_STEER_KERNEL);
  for (const hr_steer_entry& entry : Entries(*NewHome({1, 1}), {1, 1}, {true, true}, HR_STEER_OTHER_OR_KERNEL)) {
    EXPECT_EQ(entry.empty, HR_STEER_KERNEL);
    EXPECT_TRUE(entry.is_vacant);
  }
}

TEST(Entries, TheOnlySlotIsRejectedWhereItIsEmpty) {
  for (const hr_steer_entry& entry : Entries(*NewHome({1}), {1}, {true}, HR_STEER_OTHER)) {
    EXPECT_EQ(entry.empty, HR_STEER_REJECT);
    EXPECT_TRUE(entry.is_vacant);
  }
}

}  // namespace
}  // namespace hedgerow::steer
