// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/arrival_clock.h"

#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kReal = 1'700'000'000 * kSecond;  // when the monotonic clock was 0

TEST(ArrivalClock, AStampSaysHowLongItWaited) {
  ArrivalClock clock;
  clock.Reading(10 * kSecond, kReal + 10 * kSecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 8 * kSecond), 2 * kSecond)
      << "the first reading has nothing to compare with";
  clock.Reading(18 * kSecond, kReal + 18 * kSecond + kMillisecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 11 * kSecond), 7 * kSecond + kMillisecond);
}

// A node that stood still while its clock was set back by all that time.
TEST(ArrivalClock, AClockThatWasSetMakesNothingYounger) {
  ArrivalClock clock;
  clock.Reading(10 * kSecond, kReal + 10 * kSecond);
  clock.Reading(18 * kSecond, kReal + 11 * kSecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 10 * kSecond + 1), 8 * kSecond);
  clock.Reading(18 * kSecond + kMillisecond, kReal + 11 * kSecond + kMillisecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 11 * kSecond), kMillisecond) << "it goes on from there";
  EXPECT_EQ(clock.Waited_ns(kReal + 12 * kSecond), kMillisecond) << "of the future: since the reading before";
}

TEST(ArrivalClock, AClockThatIsSlewedIsNotSet) {
  ArrivalClock clock;
  clock.Reading(10 * kSecond, kReal + 10 * kSecond);
  clock.Reading(110 * kSecond, kReal + 110 * kSecond + 50 * kMillisecond);  // 500 ppm
  EXPECT_EQ(clock.Waited_ns(kReal + 110 * kSecond), 50 * kMillisecond);
}

}  // namespace
}  // namespace hedgerow::node
