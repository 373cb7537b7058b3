// SPDX-License-Identifier: Apache-2.0
#include "net/steady_wait.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "net/clock_set_back_test.h"

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
  SteadyNotification never;
  const double began = Seconds();
  EXPECT_FALSE(never.WaitFor(absl::Milliseconds(50)));
  EXPECT_GE(Seconds() - began, 0.05);
}

TEST(SteadyWait, WithoutATimeoutEndsWhenItIsToldTo) {
  SteadyNotification stop;
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
  SteadyCondVar changed;
  bool done = false;
  std::thread other([&] {
    absl::SleepFor(absl::Milliseconds(20));
    const absl::MutexLock lock(&mutex);
    done = true;
    changed.SignalAll();
  });
  {
    const absl::MutexLock lock(&mutex);
    EXPECT_TRUE(changed.Await(mutex, absl::Hours(1), [&] { return done; }));
    EXPECT_TRUE(changed.Await(mutex, absl::ZeroDuration(), [&] { return done; }));
  }
  other.join();
}

// Conditions that come true as waits end, with mutexes that are gone right afterwards.
TEST(SteadyWait, ManyEndAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 200; ++n) {
        SteadyNotification signal;
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
