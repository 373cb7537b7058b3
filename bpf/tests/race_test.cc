// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// All programs at once on all CPUs, over few keys, few places and short times, so that everything meets
// everything: takeovers, retransmissions, nacks and their releases, expiry, laps. Afterwards nothing may be
// lost, twice, or counted wrongly. The schedule is the machine's; a failure says with which seed the threads
// drew their steps.
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

constexpr int kThreads = 4;
constexpr auto kDuration = std::chrono::milliseconds(1500);

class RaceTest : public PacketTest {
 protected:
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
    for (int i = 0; i < 20 && HR_HELD_REQUESTS(Wheel().held) != 0; ++i) {
      usleep(5000);
      // What no backend answered is retained for as long as its flow is believed: here that time passes at once.
      for (uint32_t index = 1; index <= Wheel().requests_made; ++index) {
        volatile hr_request &request = Request(index);
        if (HR_WORD_STATE(request.word) == HR_STATE_EXPIRED) request.done_ns = 0;
      }
      VisitAll();
    }
    EXPECT_EQ(HR_HELD_REQUESTS(Wheel().held), 0u);
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

}  // namespace
}  // namespace hedgerow::packets
