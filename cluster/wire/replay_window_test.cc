// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/replay_window.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace hedgerow::wire {
namespace {

using Verdict = ReplayWindow::Verdict;
constexpr uint64_t kMax = UINT64_MAX;

TEST(ReplayWindow, TakesEachNumberOnce) {
  ReplayWindow window;
  for (uint64_t number = 1; number <= 10'000; ++number) {
    EXPECT_EQ(window.Take(number), Verdict::kNew);
    EXPECT_EQ(window.Take(number), Verdict::kSeen);
  }
  EXPECT_EQ(window.highest(), 10'000u);
}

TEST(ReplayWindow, TakesThemInAnyOrderWithinItsWidth) {
  ReplayWindow window;
  for (uint64_t number = ReplayWindow::kNumbers; number >= 1; --number) {
    EXPECT_EQ(window.Take(number), Verdict::kNew) << number;
  }
  for (uint64_t number = 1; number <= ReplayWindow::kNumbers; ++number) {
    EXPECT_EQ(window.Take(number), Verdict::kSeen) << number;
  }
}

TEST(ReplayWindow, IsExactlyAsWideAsItSays) {
  ReplayWindow window;
  ASSERT_EQ(window.Take(10'000), Verdict::kNew);
  EXPECT_EQ(window.Take(10'000 - ReplayWindow::kNumbers), Verdict::kTooOld);
  EXPECT_EQ(window.Take(10'000 - ReplayWindow::kNumbers + 1), Verdict::kNew);
}

TEST(ReplayWindow, WhatLiesUpToItsFloorIsOld) {
  ReplayWindow window(500);
  EXPECT_EQ(window.Take(0), Verdict::kTooOld);
  EXPECT_EQ(window.Take(500), Verdict::kTooOld);
  EXPECT_EQ(window.Take(502), Verdict::kNew);
  EXPECT_EQ(window.Take(499), Verdict::kTooOld);
  EXPECT_EQ(window.Take(501), Verdict::kNew);
}

TEST(ReplayWindow, ALeapForgetsNothingItMustKnow) {
  for (const uint64_t leap : {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 100'000u}) {
    ReplayWindow window;
    ASSERT_EQ(window.Take(1000), Verdict::kNew);
    ASSERT_EQ(window.Take(1000 + leap), Verdict::kNew);
    EXPECT_EQ(window.Take(1000), leap < ReplayWindow::kNumbers ? Verdict::kSeen : Verdict::kTooOld) << leap;
    EXPECT_EQ(window.Take(1000 + leap), Verdict::kSeen) << leap;
    if (leap > 1) {
      EXPECT_EQ(window.Take(1000 + leap - 1), Verdict::kNew) << leap;
    }
  }
}

TEST(ReplayWindow, EndsWithTheNumbers) {
  ReplayWindow window(kMax - 70);
  EXPECT_EQ(window.Take(kMax - 1), Verdict::kNew);
  EXPECT_EQ(window.Take(kMax), Verdict::kNew);
  EXPECT_EQ(window.Take(kMax), Verdict::kSeen);
  EXPECT_EQ(window.Take(kMax - 69), Verdict::kNew);
  EXPECT_EQ(window.Take(kMax - 70), Verdict::kTooOld);
}

// Against a set that remembers everything.
TEST(ReplayWindow, AgreesWithAnUnboundedMemory) {
  for (const uint64_t reach : {10u, 200u, 5'000u, 20'000u}) {
    std::mt19937_64 random(reach);
    ReplayWindow window;
    std::set<uint64_t> seen;
    uint64_t highest = 0;
    for (int i = 0; i < 20'000; ++i) {
      const bool forward = random() % 2 == 0;
      const uint64_t number = forward ? highest + 1 + random() % 3 : highest - std::min(highest, random() % reach);
      const Verdict verdict = window.Take(number);
      if (number == 0 || (highest >= ReplayWindow::kNumbers && number <= highest - ReplayWindow::kNumbers)) {
        ASSERT_EQ(verdict, Verdict::kTooOld) << number << " below " << highest;
        continue;
      }
      ASSERT_EQ(verdict, seen.insert(number).second ? Verdict::kNew : Verdict::kSeen) << number;
      highest = std::max(highest, number);
    }
    EXPECT_GT(highest, 2 * ReplayWindow::kNumbers) << "the walk did not get far enough to say anything";
  }
}

}  // namespace
}  // namespace hedgerow::wire
