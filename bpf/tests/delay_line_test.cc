// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Engine qdisc: a clone of each request goes into the delay line, and what comes out of it becomes the hedge or ends. The
// line is the clock's link here, where a sniffer sees what is put in; how long a queueing discipline really holds a
// packet is measured elsewhere.
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Pair;

class DelayLineTest : public PacketTest {
 protected:
  void StartWith(hr_engine engine) {
    if (IsSkipped()) return;
    DataPlaneSpec spec = Spec();
    spec.engine = engine;
    spec.delay_out_ifindex = static_cast<uint32_t>(TestLinks::Get().clock_out.ifindex);
    spec.services[kDns6Service].delay_class = 1;
    Start(spec);
    TestLinks::Get().clock_sniffer->Take(0, 0);
  }
  // One request and its clone.
  uint32_t Ask(uint16_t id) {
    Split(DnsRequest4(id));
    const uint32_t request = FindDns(id);
    EXPECT_NE(request, 0u);
    const std::vector<Captured> clones = Clones(HR_MARK_DELAYED, 1);
    if (!clones.empty()) {
      EXPECT_EQ(HR_MARK_VALUE(clones[0].mark), request);
      EXPECT_EQ(Layer3(clones[0].packet), Layer3(DnsRequest4(id))) << "as it came from the client";
    }
    return request;
  }
  // What comes out of the line for a request.
  RunResult Arrive(uint32_t request, const Bytes& packet, uint32_t kind = HR_MARK_DELAYED) {
    return Run(skeleton()->progs.hr_rescuer, packet,
               {.mark = kind | HR_MARK_VALUE(request), .ifindex = TestLinks::Get().clock_in.ifindex});
  }
  void LetItBeDue(uint32_t request) { Request(request).fire_ns = NowNs() - 1; }
};

TEST_F(DelayLineTest, AnUnansweredRequestsCloneBecomesTheHedge) {
  StartWith(HR_ENGINE_NETEM);
  Split(DnsRequest4(1), {.mark = 0x66});
  const uint32_t request = FindDns(1);
  Clones(HR_MARK_DELAYED, 1);
  ServiceState(kDns4Service).budget_micros = 1'000'000;
  LetItBeDue(request);
  const RunResult run = Arrive(request, DnsRequest4(1));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(run.mark, 0x66u) << "the client's";
  EXPECT_EQ(Layer3(run.packet),
            Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build()));
  EXPECT_EQ(run.changes, (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  EXPECT_EQ(SentTo(request), 0b11u);
  const auto snapshot = plane().Read(true);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->services[kDns4Service].fire_error.Count(), 1u);
  EXPECT_THAT(Reply(DnsReply4(1, kB4)).changes, testing::Contains(Pair("dns4.won_by_hedge", 1)));
}

TEST_F(DelayLineTest, ACloneEndsWhenItsRequestIsAnsweredGoneOrNotDue) {
  StartWith(HR_ENGINE_NETEM);
  ServiceState(kDns4Service).budget_micros = 10'000'000;
  const uint32_t early = Ask(1);
  EXPECT_EQ(Arrive(early, DnsRequest4(1)).verdict, kDropped) << "an older request's clone, held up";
  const uint32_t answered = Ask(2);
  LetItBeDue(answered);
  Reply(DnsReply4(2, kA4));
  const RunResult run = Arrive(answered, DnsRequest4(2));
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_THAT(run.changes, IsEmpty()) << "the usual end of a clone";
  EXPECT_EQ(Arrive(63, DnsRequest4(3)).verdict, kDropped);
  EXPECT_EQ(Arrive(0xffffff, DnsRequest4(3)).verdict, kDropped);
  EXPECT_EQ(SentTo(early) | SentTo(answered), 0b01u);
}

TEST_F(DelayLineTest, AHedgeIsPaidForAndAnEmptyBudgetIsCounted) {
  StartWith(HR_ENGINE_NETEM);
  const uint32_t request = Ask(1);
  ServiceState(kDns4Service).budget_micros = 0;
  LetItBeDue(request);
  const RunResult run = Arrive(request, DnsRequest4(1));
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_EQ(run.changes, (Changes{{"dns4:no_budget", 1}}));
  EXPECT_EQ(SentTo(request), 0b01u);
}

TEST_F(DelayLineTest, TheClockKeepsTheBooksAndFiresNothing) {
  StartWith(HR_ENGINE_NETEM);
  ServiceState(kDns4Service).budget_micros = 10'000'000;
  const uint32_t request = Ask(1);
  EXPECT_THAT(FireNow(request), IsEmpty());
  Clones(HR_MARK_HEDGE, 0);
  EXPECT_EQ(Request(request).due_ns, Request(request).sent_ns + ServiceConfig(kDns4Service).deadline_ns);
  MakeExpired(request);
  EXPECT_EQ(VisitAll(), (Changes{{"dns4.unanswered", 1}}));
}

TEST_F(DelayLineTest, BothCopiesAroundASuspectLeaderLeaveNothingToWait) {
  StartWith(HR_ENGINE_NETEM);
  BackendState(kDns4A).wait_since_ns = 1;  // silent since ever
  EXPECT_THAT(Split(DnsRequest4(1)).changes, testing::Contains(Pair("dns4.suspected", 1)));
  Clones(HR_MARK_SEND, 1);
  Clones(HR_MARK_DELAYED, 0);
}

TEST_F(DelayLineTest, AnUntrackedRequestHasNoClone) {
  StartWith(HR_ENGINE_NETEM);
  ASSERT_TRUE(plane().SetBypass("dns4", true).ok());
  Split(DnsRequest4(1));
  Clones(HR_MARK_DELAYED, 0);
}

TEST_F(DelayLineTest, WhatIsNotOursIsDroppedAndCountedAndAChargerIsNot) {
  StartWith(HR_ENGINE_HTB);
  EXPECT_THAT(Arrive(0, DnsRequest4(1), HR_MARK_CHARGE).changes, IsEmpty());
  const RunResult foreign = Arrive(0, DnsRequest4(1), 0);
  EXPECT_EQ(foreign.verdict, kDropped);
  EXPECT_EQ(foreign.changes, (Changes{{"host:clock_stale", 1}}));
}

TEST_F(DelayLineTest, InHtbAChargerGoesFirstAndEachRequestTakesTheNextLeaf) {
  StartWith(HR_ENGINE_HTB);
  for (uint16_t id = 1; id <= 3; ++id) {
    Split(DnsRequest4(id));
    const auto captured = TestLinks::Get().clock_sniffer->Take(2, 200);
    std::vector<uint32_t> kinds;
    for (const Captured& each : captured) {
      if (HR_MARK_KIND(each.mark) != HR_MARK_LAP) kinds.push_back(HR_MARK_KIND(each.mark));
    }
    EXPECT_EQ(kinds, (std::vector<uint32_t>{HR_MARK_CHARGE, HR_MARK_DELAYED})) << id;
  }
  for (uint32_t leaf = 0; leaf < 4; ++leaf) {
    hr_delay_leaf taken{};
    ASSERT_TRUE(LookUpElement(skeleton()->maps.delay_leaves, &leaf, &taken).ok());
    EXPECT_EQ(taken.taken_ns != 0, leaf < 3) << leaf;
  }
}

TEST_F(DelayLineTest, WithEveryLeafInUseARequestIsNotHedgedAndCounted) {
  StartWith(HR_ENGINE_HTB);
  const hr_delay_leaf taken{.taken_ns = NowNs()};
  for (uint32_t leaf = 0; leaf < HR_DELAY_LEAVES; ++leaf)
    ASSERT_TRUE(UpdateElement(skeleton()->maps.delay_leaves, &leaf, &taken).ok());
  const RunResult run = Split(DnsRequest4(1));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.requests", 1), Pair("dns4:delay_line_full", 1)));
  Clones(HR_MARK_DELAYED, 0);
  EXPECT_NE(FindDns(1), 0u) << "tracked all the same";
}

TEST_F(DelayLineTest, ALapOrACloneGetsItsDepartureTimeAndNothingElseDoes) {
  StartWith(HR_ENGINE_FQ);
  auto departs = [&](uint32_t mark, uint32_t priority) {
    return Run(skeleton()->progs.hr_departure, DnsRequest4(1),
               {.mark = mark, .priority = priority, .ifindex = TestLinks::Get().clock_out.ifindex});
  };
  for (const uint32_t mark : {HR_MARK_LAP | 7, HR_MARK_DELAYED | 7}) {
    const uint64_t before_ns = NowNs();
    const RunResult run = departs(mark, 40'000'000);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.departure_ns, AllOf(Ge(before_ns + 40'000'000), Le(NowNs() + 40'000'000)));
  }
  EXPECT_EQ(departs(HR_MARK_RELEASE | 7, 40'000'000).departure_ns, 0u);
  EXPECT_EQ(departs(0, 40'000'000).departure_ns, 0u);
}

}  // namespace
}  // namespace hedgerow::packets
