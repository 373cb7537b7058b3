// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// All programs at once on all CPUs, over few keys, few places and short times, so that everything meets
// everything: takeovers, retransmissions, nacks and their releases, expiry, laps. Afterwards nothing may be
// lost, twice, or counted wrongly. The schedule is the machine's; a failure says with which seed the threads
// drew their steps.
#include <bpf/libbpf.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/on_cpu.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

constexpr int kThreads = 4;
constexpr auto kDuration = std::chrono::milliseconds(1500);

class RaceTest : public PacketTest {
 protected:
  RaceTest() { time_stands_ = false; }
  void Step(std::mt19937 &random) {
    const auto id = static_cast<uint16_t>(random() % ids_);
    const char *backend = random() % 2 ? kA4 : kB4;
    const char *name = random() % 4 ? "www.example.org" : "other.example.org";
    const TestLinks &links = TestLinks::Get();
    const auto &programs = skeleton()->progs;
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: RunUncounted(programs.hr_splitter, DnsRequest4(id, name), {.ifindex = links.proxy.ifindex}); break;
      case 3:
      case 4:
        RunUncounted(programs.hr_reply, DnsReply4(id, backend, 0, name), {.ifindex = links.uplink.ifindex});
        break;
      case 5: {
        const RunResult nack = RunUncounted(programs.hr_reply, DnsReply4(id, backend, 2, name),
                                            {.mark = 1, .ifindex = links.uplink.ifindex});
        if (HR_MARK_KIND(nack.mark) == HR_MARK_RELEASE)
          RunUncounted(programs.hr_clock, nack.packet, {.mark = nack.mark, .ifindex = links.clock_in.ifindex});
        break;
      }
      default:
        RunUncounted(programs.hr_clock, Tagged(Bytes(60)),
                     {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = links.clock_in.ifindex});
    }
  }

  void RunAll(uint32_t seed) {
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        std::mt19937 random(seed + static_cast<uint32_t>(i));
        while (!stop) Step(random);
      });
    std::this_thread::sleep_for(kDuration);
    stop = true;
    for (std::thread &thread : threads) thread.join();
  }

  // One thread asks and runs the lap in which the hedge falls due; the other lets a's reply come at about that time.
  // Returns what the hedges cost, in millionths of a token.
  int64_t HedgeAgainst(const std::function<Bytes(uint16_t id)> &reply) {
    DataPlaneSpec spec = Spec();
    spec.max_requests = spec.max_parked = 1 << 16;  // an unanswered request is kept for longer than the test takes
    Start(spec);
    constexpr int64_t kBudget = 1'000'000'000'000;
    volatile hr_service_config &service = ServiceConfig(kDns4Service);
    ServicePolicy(kDns4Service).delay_ns = 1;
    service.deadline_ns = kMillisecond;
    service.retention_ns = 1;
    service.budget_ppm = 0;
    ServiceState(kDns4Service).budget_micros = kBudget;
    ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] =
        -1'000'000;  // the budget of attempts after nacks ends no request
    const TestLinks &links = TestLinks::Get();
    const auto spin = [this](uint64_t ns) {
      for (const uint64_t until = NowNs() + ns; NowNs() < until;) {
      }
    };
    std::atomic<uint32_t> asked = 0;
    std::atomic<bool> stop = false;
    std::thread replies([&] {
      std::mt19937 random(1);
      for (uint32_t seen = 0; !stop;) {
        if (asked == seen) continue;
        seen = asked;
        spin(30'000 + random() % 30'000);
        RunUncounted(skeleton()->progs.hr_reply, reply(static_cast<uint16_t>(seen)), {.ifindex = links.uplink.ifindex});
      }
    });
    const auto until = std::chrono::steady_clock::now() + kDuration;
    while (std::chrono::steady_clock::now() < until) {
      const uint32_t next = asked + 1;
      RunUncounted(program_splitter(), DnsRequest4(static_cast<uint16_t>(next)), {.ifindex = links.proxy.ifindex});
      asked = next;
      spin(34'000);  // a slot of the wheel has passed
      RunUncounted(skeleton()->progs.hr_clock, Tagged(Bytes(HR_CLOCK_FRAME_BYTES)),
                   {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = links.clock_in.ifindex});
    }
    stop = true;
    replies.join();
    return kBudget - ServiceState(kDns4Service).budget_micros;
  }

  // Deadlines and retentions pass, and nothing is left.
  void ExpectRest() {
    for (int i = 0; i < 20 && RequestsInUse() != 0; ++i) {
      usleep(5000);
      // What no backend answered is retained for as long as its flow is believed: here that time passes at once.
      for (uint32_t index = 1; index <= Wheel().requests_made; ++index) {
        volatile hr_request &request = Request(index);
        if (HR_WORD_STATE(request.word) == HR_STATE_EXPIRED) request.done_ns = 0;
      }
      VisitAll();
    }
    EXPECT_EQ(RequestsInUse(), 0u);
  }

  uint16_t ids_ = 48;
};

TEST_F(RaceTest, NothingIsLostWhenEverythingHappensAtOnce) {
  volatile hr_service_config &service = ServiceConfig(kDns4Service);
  ServicePolicy(kDns4Service).delay_ns = 300'000;
  service.deadline_ns = 3 * kMillisecond;
  service.retention_ns = 2 * kMillisecond;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RunAll(seed);
  const StateView busy = View();
  EXPECT_THAT(BrokenInvariants(busy), IsEmpty());
  // Every kind of end was met, or the test has tested nothing.
  const hr_stats &stats = busy.services[kDns4Service].stats;
  for (const int counter : {HR_WON_BY_FIRST, HR_WON_BY_HEDGE, HR_UNANSWERED, HR_PASSED_THROUGH})
    EXPECT_GT(stats.counters[counter], 0u) << counter;
  for (const int reason : {HR_REASON_RETRANSMISSION, HR_REASON_KEY_BUSY})
    EXPECT_GT(stats.reasons[reason], 0u) << reason;
  // At rest everything is free again.
  ExpectRest();
}

// An answer may come between a hedge's claim and its send: then it was not needed, and costs nothing.
TEST_F(RaceTest, AHedgeIsPaidForIfAndOnlyIfItWasSent) {
  if (IsSkipped()) return;
  const int64_t paid = HedgeAgainst([](uint16_t id) { return DnsReply4(id, kA4); });
  const StateView busy = View();
  EXPECT_THAT(BrokenInvariants(busy), IsEmpty());
  const auto hedges = static_cast<int64_t>(busy.services[kDns4Service].stats.counters[HR_HEDGES]);
  EXPECT_GT(hedges, 0);
  EXPECT_EQ(paid, hedges * 1'000'000);
  for (uint32_t i = 1; i < busy.requests.size(); ++i)
    if (HR_WORD_STATE(busy.requests[i].word) == HR_STATE_ANSWERED)
      EXPECT_EQ(HR_SENT_MASK(busy.requests[i].masks) == 0b11u, busy.requests[i].attempts == 2u) << "marked as sent";
}

// A nack may come while the clock claims the hedge: it finds that attempt taken, and under way.
TEST_F(RaceTest, ANackDoesNotEndARequestWhoseHedgeIsBeingClaimed) {
  if (IsSkipped()) return;
  HedgeAgainst([](uint16_t id) { return DnsReply4(id, kA4, /*rcode=*/2); });  // SERVFAIL
  const StateView busy = View();
  EXPECT_THAT(BrokenInvariants(busy), IsEmpty());
  const hr_stats &stats = busy.services[kDns4Service].stats;
  EXPECT_GT(stats.counters[HR_HEDGES], 0u);
  EXPECT_GT(stats.counters[HR_NACKS_SWALLOWED], 0u);
  EXPECT_EQ(stats.counters[HR_NACKED], 0u)
      << "b never answered, so every nack of a had another copy or attempt to wait for";
}

TEST_F(RaceTest, NorWhereCopiesLeaveWithTheFirstSends) {
  volatile hr_service_config &service = ServiceConfig(kDns4Service);
  ServicePolicy(kDns4Service).delay_ns = 300'000;
  service.deadline_ns = 3 * kMillisecond;
  service.retention_ns = 2 * kMillisecond;
  service.attempts = 3;
  service.idle_share = 255;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RunAll(seed);
  const StateView busy = View();
  EXPECT_THAT(BrokenInvariants(busy), IsEmpty());
  EXPECT_GT(busy.services[kDns4Service].stats.counters[HR_IDLE_COPIES], 0u);
  ExpectRest();
  EXPECT_EQ(BackendLoad(kDns4A).in_flight, 0);
  EXPECT_EQ(BackendLoad(kDns4B).in_flight, 0);
}

TEST_F(RaceTest, NothingIsLostWhenPlacesAreShort) {
  ids_ = 2000;
  volatile hr_service_config &service = ServiceConfig(kDns4Service);
  ServicePolicy(kDns4Service).delay_ns = 100'000;
  service.deadline_ns = 2 * kMillisecond;
  service.retention_ns = 1 * kMillisecond;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RunAll(seed);
  EXPECT_THAT(BrokenInvariants(View()), IsEmpty());
  ExpectRest();
}

// Free indices are kept by CPUs in batches (free_list.bpf.h). `batch` on this machine, of both tables.
DataPlaneSpec WithBatchesOf(DataPlaneSpec spec, uint32_t batch) {
  spec.services.resize(1);  // else it is its share that it uses up
  spec.max_requests = spec.max_parked = 32 * batch * static_cast<uint32_t>(libbpf_num_possible_cpus());
  return spec;
}

TEST_F(RaceTest, WhatOneCpuGivesBackAnotherTakesButForWhatEachKeeps) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two CPUs";
  constexpr uint32_t kBatch = 4;
  Start(WithBatchesOf(Spec(), kBatch));
  const uint32_t limit = skeleton()->rodata->load_config.max_requests;
  // Each is another client's, since one client's share is smaller.
  List(kDns4Service, {"10.78.0.0/16"});
  const auto ask = [&](uint32_t i) {
    const std::string client = "10.78." + std::to_string(i / 250) + "." + std::to_string(i % 250 + 1);
    return SplitOf(
               client,
               PacketBuilder(client.c_str(), kDns4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build())
        .changes;
  };
  {
    const OnCpu first(0);
    for (uint32_t i = 0; i < limit; ++i) ASSERT_FALSE(ask(i).contains("dns4.passed_through")) << i;
    EXPECT_TRUE(ask(limit).contains("dns4:requests_full")) << "one CPU gets all that there are";
  }
  EXPECT_EQ(RequestsInUse(), limit);
  {
    const OnCpu second(1);
    for (uint32_t i = 1; i <= limit; ++i) MakeExpired(i);
    VisitAll();
    for (uint32_t i = 1; i <= limit; ++i) EndRetention(i);
    VisitAll();
  }
  EXPECT_EQ(RequestsInUse(), 0u);
  EXPECT_EQ(CopiesInUse(), 0u);
  StateView view = View();
  EXPECT_LE(view.kept_requests.size(), uint32_t{HR_FREE_KEPT(kBatch)});
  EXPECT_LE(view.kept_parked.size(), uint32_t{HR_FREE_KEPT(kBatch)});
  EXPECT_EQ(view.free_requests.size() + view.kept_requests.size(), limit);
  EXPECT_EQ(view.free_parked.size() + view.kept_parked.size(), limit);
  {
    const OnCpu first(0);
    const uint32_t others = static_cast<uint32_t>(std::max(view.kept_requests.size(), view.kept_parked.size()));
    for (uint32_t i = 0; i < limit - others; ++i) ASSERT_FALSE(ask(i).contains("dns4.passed_through")) << i;
  }
}

// One CPU's programs take, another's give back: caches run dry and batches go round.
TEST_F(RaceTest, IndicesThatGoFromCpuToCpuAreNeitherLostNorTwice) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two CPUs";
  Start(WithBatchesOf(Spec(), 8));
  ServicePolicy(kDns4Service).delay_ns = kMillisecond;  // an answered request is freed then
  ServiceConfig(kDns4Service).budget_ppm = 0;
  ServiceState(kDns4Service).budget_micros = 0;
  const TestLinks &links = TestLinks::Get();
  const auto &programs = skeleton()->progs;
  const uint32_t waiting = 64, all = 8 * skeleton()->rodata->load_config.max_requests;
  std::atomic<uint32_t> asked = 0, answered = 0;
  std::thread splitters([&] {
    const OnCpu first(0);
    for (uint32_t id = 1; id <= all; asked = id++) {
      while (id - answered > waiting) sched_yield();
      RunUncounted(programs.hr_splitter, DnsRequest4(static_cast<uint16_t>(id)), {.ifindex = links.proxy.ifindex});
    }
  });
  std::thread others([&] {
    const OnCpu second(1);
    while (answered < all) {
      if (answered == asked) {
        sched_yield();
        continue;
      }
      const auto id = static_cast<uint16_t>(answered + 1);
      RunUncounted(programs.hr_reply, DnsReply4(id, kA4), {.ifindex = links.uplink.ifindex});
      if (++answered % 8 == 0)
        RunUncounted(programs.hr_clock, Tagged(Bytes(HR_CLOCK_FRAME_BYTES)),
                     {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = links.clock_in.ifindex});
    }
  });
  splitters.join();
  others.join();
  const StateView busy = View();
  EXPECT_THAT(BrokenInvariants(busy), IsEmpty());
  EXPECT_GT(busy.services[kDns4Service].stats.counters[HR_WON_BY_FIRST], 2 * busy.wheel.requests_made)
      << "indices have gone round";
  ExpectRest();
  EXPECT_EQ(CopiesInUse(), 0u);
}

}  // namespace
}  // namespace hedgerow::packets
