// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/net/arrival_clock.h"

#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kReal = 1'700'000'000 * kSecond;  // when the monotonic clock was 0

TEST(ArrivalClock, AStampSaysHowLongItWaited) {
  ArrivalClock clock;
  clock.Took(10 * kSecond, kReal + 10 * kSecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 8 * kSecond), 2 * kSecond) << "at first there is nothing to compare with";
  clock.Emptied(10 * kSecond);
  clock.Took(18 * kSecond, kReal + 18 * kSecond + kMillisecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 11 * kSecond), 7 * kSecond + kMillisecond);
}

// A node that stood still while its clock was set back by all that time, with more in its socket than it takes
// at once.
TEST(ArrivalClock, AClockThatWasSetMakesNothingYounger) {
  ArrivalClock clock;
  clock.Took(10 * kSecond, kReal + 10 * kSecond);
  clock.Emptied(10 * kSecond);
  clock.Took(18 * kSecond, kReal + 11 * kSecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 10 * kSecond + 1), 8 * kSecond);
  clock.Took(18 * kSecond + kMillisecond, kReal + 11 * kSecond + kMillisecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 17 * kSecond), 8 * kSecond + kMillisecond) << "the rest was stamped before";
  clock.Emptied(18 * kSecond + kMillisecond);
  clock.Took(19 * kSecond, kReal + 12 * kSecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 12 * kSecond - kMillisecond), kMillisecond) << "and it goes on from there";
}

TEST(ArrivalClock, AClockThatIsSlewedIsNotSet) {
  ArrivalClock clock;
  clock.Took(10 * kSecond, kReal + 10 * kSecond);
  clock.Emptied(10 * kSecond);
  clock.Took(110 * kSecond, kReal + 110 * kSecond + 50 * kMillisecond);  // 500 ppm
  EXPECT_EQ(clock.Waited_ns(kReal + 110 * kSecond), 50 * kMillisecond);
}

TEST(ArrivalClock, NothingHasWaitedLongerThanSinceTheSocketWasEmpty) {
  ArrivalClock clock;
  clock.Took(10 * kSecond, kReal + 10 * kSecond);
  clock.Emptied(70 * kSecond);
  clock.Took(70 * kSecond + kMillisecond, kReal + 50 * kSecond);
  EXPECT_EQ(clock.Waited_ns(kReal + 50 * kSecond), kMillisecond);
}

}  // namespace
}  // namespace hedgerow::node
