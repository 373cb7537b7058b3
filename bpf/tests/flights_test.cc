// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What is in flight at each backend (bpf/proxy/load.bpf.h) stays exact through a random walk over all that can happen
// to a request. Its seeds are fixed; a failure names the one.
#include <algorithm>
#include <random>

#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

// Everything that can happen to a request, one after the other in a random order: afterwards each backend has as many
// requests in flight as say so, all is accounted for, and no more copies are owed than were sent.
class FlightsTest : public PacketTest {
 protected:
  void Step(std::mt19937 &random) {
    const auto pick = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const char *backends[] = {kA4, kB4, kC4};
    const uint64_t seq = 1 + pick(5);
    const char *backend = backends[pick(3)];
    const uint32_t id = kHkv4A + pick(3);
    const Bytes request = HkvRequest4(seq, pick(8) ? kHkvWrite : kHkvGet);
    const uint32_t known = 1 + pick(std::max(1u, uint32_t{Wheel().requests_made}));
    switch (pick(22)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: Step(program_splitter(), request, TestLinks::Get().proxy.ifindex); break;
      case 5:
      case 6:
      case 7:
      case 8: Step(skeleton()->progs.hr_reply, HkvReply4(seq, backend), TestLinks::Get().uplink.ifindex); break;
      case 9:
      case 10: {
        const bool leaderless = pick(2) != 0;
        const RunResult nack = Step(skeleton()->progs.hr_reply,
                                    HkvReply4(seq, backend, leaderless ? kHkvNotLeader : kHkvOverloaded,
                                              leaderless ? pick(4) : pick(2) * kHkvNeverHedge),
                                    TestLinks::Get().uplink.ifindex);
        if (HR_MARK_KIND(nack.mark) == HR_MARK_RELEASE && pick(4))
          RunUncounted(skeleton()->progs.hr_clock, nack.packet,
                       {.mark = nack.mark, .ifindex = TestLinks::Get().clock_in.ifindex});
        break;
      }
      case 11: {
        const Bytes sent = Layer3(PacketBuilder(kClient4, backend)
                                      .Udp(kClientPort, kHkvPort, HkvRequest(kHkvWrite, kHkvSession, seq, Text("body")))
                                      .Build());
        const RunResult error =
            Step(skeleton()->progs.hr_reply,
                 PacketBuilder(backend, kClient4).IcmpError(pick(4) ? 3 : 11, pick(2) ? 3 : 0, sent).Build(),
                 TestLinks::Get().uplink.ifindex);
        if (HR_MARK_KIND(error.mark) == HR_MARK_RELEASE)
          RunUncounted(skeleton()->progs.hr_clock, error.packet,
                       {.mark = error.mark, .ifindex = TestLinks::Get().clock_in.ifindex});
        break;
      }
      case 12:
        Step(skeleton()->progs.hr_reply,
             PacketBuilder(kB4, kClient4)
                 .Udp(4802, kAnnouncePort, Seal(Leading(kCluster4, backend, kHkvPort, ++term_, 1), kKey4))
                 .Build(),
             TestLinks::Get().uplink.ifindex);
        break;
      case 13:
      case 14:
        if (HR_WORD_STATE(Request(known).word) == HR_STATE_PENDING) MakeDue(known);
        VisitAll();
        break;
      case 15:
        if (HR_WORD_STATE(Request(known).word) == HR_STATE_PENDING) MakeExpired(known);
        VisitAll();
        break;
      case 16:
        if (HR_WORD_STATE(Request(known).word) != HR_STATE_FREE) EndRetention(known);
        VisitAll();
        break;
      case 17:
        BackendState(id).health = pick(3);
        BackendState(id).health_since_ns = NowNs() - pick(2) * 400 * kSecond;
        ServicePolicy(kHkv4Service).unhealthy = pick(8);
        break;
      case 18:
        ServicePolicy(kHkv4Service).drained = pick(4) ? 0 : pick(8);
        ServicePolicy(kHkv4Service).switches = pick(4) ? 0 : pick(2) ? HR_SWITCH_DRY_RUN : HR_SWITCH_BYPASS;
        break;
      case 19:
        BackendTuning(id).slow_at = pick(2) * 10;
        ServiceConfig(kHkv4Service).spreads = static_cast<uint8_t>(pick(2));
        break;
      case 20:
        ServicePolicy(kHkv4Service).test_client = hr_test_client(&client_);
        ServicePolicy(kHkv4Service).test_port_be = htons(kClientPort);
        ServicePolicy(kHkv4Service).test_until_ns = NowNs() + kSecond;
        break;
      default:
        Advance(pick(2) ? 20 * kMillisecond : 2 * kSecond);
        ServicePolicy(kHkv4Service).moved = 1u << pick(3);
        ServicePolicy(kHkv4Service).moved_ns = NowNs();
        Wheel().handover = Wheel().handover | 1ull << kHkv4Service;
        VisitAll();
    }
  }
  RunResult Step(bpf_program *program, const Bytes &packet, int ifindex) {
    return RunUncounted(program, packet, {.ifindex = ifindex});
  }

  uint64_t term_ = 10;
  hr_address client_ = ParseAddress(kClient4).value();
};

TEST_F(FlightsTest, WhatIsInFlightIsExactWhateverHappens) {
  ServiceConfig(kHkv4Service).idle_share = 77;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    ServiceConfig(kHkv4Service).attempts = static_cast<uint8_t>(2 + seed % 3);
    for (int i = 0; i < 250; ++i) {
      Step(random);
      if (i % 10 == 0) ASSERT_THAT(BrokenInvariants(View()), IsEmpty()) << "step " << i;
    }
    const hr_stats stats = View().services[kHkv4Service].stats;
    EXPECT_GE(ServiceState(kHkv4Service).owed[HR_DEBT_COPIES], 0);
    EXPECT_LE(static_cast<uint64_t>(ServiceState(kHkv4Service).owed[HR_DEBT_COPIES]), stats.counters[HR_IDLE_COPIES]);
    EXPECT_GE(stats.counters[HR_EXTRA_SENDS], stats.counters[HR_HEDGES] + stats.counters[HR_IDLE_COPIES]);
    TestLinks::Get().clock_sniffer->Take(0, 0);
  }
  const hr_stats stats = View().services[kHkv4Service].stats;
  for (const int counter :
       {HR_IDLE_COPIES, HR_HEDGES, HR_HANDED_OVER, HR_PROBES, HR_NACKED, HR_UNANSWERED, HR_WOULD_COPY, HR_LATE_ANSWERS})
    EXPECT_GT(stats.counters[counter], 0u) << counter;
  for (const int reason : {HR_REASON_RETRANSMISSION, HR_REASON_KEY_BUSY, HR_REASON_HEDGE_TEST, HR_REASON_BYPASS})
    EXPECT_GT(stats.reasons[reason], 0u) << reason;
  // At rest nothing is in flight.
  Advance(100 * kSecond);
  for (int i = 0; i < 3; ++i) {
    VisitAll();
    Advance(20 * kSecond);
  }
  EXPECT_EQ(RequestsInUse(), 0u);
  for (const uint32_t backend : {kHkv4A, kHkv4B, kHkv4C}) EXPECT_EQ(BackendLoad(backend).in_flight, 0) << backend;
}

}  // namespace
}  // namespace hedgerow::packets
