// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// CLOCK: what a lap does with what is due (hedge, expiry, removal after its retention), who dies (stale epochs,
// unknown masks), when it rests, and what it sends on. The bytes and checksums of hedges are in
// hedge_test.cc.
#include <unistd.h>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/on_cpu.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Pair;

class ClockTest : public PacketTest {
 protected:
  uint32_t Ask(uint16_t id) {
    Split(DnsRequest4(id));
    return FindDns(id);
  }
};

TEST_F(ClockTest, ADueRequestIsHedged) {
  Split(DnsRequest4(1), {.mark = 0x66});
  const uint32_t request = FindDns(1);
  EXPECT_EQ(FireNow(request), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  EXPECT_EQ(SentTo(request), 0b11u);
  EXPECT_EQ(Request(request).attempts, 2u);
  EXPECT_EQ(StateOf(request), HR_STATE_PENDING);
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 0) << "paid";
  const std::vector<Captured> copies = Clones(HR_MARK_HEDGE, 1);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].mark, HR_MARK_OF_COPY(HR_MARK_HEDGE, 1, request)) << "it says to whom it goes";
  EXPECT_TRUE(copies[0].checksum_ready);
  EXPECT_EQ(Layer3(copies[0].packet),
            Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build()));
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, 17, HR_FLOW_REPLY, kDns4B)) << "its answer must find the VIP";

  const RunResult sent = Clock(copies[0].packet, {.mark = copies[0].mark});
  EXPECT_EQ(sent.verdict, kRedirected);
  EXPECT_EQ(sent.packet, copies[0].packet);
  EXPECT_EQ(sent.mark, 0x66u) << "the client's";
  const auto snapshot = plane().reader().Read(true);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->services[kDns4Service].fire_error.Count(), 1u);
}

// The mark and the uplink would be the later request's.
TEST_F(ClockTest, ACopyIsNotSentOnOnceItsEntryServesALaterRequest) {
  Split(DnsRequest4(1), {.mark = 0x66});
  const uint32_t request = FindDns(1);
  FireNow(request);
  Reply(DnsReply4(1, kA4));
  EndRetention(request);
  VisitAll();
  Split(DnsRequest4(2), {.mark = 0x77});
  ASSERT_EQ(FindDns(2), request) << "the entry is used again";
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) {
    const RunResult sent = Clock(copy.packet, {.mark = copy.mark});
    EXPECT_EQ(sent.verdict, kDropped);
    EXPECT_THAT(sent.changes, UnorderedElementsAre(Pair("host:clock_stale", 1)));
  }
  const auto snapshot = plane().reader().Read(true);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->services[kDns4Service].fire_error.Count(), 0u);
}

TEST_F(ClockTest, ARequestFallsDueByItself) {
  ServicePolicy(kDns4Service).delay_ns = 100 * kMillisecond;
  const uint32_t request = Ask(1);
  Lap();
  EXPECT_EQ(SentTo(request), 0b01u) << "not before its time";
  Advance(101 * kMillisecond);
  for (int lap = 0; lap < 5; ++lap) Lap();
  EXPECT_EQ(SentTo(request), 0b11u);
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(ClockTest, WhatIsNotDueIsLeftAlone) {
  const uint32_t request = Ask(1);
  const uint64_t due_ns = Request(request).due_ns;
  EXPECT_THAT(VisitAll(), IsEmpty());
  EXPECT_EQ(Request(request).due_ns, due_ns);
  EXPECT_EQ(Wheel().fine[(due_ns >> HR_FINE_SHIFT) & (HR_FINE_SLOTS - 1)].head, request);
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(ClockTest, AnAnsweredRequestIsNotHedged) {
  const uint32_t request = Ask(1);
  Reply(DnsReply4(1, kA4));
  EXPECT_THAT(FireNow(request), IsEmpty());
  Clones(HR_MARK_HEDGE, 0);
  EXPECT_EQ(Request(request).parked, 0u);
}

TEST_F(ClockTest, AttemptsAreSpacedTwiceAsFarEachTime) {
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  const uint32_t request = FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0});
  ServiceState(kRaw4Service).budget_micros = 5'000'000;
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  const uint64_t gap_ns = Request(request).due_ns - NowNs();
  EXPECT_GT(gap_ns, 300 * kMillisecond);
  EXPECT_LE(gap_ns, 400 * kMillisecond);
  FireNow(request);
  EXPECT_EQ(Request(request).due_ns, Request(request).sent_ns + ServiceConfig(kRaw4Service).deadline_ns)
      << "the last attempt is made";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(ClockTest, ARequestExpiresAtItsDeadlineAndIsRemovedAfterItsRetention) {
  const uint32_t request = Ask(1);
  FireNow(request);
  MakeExpired(request);
  EXPECT_EQ(VisitAll(), (Changes{{"dns4.unanswered", 1}}));
  EXPECT_EQ(StateOf(request), HR_STATE_EXPIRED);
  EXPECT_EQ(Request(request).parked, 0u) << "the bytes went back at once";
  EXPECT_EQ(FindDns(1), request) << "a late answer must still be recognised";
  EXPECT_THAT(VisitAll(), IsEmpty());
  EXPECT_EQ(FindDns(1), request);
  const uint32_t generation = HR_WORD_GENERATION(Request(request).word);
  EndRetention(request);
  EXPECT_THAT(VisitAll(), IsEmpty());
  EXPECT_EQ(FindDns(1), 0u);
  EXPECT_EQ(StateOf(request), HR_STATE_FREE);
  EXPECT_EQ(HR_WORD_GENERATION(Request(request).word), generation + 1) << "old references are void";
  EXPECT_EQ(RequestsInUse(), 0u);
}

TEST_F(ClockTest, AFormerRequestIsRemovedWithoutTouchingItsKeysNextOne) {
  Split(DnsRequest4(7, "old.example.org"));
  const uint32_t old = FindDns(7);
  Reply(DnsReply4(7, kA4, 0, "old.example.org"));
  Split(DnsRequest4(7, "new.example.org"));
  const uint32_t fresh = FindDns(7);
  EndRetention(old);
  VisitAll();
  EXPECT_EQ(StateOf(old), HR_STATE_FREE);
  EXPECT_EQ(FindDns(7), fresh);
}

TEST_F(ClockTest, FreedPlacesAreUsedAgain) {
  const OnCpu here;
  // Far more requests than places, one after the other: nothing may leak.
  for (uint16_t id = 1; id <= 200; ++id) {
    ASSERT_EQ(Ask(id) != 0, true) << id;
    Reply(DnsReply4(id, kA4));
    if (id % 20 != 0) continue;
    const StateView view = View();
    for (uint32_t i = 1; i < view.requests.size(); ++i)
      if (HR_WORD_STATE(view.requests[i].word) != HR_STATE_FREE) EndRetention(i);
    VisitAll();
    ASSERT_EQ(RequestsInUse(), 0u);
  }
  EXPECT_LE(Wheel().requests_made, 20u);
}

TEST_F(ClockTest, ManyDueRequestsAreAllHedgedWithinAFewLaps) {
  for (uint16_t id = 1; id <= 32; ++id) MakeDue(Ask(id));
  EXPECT_EQ(VisitAll(), (Changes{{"dns4.extra_sends", 32}, {"dns4.hedges", 32}}));
  Clones(HR_MARK_HEDGE, 32);
}

TEST_F(ClockTest, EveryAttemptNeedsATarget) {
  ServiceConfig(kDns4Service).attempts = 5;
  const uint32_t request = Ask(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(FireNow(request), (Changes{{"dns4:no_target", 1}})) << "both were asked";
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(ClockTest, ABackendThatIsDownGetsAHedgeOnlyWhenItIsToBeTriedAgain) {
  BackendState(kDns4B).health = HR_DOWN;
  BackendState(kDns4B).health_since_ns = NowNs();
  const uint32_t request = Ask(1);
  EXPECT_EQ(FireNow(request), (Changes{{"dns4:no_target", 1}}));
  EXPECT_THAT(FireNow(request), IsEmpty()) << "counted once";
  EXPECT_EQ(SentTo(request), 0b01u);
  BackendState(kDns4B).health_since_ns = 1;
  EXPECT_EQ(FireNow(request), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  EXPECT_GT(BackendState(kDns4B).health_since_ns, 1u) << "the next one is put off";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(ClockTest, ALapGoesRoundAgainWhileSomethingWaits) {
  Ask(1);
  const uint64_t laps = Wheel().laps;
  const RunResult lap = Lap();
  EXPECT_EQ(lap.verdict, kRedirected);
  EXPECT_EQ(lap.mark, HR_MARK_LAP | Wheel().epoch);
  EXPECT_EQ(lap.packet.size(), HR_CLOCK_FRAME_BYTES);
  EXPECT_EQ(Wheel().laps, laps + 1);
}

TEST_F(ClockTest, TheLapIsShortOnlyWhileSomethingUnansweredIsDueSoon) {
  ServicePolicy(kDns4Service).delay_ns = 250 * kMillisecond;
  auto lap_class = [&] { return (Lap().priority & 0xffff) - HR_CLOCK_CLASS_BASE; };
  Ask(1);
  VisitAll();
  EXPECT_EQ(lap_class(), 2u) << "due in 250 ms";
  ServicePolicy(kDns4Service).delay_ns = 1'400'000;
  // On a busy machine the test may lose its CPU for longer than that between asking and the lap: it asks again.
  uint16_t id = 1;
  uint32_t chosen = 2;
  for (int i = 0; i < 20 && chosen != 0; ++i) {
    const TestLinks &links = TestLinks::Get();
    RunUncounted(program_splitter(), DnsRequest4(++id), {.ifindex = links.proxy.ifindex});
    const RunResult lap =
        RunUncounted(skeleton()->progs.hr_clock, Tagged(Bytes(HR_CLOCK_FRAME_BYTES)),
                     {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = links.clock_in.ifindex});
    chosen = (lap.priority & 0xffff) - HR_CLOCK_CLASS_BASE;
    Reply(DnsReply4(id, kA4));
  }
  EXPECT_EQ(chosen, 0u) << "due in 1.4 ms";
  EXPECT_EQ(lap_class(), 2u) << "answered";
}

TEST_F(ClockTest, AHedgeOnTheCarrierLeavesALapOfTheRightSize) {
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(1472, 1)).Build());
  MakeDue(1);
  Wheel().late = 1;
  for (int i = 0; i < 5; ++i) {
    const RunResult lap = Lap();
    EXPECT_EQ(lap.packet.size(), HR_CLOCK_FRAME_BYTES);
    EXPECT_EQ(lap.mark, HR_MARK_LAP | Wheel().epoch);
  }
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(ClockTest, TheClockRestsWhenNothingIsLeft) {
  const uint32_t request = Ask(1);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Wheel().running, 1u);
  EndRetention(request);
  VisitAll();
  EXPECT_EQ(Lap().verdict, kDropped) << "0 laps at rest";
  EXPECT_EQ(Wheel().running, 0u);
  // The next request sets it going anew, with another epoch.
  const uint32_t epoch = Wheel().epoch;
  Ask(2);
  EXPECT_EQ(Wheel().running, 1u);
  EXPECT_EQ(Wheel().epoch, epoch + 1);
}

TEST_F(ClockTest, ALapOfAnOlderEpochDies) {
  Ask(1);
  const RunResult lap = Clock(Bytes(60), {.mark = HR_MARK_LAP | (Wheel().epoch - 1)});
  EXPECT_EQ(lap.verdict, kDropped);
  EXPECT_THAT(lap.changes, UnorderedElementsAre(Pair("host:clock_stale", 1)));
}

TEST_F(ClockTest, TwoLapsAreNeverAtWorkAtOnce) {
  const uint32_t request = Ask(1);
  MakeDue(request);
  Wheel().late = 1;
  Wheel().busy = 1;
  const RunResult lap = Lap();
  Wheel().busy = 0;
  EXPECT_EQ(lap.verdict, kRedirected) << "it comes again";
  EXPECT_EQ(SentTo(request), 0b01u);
  VisitAll();
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(ClockTest, WhatIsNotOursOnTheClocksLinkIsDropped) {
  const Changes foreign = {{"host:foreign_on_link", 1}};
  for (const uint32_t mark : {0u, 1u, 0x47000000u, 0x4e000001u, 0xffffffffu}) {
    const RunResult run = Clock(DnsRequest4(1), {.mark = mark});
    EXPECT_EQ(run.verdict, kDropped) << mark;
    EXPECT_EQ(run.changes, foreign);
  }
  // A right mark, which a container with the host's network may set, is not enough.
  const uint32_t request = Ask(1), at = static_cast<uint32_t>(TestLinks::Get().clock_in.ifindex);
  for (const uint32_t mark : {HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), HR_MARK_OF_COPY(HR_MARK_SEND, 0, request),
                              HR_MARK_OF_COPY(HR_MARK_HEDGE, 0, request), HR_MARK_RELEASE | request}) {
    const RunResult run =
        Run(skeleton()->progs.hr_clock, DnsRequest4(1), {.mark = mark, .ifindex = static_cast<int>(at)});
    EXPECT_EQ(run.verdict, kDropped) << std::hex << mark;
    EXPECT_EQ(run.changes, foreign) << std::hex << mark;
  }
  for (const uint32_t kind : {HR_MARK_SEND, HR_MARK_HEDGE})
    EXPECT_EQ(Clock(DnsRequest4(1), {.mark = kind | 0xffffff}).verdict, kDropped) << "a request out of range";
}

TEST_F(ClockTest, AnOverdueClockIsReplacedByTheNextRequest) {
  Ask(1);
  const uint32_t epoch = Wheel().epoch;
  Wheel().last_lap_ns = NowNs() - kSecond;  // its packet was lost
  Ask(2);
  EXPECT_EQ(Wheel().restarts, 1u);
  EXPECT_EQ(Wheel().epoch, epoch + 1);
  Ask(3);
  EXPECT_EQ(Wheel().restarts, 1u) << "not again at once";
  Clones(HR_MARK_LAP, 2);
}

TEST_F(ClockTest, AHedgeThatCannotBeSentLeavesTheAttemptOpen) {
  const uint32_t request = Ask(1);
  ASSERT_TRUE(net::SetLinkDown("hr0c1").ok());
  const Changes failed = FireNow(request);
  ASSERT_TRUE(net::SetLinkUp("hr0c1").ok());
  EXPECT_EQ(failed.at("dns4:hedge_failed"), 1);
  EXPECT_EQ(SentTo(request), 0b01u);
  EXPECT_EQ(Request(request).attempts, 1u);
}

// ---- The gates of the proxy's own links
// ------------------------------------------------------------------------------

class GateTest : public ClockTest {
 protected:
  RunResult Leave(const Bytes &packet, uint32_t mark, uint32_t priority = 0) {
    return Run(skeleton()->progs.hr_gate, packet,
               {.mark = mark, .priority = priority, .ifindex = TestLinks::Get().clock_out.ifindex});
  }
  void ExpectTurnedAway(const RunResult &run) {
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("host:foreign_on_link", 1)));
  }
};

TEST_F(GateTest, OnlyTheProxysOwnPacketsEnterTheClocksLink) {
  for (const uint32_t mark :
       {HR_MARK_LAP | 7u, HR_MARK_RELEASE | 7u, HR_MARK_SEGMENT_IN | 7u, HR_MARK_SEGMENT_OUT | 7u}) {
    const RunResult own = Leave(Tagged(DnsRequest4(1)), mark, 40'000'000);
    EXPECT_EQ(own.verdict, kUntouched);
    EXPECT_THAT(own.changes, IsEmpty());
    EXPECT_EQ(own.departure_ns, 0u) << "the clock here is htb";
    ExpectTurnedAway(Leave(DnsRequest4(1), mark));
  }
  for (const uint32_t mark : {0u, 0x47000000u, HR_MARK_SEND | 1u, HR_MARK_HEDGE | 1u})
    ExpectTurnedAway(Leave(Tagged(DnsRequest4(1)), mark));
}

TEST_F(GateTest, NothingLeavesByTheFarEnds) {
  ExpectTurnedAway(Run(skeleton()->progs.hr_closed_gate, Tagged(DnsRequest4(1)), {.mark = HR_MARK_LAP}));
}

TEST_F(GateTest, EveryLoadDrawsATagOfItsOwn) {
  const auto tag = [&] { return skeleton()->rodata->load_config.clock_tag; };
  const uint64_t first = tag();
  EXPECT_EQ(first & 0x03, 0x02u) << "a locally administered unicast address";
  EXPECT_EQ(first >> 48, 0u);
  Start(Spec());
  EXPECT_NE(tag(), first);
}

TEST_F(GateTest, WithFqALapGetsItsDepartureTimeAndNothingElseDoes) {
  DataPlaneSpec spec = Spec();
  spec.clock_kind = HR_CLOCK_FQ;
  Start(spec);
  LetTimeRun();  // the gate asks the kernel itself
  const uint64_t before_ns = NowNs();
  const RunResult run = Leave(Tagged(DnsRequest4(1)), HR_MARK_LAP | 7, 40'000'000);
  EXPECT_EQ(run.verdict, kUntouched);
  EXPECT_THAT(run.departure_ns, AllOf(Ge(before_ns + 40'000'000), Le(NowNs() + 40'000'000)));
  EXPECT_EQ(Leave(Tagged(DnsRequest4(1)), HR_MARK_RELEASE | 7, 40'000'000).departure_ns, 0u);
}

}  // namespace
}  // namespace hedgerow::packets
