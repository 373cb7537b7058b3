// SPDX-License-Identifier: Apache-2.0
//
// The event loop: calls from other threads run on it, one at a time, and end
// well when the loop is stuck or gone.

#include "operate/event_loop.h"

#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include "net/clock_set_back_test.h"
#include "net/steady_wait.h"

namespace hedgerow {
namespace {

TEST(EventLoop, ACallRunsOnTheLoopsThread) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok()) << loop.status();
  std::thread runner([&] { (*loop)->Run(); });
  const std::thread::id runner_id = runner.get_id();
  const absl::StatusOr<bool> same = (*loop)->Call<bool>(
      absl::Seconds(10), [&]() -> absl::StatusOr<bool> { return std::this_thread::get_id() == runner_id; });
  EXPECT_TRUE(same.ok() && *same);
  (*loop)->Stop();
  runner.join();
}

TEST(EventLoop, ACallIsGivenUpAtItsTimeThoughTheClockWasSetBack) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok()) << loop.status();
  const absl::Time began = net::MonotonicNow();
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      (*loop)->Call<bool>(absl::Milliseconds(50), []() -> absl::StatusOr<bool> { return true; }).status()));
  EXPECT_GE(net::MonotonicNow() - began, absl::Milliseconds(50));
}

TEST(EventLoop, ACallAfterTheEndIsUnavailable) {
  auto loop = EventLoop::Create();
  (*loop)->Stop();
  (*loop)->Run();
  const auto result = (*loop)->Call<int>(absl::Seconds(10), []() -> absl::StatusOr<int> { return 1; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
}

TEST(EventLoop, ACallThatTimedOutNeverRuns) {
  auto loop = EventLoop::Create();
  bool ran = false;
  const auto result = (*loop)->Call<int>(absl::Milliseconds(5), [&]() -> absl::StatusOr<int> {
    ran = true;
    return 1;
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  (*loop)->Stop();
  (*loop)->Run();
  EXPECT_FALSE(ran);
}

TEST(EventLoop, WhatWasPostedBeforeStopStillRuns) {
  auto loop = EventLoop::Create();
  int ran = 0;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE((*loop)->Post([&] { ++ran; }));
  (*loop)->Stop();
  (*loop)->Run();
  EXPECT_EQ(ran, 10);
}

TEST(EventLoop, TheQueueIsBounded) {
  auto loop = EventLoop::Create();
  for (size_t i = 0; i < EventLoop::kMaxPosted; ++i) EXPECT_TRUE((*loop)->Post([] {}));
  EXPECT_FALSE((*loop)->Post([] {}));
}

TEST(EventLoop, AStoppedTimerFiresNoMore) {
  auto loop = EventLoop::Create();
  int stopped = 0;
  int turns = 0;
  absl::StatusOr<int> timer = 0;
  timer = (*loop)->StartTimer(absl::Milliseconds(1), [&] {
    ++stopped;
    (*loop)->StopTimer(*timer);
  });
  ASSERT_TRUE(timer.ok());
  ASSERT_TRUE((*loop)
                  ->StartTimer(absl::Milliseconds(2),
                               [&] {
                                 if (++turns == 5) (*loop)->Stop();
                               })
                  .ok());
  (*loop)->Run();
  EXPECT_EQ(stopped, 1);
}

TEST(EventLoop, TimersFireAndACallbackMayUnwatchItself) {
  auto loop = EventLoop::Create();
  int turns = 0;
  int reads = 0;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_TRUE((*loop)
                  ->Watch(ends[0],
                          [&] {
                            ++reads;
                            (*loop)->Unwatch(ends[0]);
                            return true;
                          })
                  .ok());
  ASSERT_TRUE((*loop)
                  ->StartTimer(absl::Milliseconds(1),
                               [&] {
                                 if (++turns == 5) (*loop)->Stop();
                               })
                  .ok());
  (*loop)->Run();
  EXPECT_EQ(turns, 5);
  EXPECT_EQ(reads, 1);
  close(ends[0]);
  close(ends[1]);
}

TEST(EventLoop, TurnsAreCountedByWhetherAnythingHadCome) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE((*loop)->StartTimer(absl::Milliseconds(20), [&] { (*loop)->Stop(); }).ok());
  EXPECT_TRUE((*loop)->Post([] {}));
  (*loop)->Run();
  EXPECT_GE((*loop)->turns().worked, 1u);
  EXPECT_LE((*loop)->turns().worked + (*loop)->turns().idle, 5u) << "an idle loop sleeps";
}

TEST(EventLoop, ADescriptorThatIsNotReadIsSeenByItsTurns) {
  auto loop = EventLoop::Create();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_TRUE((*loop)->Watch(ends[0], [] { return false; }).ok());
  ASSERT_TRUE((*loop)->StartTimer(absl::Milliseconds(20), [&] { (*loop)->Stop(); }).ok());
  (*loop)->Run();
  EXPECT_GT((*loop)->turns().idle, 50u);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace hedgerow
