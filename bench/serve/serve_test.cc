// SPDX-License-Identifier: Apache-2.0
//
// The parts of the bench servers: which ids stall, that an id stalls once across processes, that datagrams
// leave in due order.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "bench/serve/delay_queue.h"
#include "bench/serve/seen_table.h"
#include "bench/serve/service_tail.h"
#include "bench/serve/stall_rule.h"
#include "bench/serve/worker_queue.h"

namespace hedgerow::bench {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(StallRule, ModStallsThePublishedIds) {
  const StallRule rule = StallRule::Make("mod", 0.02, 0).value();
  for (uint32_t id = 0; id < 1'000; ++id) EXPECT_EQ(rule.Stalls(id), id % 100 < 2) << id;
}

TEST(StallRule, HashStallsItsFractionAndIsNotPeriodic) {
  const StallRule rule = StallRule::Make("hash", 0.02, 42).value();
  int stalled = 0;
  std::array<int, 100> by_residue{};
  for (uint32_t id = 0; id < 100'000; ++id) {
    if (rule.Stalls(id)) {
      ++stalled;
      ++by_residue[id % 100];
    }
  }
  EXPECT_NEAR(stalled, 2'000, 200);
  for (int count : by_residue) EXPECT_LT(count, 60);
}

TEST(StallRule, SeedsDifferAndRepeat) {
  const StallRule one = StallRule::Make("hash", 0.5, 1).value();
  const StallRule again = StallRule::Make("hash", 0.5, 1).value();
  const StallRule two = StallRule::Make("hash", 0.5, 2).value();
  int differences = 0;
  for (uint32_t id = 0; id < 1'000; ++id) {
    EXPECT_EQ(one.Stalls(id), again.Stalls(id));
    differences += one.Stalls(id) != two.Stalls(id);
  }
  EXPECT_GT(differences, 300);
}

TEST(StallRule, FractionsOfZeroAndOne) {
  EXPECT_FALSE(StallRule::Make("hash", 0, 1).value().Stalls(7));
  EXPECT_TRUE(StallRule::Make("hash", 1, 1).value().Stalls(7));
  EXPECT_FALSE(StallRule::Make("hash", 1.1, 1).ok());
  EXPECT_FALSE(StallRule::Make("other", 0.1, 1).ok());
}

TEST(SeenTable, SecondSightWithinTheLifeTimeIsKnown) {
  SeenTable table = SeenTable::Open("", kSecondNs).value();
  EXPECT_TRUE(table.IsFirstSight(5, 10 * kSecondNs));
  EXPECT_FALSE(table.IsFirstSight(5, 10 * kSecondNs + 900'000'000));
  EXPECT_TRUE(table.IsFirstSight(5, 11 * kSecondNs + 2'000'000)) << "the time counts from the first sight";
  EXPECT_TRUE(table.IsFirstSight(0, 10 * kSecondNs)) << "id 0 is an id like any other";
}

TEST(SeenTable, ProcessesShareOneFile) {
  const std::string path = testing::TempDir() + "seen_table." + std::to_string(getpid());
  SeenTable table = SeenTable::Open(path, kSecondNs).value();
  const pid_t child = fork();
  if (child == 0) {
    SeenTable other = SeenTable::Open(path, kSecondNs).value();
    _exit(other.IsFirstSight(77, kSecondNs) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(table.IsFirstSight(77, kSecondNs + 1'000'000));
  std::remove(path.c_str());
}

TEST(SeenTable, UnusablePathIsAnError) { EXPECT_FALSE(SeenTable::Open("/nonexistent/table", kSecondNs).ok()); }

std::string TextOf(const DelayQueue::Held* held) {
  return held == nullptr ? "" : std::string(held->data, held->data + held->bytes);
}

bool PushText(DelayQueue& queue, int64_t due_ns, const std::string& text) {
  return queue.Push(due_ns, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()), Address{});
}

TEST(DelayQueue, DatagramsLeaveInDueOrderAndTiesInArrivalOrder) {
  DelayQueue queue(10);
  for (const auto& [due_ns, text] : {std::pair{300, "d"}, {100, "a"}, {200, "b"}, {200, "c"}}) {
    ASSERT_TRUE(PushText(queue, due_ns, text));
  }
  EXPECT_EQ(queue.NextDueNs(), 100);
  EXPECT_EQ(queue.PopDue(99), nullptr);
  std::string order;
  while (const DelayQueue::Held* held = queue.PopDue(1'000)) order += TextOf(held);
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(queue.NextDueNs(), std::numeric_limits<int64_t>::max());
}

TEST(DelayQueue, FullQueueRefusesAndSlotsAreUsedAgain) {
  DelayQueue queue(2);
  EXPECT_TRUE(PushText(queue, 1, "a"));
  EXPECT_TRUE(PushText(queue, 2, "b"));
  EXPECT_FALSE(PushText(queue, 3, "c"));
  EXPECT_EQ(TextOf(queue.PopDue(1)), "a");
  EXPECT_TRUE(PushText(queue, 0, "d"));
  EXPECT_EQ(TextOf(queue.PopDue(1)), "d");
  EXPECT_EQ(queue.size(), 1u);
}

TEST(ServiceTail, HasTheBaseAndAnExponentialTail) {
  const ServiceTail tail(1'000'000, 500'000, 1);
  constexpr int kDraws = 100'000;
  double sum = 0;
  int above_p95 = 0;
  for (uint32_t id = 0; id < kDraws; ++id) {
    const int64_t ns = tail.ServiceTimeNs(id);
    ASSERT_GE(ns, 1'000'000);
    sum += static_cast<double>(ns);
    above_p95 += ns > 1'000'000 + 1'497'866;  // the mean times ln 20
  }
  EXPECT_NEAR(sum / kDraws, 1'500'000, 10'000);
  EXPECT_NEAR(above_p95, kDraws / 20, kDraws / 400);
}

TEST(ServiceTail, BoundedParetoHasItsMeanItsTailAndItsBound) {
  const ServiceTail tail = ServiceTail::BoundedPareto(2'000'000, 1.5, 400'000'000, 3).value();
  constexpr int kDraws = 1'000'000;
  double sum = 0;
  int64_t shortest = INT64_MAX;
  int64_t longest = 0;
  int above_one = 0;
  int above_four = 0;
  for (uint32_t id = 0; id < kDraws; ++id) {
    const int64_t ns = tail.ServiceTimeNs(id);
    sum += static_cast<double>(ns);
    shortest = std::min(shortest, ns);
    longest = std::max(longest, ns);
    above_one += ns > 4'000'000;
    above_four += ns > 16'000'000;
  }
  EXPECT_NEAR(sum / kDraws, 2'000'000, 40'000);
  EXPECT_NEAR(static_cast<double>(shortest), 695'000, 5'000);
  EXPECT_LE(longest, 400'000'000);
  EXPECT_GT(longest, 200'000'000);
  EXPECT_NEAR(static_cast<double>(above_one) / above_four, 8, 0.4) << "four times as long, 4^1.5 times as rare";
  EXPECT_FALSE(ServiceTail::BoundedPareto(2'000'000, 1, 400'000'000, 3).ok());
  EXPECT_FALSE(ServiceTail::BoundedPareto(2'000'000, 1.5, 2'000'000, 3).ok());
}

std::string PopText(WorkerQueue& queue, int64_t now_ns) { return TextOf(queue.PopDue(now_ns)); }

bool PushText(WorkerQueue& queue, int64_t now_ns, int64_t service_ns, const std::string& text) {
  return queue.Push(now_ns, service_ns, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()),
                    Address{});
}

TEST(WorkerQueue, ARequestWaitsForTheFirstFreeWorker) {
  WorkerQueue queue = WorkerQueue::Make(10, 2, -1).value();
  ASSERT_TRUE(PushText(queue, 0, 100, "a"));
  ASSERT_TRUE(PushText(queue, 0, 30, "b"));
  ASSERT_TRUE(PushText(queue, 10, 30, "c")) << "waits for b's worker";
  ASSERT_TRUE(PushText(queue, 10, 1, "d")) << "comes after c, though it is short";
  EXPECT_EQ(PopText(queue, 29), "");
  EXPECT_EQ(PopText(queue, 30), "b");
  EXPECT_EQ(PopText(queue, 59), "");
  EXPECT_EQ(PopText(queue, 60), "c");
  EXPECT_EQ(PopText(queue, 61), "d");
  EXPECT_EQ(PopText(queue, 100), "a");
  EXPECT_EQ(queue.served_ns(), 161);
  ASSERT_TRUE(PushText(queue, 200, 5, "e")) << "workers that slept are free";
  EXPECT_EQ(queue.NextDueNs(), 205);
}

// A replica that is slow for a time works off what has waited as fast as it then can.
TEST(WorkerQueue, ARequestIsAsSlowAsTheServerIsWhenAWorkerTakesIt) {
  WorkerQueue queue = WorkerQueue::Make(10, 1, -1).value();
  queue.SetFactor(20);
  ASSERT_TRUE(PushText(queue, 0, 10, "a"));
  ASSERT_TRUE(PushText(queue, 0, 10, "b"));
  queue.SetFactor(1);
  EXPECT_EQ(PopText(queue, 199), "");
  EXPECT_EQ(PopText(queue, 200), "a");
  EXPECT_EQ(PopText(queue, 209), "");
  EXPECT_EQ(PopText(queue, 210), "b");
}

TEST(WorkerQueue, WithoutANumberOfWorkersNothingWaits) {
  WorkerQueue queue = WorkerQueue::Make(10, 0, -1).value();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(PushText(queue, 0, 10, "x"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(PopText(queue, 10), "x");
}

TEST(WorkerQueue, AnswersReportWhatIsLeftAsAShareOfTheWorkers) {
  WorkerQueue queue = WorkerQueue::Make(100, 4, 2).value();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(PushText(queue, 0, 10, "abcd"));
  std::vector<int> loads;
  for (int64_t now_ns : {10, 10, 10, 10, 20, 20, 20, 20, 30, 30}) {
    const std::string text = PopText(queue, now_ns);
    EXPECT_EQ(text.substr(0, 2) + text.substr(3), "abd");
    loads.push_back(static_cast<uint8_t>(text[2]));
  }
  EXPECT_EQ(loads, (std::vector<int>{255, 255, 255, 255, 255, 255, 191, 127, 63, 0}));
  ASSERT_TRUE(PushText(queue, 100, 1, "ab"));
  EXPECT_EQ(PopText(queue, 101), "ab") << "an answer too short for it stays as it is";
}

TEST(WorkerQueue, AnAnswerLeavesByTheSocketOfItsRequest) {
  WorkerQueue queue = WorkerQueue::Make(10, 1, 0).value();
  const std::array<uint8_t, 1> request{1};
  ASSERT_TRUE(queue.Push(0, 10, request, Address{}, 2));
  ASSERT_TRUE(queue.Push(0, 10, request, Address{}, 1));
  EXPECT_EQ(queue.PopDue(10)->socket, 2);
  EXPECT_EQ(queue.PopDue(20)->socket, 1);
}

TEST(WorkerQueue, IsBoundedAndRefusesWhatCannotBe) {
  WorkerQueue queue = WorkerQueue::Make(1, 1, -1).value();
  EXPECT_TRUE(PushText(queue, 0, 10, "a"));
  EXPECT_FALSE(PushText(queue, 0, 10, "b"));
  EXPECT_EQ(queue.served_ns(), 10);
  EXPECT_FALSE(WorkerQueue::Make(1, -1, -1).ok());
  EXPECT_FALSE(WorkerQueue::Make(1, 0, 4).ok()) << "no load without a number of workers";
  EXPECT_FALSE(WorkerQueue::Make(1, 1, 1 << 20).ok());
}

TEST(ServiceTail, IsTheSameForTheSameIdAndAnotherForAnotherSeed) {
  const ServiceTail one(0, 500'000, 1), again(0, 500'000, 1), other(0, 500'000, 2);
  int equal = 0;
  for (uint32_t id = 0; id < 1000; ++id) {
    EXPECT_EQ(one.ServiceTimeNs(id), again.ServiceTimeNs(id));
    equal += one.ServiceTimeNs(id) == other.ServiceTimeNs(id);
  }
  EXPECT_LT(equal, 10);
}

}  // namespace
}  // namespace hedgerow::bench
