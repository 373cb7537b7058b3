// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// How loaded a backend is, as pure functions (bpf/proxy/load.h): the levels, the median by steps, where answers slow
// down, and who counts as idle.
#include "bpf/proxy/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>
#include <vector>

namespace hedgerow {
namespace {

TEST(LoadLevel, EachNumberInFlightHasOneAndTheyRise) {
  uint32_t level = 0;
  for (uint32_t n = 1; n < 100'000; ++n) {
    const uint32_t next = hr_load_level(n);
    ASSERT_LT(next, unsigned{HR_LOAD_LEVELS});
    ASSERT_TRUE(next == level || next == level + 1) << n;
    if (next == level + 1) ASSERT_EQ(hr_load_level_from(next), n) << "its first";
    level = next;
  }
  EXPECT_EQ(hr_load_level(1), 0u);
  EXPECT_EQ(hr_load_level_from(0), 1u);
  EXPECT_EQ(hr_load_level(~0u), unsigned{HR_LOAD_LEVELS} - 1);
}

TEST(NextMedian, FollowsTheMedianOfASkewedDistributionAndNotItsTail) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> usual(std::log(2000.0), 0.5);
  std::bernoulli_distribution stalls(0.02);
  uint32_t median = 0;
  for (uint32_t i = 0; i < 5000; ++i) {
    const double us = stalls(random) ? 400'000 : usual(random);
    median = hr_next_median(median, i, static_cast<uint32_t>(us));
    if (i > 200) {
      ASSERT_GT(median, 1400u) << i;
      ASSERT_LT(median, 2900u) << i;
    }
  }
  for (uint32_t i = 0; i < 400; ++i) median = hr_next_median(median, 5000 + i, 9000);
  EXPECT_NEAR(median, 9000, 150) << "it follows a change";
  EXPECT_EQ(hr_next_median(0, 0, 0), 1u) << "0 is no median";
  EXPECT_EQ(hr_next_median(1, 100, 0), 1u);
}

// A server of so many workers with a queue in front, in simulated time: open arrivals, and what a proxy would note.
hr_backend_load Simulate(double workers, double share_of_capacity, int requests, bool heavy_tail = false) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> tail(std::log(2000.0) - 0.5, 1.0);
  std::bernoulli_distribution stalls(0.02);
  const double mean_us = heavy_tail ? 2000 : 0.98 * 2000 + 0.02 * 400'000;
  std::exponential_distribution<double> gap(share_of_capacity * workers / mean_us);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < workers; ++i) free_at.push(0);
  struct End {
    double at, took;
    bool operator<(const End &other) const { return at > other.at; }
  };
  std::priority_queue<End> ends;
  hr_backend_load load{};
  double now = 0;
  const auto end_until = [&](double until) {
    while (!ends.empty() && ends.top().at <= until) {
      const uint32_t level = hr_load_level(static_cast<uint32_t>(ends.size()));
      load.median[level] =
          hr_next_median(load.median[level], load.samples[level], static_cast<uint32_t>(ends.top().took / 1.024));
      ++load.samples[level];
      ends.pop();
    }
  };
  for (int i = 0; i < requests; ++i) {
    now += gap(random);
    end_until(now);
    const double start = std::max(now, free_at.top());
    free_at.pop();
    const double end = start + (heavy_tail ? tail(random) : stalls(random) ? 400'000 : 2000);
    free_at.push(end);
    ends.push({end, end - now});
  }
  load.in_flight = static_cast<int32_t>(ends.size());
  return load;
}

TEST(SlowAt, IsFoundNearTheNumberOfWorkersOnceTheyWereAllBusy) {
  for (const int workers : {1, 4, 32}) {
    for (const bool heavy_tail : {false, true}) {
      const hr_backend_load load = Simulate(workers, 0.9, 60'000, heavy_tail);
      const uint32_t slow_at = hr_slow_at(&load);
      EXPECT_GE(slow_at, static_cast<uint32_t>(workers - workers / 4)) << workers << heavy_tail;
      EXPECT_LE(slow_at, static_cast<uint32_t>(workers + workers / 2 + 2)) << workers << heavy_tail;
    }
  }
}

TEST(SlowAt, IsNotKnownWhereNothingEverWaited) {
  const hr_backend_load load = Simulate(256, 0.1, 60'000);
  EXPECT_EQ(hr_slow_at(&load), 0u);
  EXPECT_EQ(hr_load(load.in_flight, 0, 0), 0u) << "and such a backend is idle";
}

TEST(SlowAt, AHigherLevelThatIsFastTakesItBack) {
  hr_backend_load load{};
  for (int level = 0; level < 9; ++level) {
    load.samples[level] = HR_LEVEL_SAMPLES;
    load.median[level] = level < 5 ? 100 : 200;
  }
  EXPECT_EQ(hr_slow_at(&load), hr_load_level_from(5));
  load.median[8] = 120;
  EXPECT_EQ(hr_slow_at(&load), 0u);
  load.samples[8] = HR_LEVEL_SAMPLES - 1;
  EXPECT_EQ(hr_slow_at(&load), hr_load_level_from(5)) << "too few samples say nothing";
}

TEST(SlowAt, OneSlowLevelMayBeChance) {
  hr_backend_load load{};
  for (int level = 0; level < 9; ++level) {
    load.samples[level] = HR_LEVEL_SAMPLES;
    load.median[level] = 100 + 10 * (level % 3);
  }
  load.median[8] = 200;
  EXPECT_EQ(hr_slow_at(&load), 0u);
  load.median[7] = 160;
  EXPECT_EQ(hr_slow_at(&load), hr_load_level_from(7));
}

TEST(Load, IsWhatIsMore) {
  EXPECT_EQ(hr_load(8, 32, 0), 64u);
  EXPECT_EQ(hr_load(8, 32, 100), 100u);
  EXPECT_EQ(hr_load(8, 32, 63), 64u);
  EXPECT_EQ(hr_load(8, 0, 0), 0u) << "nothing has slowed it yet";
  EXPECT_EQ(hr_load(-1, 32, 0), 0u);
  EXPECT_GT(hr_load(1 << 30, 1, 0), 1u << 20) << "no overflow";
}

TEST(ReportedWithoutCopies, HalvesWhereEachRequestHasACopy) {
  EXPECT_EQ(hr_reported_without_copies(200, 0), 200u);
  EXPECT_EQ(hr_reported_without_copies(200, 65536), 100u);
  EXPECT_EQ(hr_reported_without_copies(300, 32768), 200u);
}

TEST(Smooth, IsTheAverageOfTheLastLooksAndFallsToNothing) {
  std::mt19937 random(5);
  std::bernoulli_distribution busy(0.3);
  uint32_t smoothed = 0;
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) sum += smoothed = hr_smooth(smoothed, busy(random) ? 65536 : 0, 4);
  EXPECT_NEAR(sum / 10'000, 0.3 * 65536, 2000);
  for (int i = 0; i < 400; ++i) smoothed = hr_smooth(smoothed, 65536, 4);
  EXPECT_EQ(smoothed, 65536u);
  for (int i = 0; i < 400; ++i) smoothed = hr_smooth(smoothed, 0, 4);
  EXPECT_EQ(smoothed, 0u);
  EXPECT_EQ(hr_smooth(~0u, ~0u, 4), ~0u);
}

TEST(Idle, SurelyUpToTheShareNeverFromHalfAsMuchAgainAndLessOftenBetween) {
  std::mt19937 random(3);
  constexpr uint32_t kShare = 77;
  double last = 1.1;
  for (uint32_t load = 0; load <= 3 * kShare / 2 + 5; ++load) {
    int idle = 0;
    for (int i = 0; i < 4000; ++i) idle += hr_load_is_idle(load, kShare, static_cast<uint32_t>(random()));
    if (load <= kShare) ASSERT_EQ(idle, 4000);
    if (2 * load >= 3 * kShare) ASSERT_EQ(idle, 0);
    ASSERT_EQ(hr_load_is_busy(load, kShare) != 0, 2 * load >= 3 * kShare);
    ASSERT_LT(idle / 4000.0, last + 0.05) << load;
    last = idle / 4000.0;
  }
  EXPECT_EQ(hr_load_is_idle(0, 0, 0), 0) << "a share of 0 is off";
}

TEST(ChoiceByLoad, TheColdOnesComeFirstByTimeAndTheHotOnesByLoad) {
  const uint32_t cold_fast = hr_choice_by_load(0, 1'000'000), cold_slow = hr_choice_by_load(255, 900'000'000);
  const uint32_t hot = hr_choice_by_load(256, 1'000), hotter = hr_choice_by_load(700, 0);
  EXPECT_LT(cold_fast, cold_slow);
  EXPECT_LT(cold_slow, hot);
  EXPECT_LT(hot, hotter);
  EXPECT_LT(hotter, hr_choice_by_load(~0u, ~0ull));
}

}  // namespace
}  // namespace hedgerow
