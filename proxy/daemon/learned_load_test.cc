// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/learned_load.h"

#include <gtest/gtest.h>

#include <vector>

#include "bpf/proxy/load.h"

namespace hedgerow {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

hr_backend_load Levels(const std::vector<uint32_t>& medians) {
  hr_backend_load load{};
  for (size_t i = 0; i < medians.size(); ++i) {
    load.median[i] = medians[i];
    load.samples[i] = medians[i] > 0 ? 1000 : 0;
  }
  return load;
}

// Twenty clients ask a server that was restarted with fewer workers: more than twenty are never in flight, and what
// larger numbers said about the former server would never be corrected.
TEST(SlowAt, WhatIsSlowNowOutweighsWhatHigherLevelsSaidBefore) {
  SlowAt slow_at;
  hr_backend_load load = Levels({100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 300, 300});
  uint64_t now_ns = kSecond;
  EXPECT_EQ(slow_at.Look(now_ns, load), hr_load_level_from(11));
  now_ns += SlowAt::kRecentNs + kSecond;
  for (const size_t level : {4u, 5u, 6u, 7u}) {
    load.median[level] = 500;
    ++load.samples[level];
  }
  EXPECT_EQ(slow_at.Look(now_ns, load), hr_load_level_from(4));
}

TEST(SlowAt, LittleLoadTakesNothingBack) {
  SlowAt slow_at;
  hr_backend_load load = Levels({100, 100, 100, 100, 100, 100, 300, 500});
  EXPECT_EQ(slow_at.Look(kSecond, load), hr_load_level_from(6));
  for (uint64_t minute = 1; minute < 60; ++minute) {
    ++load.samples[0];
    ++load.samples[1];
    EXPECT_EQ(slow_at.Look(kSecond + minute * 60 * kSecond, load), hr_load_level_from(6)) << "a quiet night";
  }
  ++load.samples[0];
  EXPECT_EQ(slow_at.Look(2 * kSecond + SlowAt::kRememberNs, load), 0u) << "not for ever: the server may be another one";
}

TEST(SlowAt, ABusyDayDoesNotForgetHowFastTheServerIsWhenItIsIdle) {
  SlowAt slow_at;
  hr_backend_load load = Levels({100, 100, 100, 100, 300, 500});
  for (uint64_t now_ns = kSecond; now_ns < 3 * SlowAt::kRememberNs; now_ns += 60 * kSecond) {
    ++load.samples[4];
    ++load.samples[5];
    ASSERT_EQ(slow_at.Look(now_ns, load), hr_load_level_from(4));
  }
}

// 40 requests a second are lost, each of which counts for a second.
TEST(LostRequests, AreThoseThatCountedWithoutAnAnswerAsManyAsOnAverage) {
  LostRequests lost;
  uint64_t lost_ns = 5 * kSecond;
  EXPECT_EQ(lost.Look(kSecond, lost_ns, 50), 0) << "the first look has nothing to compare with";
  for (uint64_t second = 2; second < 10; ++second) {
    lost_ns += 40 * kSecond;
    lost.Look(second * kSecond, lost_ns, 50);
  }
  EXPECT_EQ(lost.Look(10 * kSecond, lost_ns + 40 * kSecond, 50), 39);
  EXPECT_EQ(lost.Look(11 * kSecond, lost_ns + 80 * kSecond, 7), 7) << "no more than there are";
  for (uint64_t second = 12; second < 20; ++second) lost.Look(second * kSecond, lost_ns + 80 * kSecond, 50);
  EXPECT_EQ(lost.Look(20 * kSecond, lost_ns + 80 * kSecond, 50), 0);
}

}  // namespace
}  // namespace hedgerow
