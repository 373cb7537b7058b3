// SPDX-License-Identifier: Apache-2.0
//
// The daemon's side of a trace: on while somebody listens, off soon after, one at a time, and never for a
// client that has stopped taking anything.

#include "proxy/trace/tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;

// Long beside a turn, and short beside a test.
constexpr absl::Duration kPatience = absl::Seconds(1);

struct FakeKernel {
  int open = 0;
  int opened = 0;
  int renewals = 0;
  uint64_t lease_ns = 0;
  std::vector<hr_trace_event> waiting;
  TraceLoss loss;
};

class FakeSource final : public TraceSource {
 public:
  explicit FakeSource(FakeKernel& kernel) : kernel_(kernel) {
    ++kernel_.open;
    ++kernel_.opened;
  }
  ~FakeSource() override { --kernel_.open; }
  void Renew(uint64_t lease_ns) override {
    ++kernel_.renewals;
    kernel_.lease_ns = lease_ns;
  }
  size_t Drain(size_t limit, const OnEvent& on_event) override {
    const size_t count = std::min(limit, kernel_.waiting.size());
    for (size_t i = 0; i < count; ++i) on_event(kernel_.waiting[i]);
    kernel_.waiting.erase(kernel_.waiting.begin(), kernel_.waiting.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  TraceLoss Loss() const override { return kernel_.loss; }

 private:
  FakeKernel& kernel_;
};

// The kernel is touched on the loop's thread only, as the tracer does.
class TracerTest : public testing::Test {
 protected:
  TracerTest()
      : loop_(*EventLoop::Create()),
        tracer_(std::make_unique<Tracer>(*loop_, kPatience)),
        runner_([this] { loop_->Run(); }) {}
  ~TracerTest() override {
    loop_->Stop();
    runner_.join();
    tracer_.reset();
    EXPECT_EQ(kernel_.open, 0) << "nobody traces after the daemon's end";
  }

  absl::StatusOr<std::shared_ptr<TraceStream>> Start() {
    return loop_->Call<std::shared_ptr<TraceStream>>(absl::Seconds(5), [this] {
      return tracer_->Start([this]() -> absl::StatusOr<std::unique_ptr<TraceSource>> {
        if (!refusal_.ok()) return refusal_;
        return std::make_unique<FakeSource>(kernel_);
      });
    });
  }
  FakeKernel Kernel() {
    return *loop_->Call<FakeKernel>(absl::Seconds(5), [this]() -> absl::StatusOr<FakeKernel> { return kernel_; });
  }
  void OnLoop(const std::function<void()>& body) {
    ASSERT_TRUE(loop_
                    ->Call<int>(absl::Seconds(5),
                                [&body]() -> absl::StatusOr<int> {
                                  body();
                                  return 0;
                                })
                    .ok());
  }
  bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) absl::SleepFor(absl::Milliseconds(10));
    return condition();
  }
  static hr_trace_event WithIds(uint64_t number) {
    hr_trace_event event{};
    event.request = number;
    return event;
  }

  FakeKernel kernel_;
  absl::Status refusal_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Tracer> tracer_;
  std::thread runner_;
};

TEST_F(TracerTest, NoClientListensNothingIsOpen) {
  absl::SleepFor(2 * kTraceTurn);
  EXPECT_EQ(Kernel().opened, 0);
}

TEST_F(TracerTest, EventsComeInOrderAndTheLeaseIsRenewed) {
  auto stream = Start();
  ASSERT_TRUE(stream.ok()) << stream.status();
  OnLoop([this] {
    for (uint64_t i = 1; i <= 3; ++i) kernel_.waiting.push_back(WithIds(i));
    kernel_.loss = {.requests = 5, .events = 6};
  });
  const TraceStream::Batch batch = (*stream)->Take(absl::Seconds(5));
  ASSERT_EQ(batch.events.size(), 3u);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(batch.events[i - 1].request, i);
  EXPECT_EQ(batch.loss.requests, 5u);
  EXPECT_EQ(batch.loss.events, 6u);
  const int before = Kernel().renewals;
  EXPECT_TRUE(Eventually([&] { return Kernel().renewals > before + 2; }));
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto now_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  EXPECT_LE(Kernel().lease_ns, now_ns + static_cast<uint64_t>(absl::ToInt64Nanoseconds(kTraceLease)))
      << "never for longer than its lease";
  (*stream)->Abandon();
}

TEST_F(TracerTest, WithItsClientTheTraceIsGone) {
  auto stream = Start();
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(Kernel().open, 1);
  (*stream)->Abandon();
  EXPECT_TRUE(Eventually([&] { return Kernel().open == 0; }));
  EXPECT_TRUE((*stream)->Take(absl::Seconds(5)).ended);
  const int renewals = Kernel().renewals;
  absl::SleepFor(3 * kTraceTurn);
  EXPECT_EQ(Kernel().renewals, renewals) << "and no timer runs on";
}

TEST_F(TracerTest, OneAtATime) {
  auto first = Start();
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Start().status()));
  EXPECT_EQ(Kernel().opened, 1) << "the one at work is not disturbed";
  (*first)->Abandon();
  auto second = Start();  // at once: the first one's client is gone
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Kernel().opened, 2);
  (*second)->Abandon();
}

TEST_F(TracerTest, WhatTheKernelRefusesIsPassedOnAndLeavesNothing) {
  refusal_ = absl::PermissionDeniedError("no");
  EXPECT_TRUE(absl::IsPermissionDenied(Start().status()));
  refusal_ = absl::OkStatus();
  auto stream = Start();
  EXPECT_TRUE(stream.ok());
  (*stream)->Abandon();
}

TEST_F(TracerTest, WhatASlowClientLeavesIsBoundedAndCounted) {
  auto stream = Start();
  ASSERT_TRUE(stream.ok());
  OnLoop([this] { kernel_.waiting.assign(TraceStream::kMaxEvents + 1'000, hr_trace_event{}); });
  EXPECT_TRUE(Eventually([&] { return Kernel().waiting.empty(); }));
  const TraceStream::Batch batch = (*stream)->Take(absl::Seconds(5));
  EXPECT_EQ(batch.events.size(), TraceStream::kMaxEvents);
  EXPECT_EQ(batch.loss.events, 1'000u);
  (*stream)->Abandon();
}

TEST_F(TracerTest, AClientThatTakesNothingIsNotLooking) {
  auto stream = Start();
  ASSERT_TRUE(stream.ok());
  absl::SleepFor(kPatience + 2 * kTraceTurn);
  EXPECT_EQ(Kernel().open, 1) << "there was nothing to take";
  OnLoop([this] { kernel_.waiting.push_back(WithIds(1)); });
  EXPECT_TRUE(Eventually([&] { return Kernel().open == 0; }));
  const TraceStream::Batch batch = (*stream)->Take(absl::Seconds(5));
  EXPECT_TRUE(batch.ended);
  EXPECT_THAT(batch.why, HasSubstr("did not take"));
  EXPECT_EQ(batch.events.size(), 1u) << "what there was is still its";
}

TEST_F(TracerTest, TheDaemonsEndIsToldToTheClient) {
  auto stream = Start();
  ASSERT_TRUE(stream.ok());
  OnLoop([this] { tracer_->Stop("the daemon is going down"); });
  const TraceStream::Batch batch = (*stream)->Take(absl::Seconds(5));
  EXPECT_TRUE(batch.ended);
  EXPECT_THAT(batch.why, HasSubstr("going down"));
  EXPECT_EQ(Kernel().open, 0);
}

}  // namespace
}  // namespace hedgerow
