// SPDX-License-Identifier: Apache-2.0
//
// Waits in a process whose wall clock is an hour ahead of the kernel's, as it is for a wait that began before the clock
// was set back by an hour.
#include "net/steady_wait.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/clock.h"

extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += 3600;
  return result;
}

// Abseil takes the deadline of a wait from it.
extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  const int result = static_cast<int>(syscall(SYS_gettimeofday, time, zone));
  time->tv_sec += 3600;
  return result;
}

namespace hedgerow::net {
namespace {

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

TEST(SteadyWait, EndsAtItsTimeThoughTheClockWasSetBack) {
  timespec kernel{};
  ASSERT_EQ(syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernel), 0);
  ASSERT_GT(absl::ToUnixSeconds(absl::Now()), kernel.tv_sec + 3000) << "this test would prove nothing";
  StopSignal never;
  const double began = Seconds();
  EXPECT_FALSE(never.WaitFor(absl::Milliseconds(50)));
  EXPECT_GE(Seconds() - began, 0.05);
}

TEST(SteadyWait, WithoutATimeoutEndsWhenItIsToldTo) {
  StopSignal stop;
  const double began = Seconds();
  std::thread other([&] {
    absl::SleepFor(absl::Milliseconds(50));
    stop.Notify();
  });
  EXPECT_TRUE(stop.WaitFor(absl::InfiniteDuration()));
  EXPECT_GE(Seconds() - began, 0.05);
  other.join();
}

TEST(SteadyWait, EndsWhenItsConditionHolds) {
  absl::Mutex mutex;
  bool done = false;
  std::thread other([&] {
    absl::SleepFor(absl::Milliseconds(20));
    const absl::MutexLock lock(&mutex);
    done = true;
  });
  {
    const absl::MutexLock lock(&mutex);
    EXPECT_TRUE(AwaitSteadily(mutex, absl::Condition(&done), absl::Hours(1)));
    EXPECT_TRUE(AwaitSteadily(mutex, absl::Condition(&done), absl::ZeroDuration()));
  }
  other.join();
}

// Conditions that come true as waits end, with mutexes that are gone right afterwards.
TEST(SteadyWait, ManyEndAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 200; ++n) {
        StopSignal signal;
        std::thread notifies([&] {
          absl::SleepFor(absl::Microseconds(100 * (n % 12)));
          signal.Notify();
        });
        (void)signal.WaitFor(absl::Microseconds(500 + 10 * i));
        notifies.join();
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

}  // namespace
}  // namespace hedgerow::net
