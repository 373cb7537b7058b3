// SPDX-License-Identifier: Apache-2.0
//
// What slides out of the minute, and what a kernel part that starts anew does to it.

#include "proxy/page/minute_histogram.h"

#include <gtest/gtest.h>

#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

TEST(MinuteHistogram, TheFirstOneIsThePastAndNoneOfTheMinute) {
  Histogram total;
  Record(total, 5'000'000, 1000);
  MinuteHistogram minute;
  EXPECT_EQ(minute.Add(7 * kSecondNs, total).Count(), 0u);
  EXPECT_EQ(minute.Recent().Count(), 0u);
  Record(total, 9'000'000, 3);
  EXPECT_EQ(minute.Add(8 * kSecondNs, total).Count(), 3u);
  EXPECT_EQ(minute.Recent().Count(), 3u);
}

TEST(MinuteHistogram, ForgetsWhatIsOlderThanAMinute) {
  Histogram total;
  MinuteHistogram minute;
  minute.Add(0, total);
  Record(total, 50'000'000, 10);
  minute.Add(1 * kSecondNs, total);
  for (uint64_t second = 2; second <= 60; ++second) {
    Record(total, 1'000'000, 1);
    minute.Add(second * kSecondNs, total);
  }
  EXPECT_EQ(minute.Recent().Count(), 10u + 59u);
  EXPECT_GE(minute.Recent().QuantileNs(0.99), 50'000'000u);
  Record(total, 1'000'000, 1);
  minute.Add(61 * kSecondNs, total);
  EXPECT_EQ(minute.Recent().Count(), 60u);
  EXPECT_LT(minute.Recent().QuantileNs(0.99), 2'000'000u);
  minute.Add(200 * kSecondNs, total);
  EXPECT_EQ(minute.Recent().Count(), 0u);
}

TEST(MinuteHistogram, CountersThatStartAnewAreNoHugeNumber) {
  Histogram total;
  Record(total, 1'000'000, 500);
  MinuteHistogram minute;
  minute.Add(0, total);
  Histogram anew;
  Record(anew, 2'000'000, 4);
  EXPECT_EQ(minute.Add(kSecondNs, anew).Count(), 4u);
  EXPECT_EQ(minute.Recent().Count(), 4u);
}

}  // namespace
}  // namespace hedgerow
