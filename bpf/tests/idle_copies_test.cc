// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Second copies that leave with the first send while both backends are idle, and what is in flight at each backend.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/proxy/load.h"
#include "bpf/tests/kernel_fixture.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr uint8_t kServFail = 2;

class IdleCopiesTest : public PacketTest {
 protected:
  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ServiceConfig(kDns4Service).idle_share = 77;  // 30 %
  }
  int32_t InFlight(uint32_t backend) { return BackendLoad(backend).in_flight; }
  // The backend has as many in flight as slow its answers down, times `share`.
  void MakeLoaded(uint32_t backend, double share) {
    BackendTuning(backend).slow_at = 1000;
    BackendLoad(backend).reported = static_cast<uint32_t>(share * HR_LOAD_FULL);
    BackendLoad(backend).reported_ns = NowNs();
    BackendLoad(backend).smoothed = static_cast<uint32_t>(share * 65536);
  }
};

TEST_F(IdleCopiesTest, ACopyLeavesWithTheFirstSendAndTheFirstAnswerWins) {
  const RunResult sent = Split(DnsRequest4(1));
  EXPECT_EQ(Read(sent.packet).destination, kA4);
  EXPECT_THAT(sent.changes, IsSupersetOf({Pair("dns4.idle_copies", 1), Pair("dns4.extra_sends", 1)}));
  EXPECT_THAT(sent.changes, Not(Contains(Key("dns4.hedges"))));
  EXPECT_THAT(sent.changes, Not(Contains(Key("dns4.failover_sends"))));
  const auto copies = Clones(HR_MARK_SEND, 1);
  EXPECT_EQ(Layer3(copies[0].packet),
            Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build()));
  EXPECT_EQ(InFlight(kDns4A), 1);
  EXPECT_EQ(InFlight(kDns4B), 0) << "a copy at once keeps no others away";
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], 1);

  const RunResult answer = Reply(DnsReply4(1, kB4));
  EXPECT_THAT(answer.changes, IsSupersetOf({Pair("dns4.won_by_hedge", 1), Pair("dns4.replies", 1)}));
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], 0) << "the answer has paid";
  EXPECT_EQ(InFlight(kDns4A), 1) << "it still works at it";
  const RunResult loser = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(loser.verdict, kDropped);
  EXPECT_THAT(loser.changes, Contains(Pair("dns4:loser", 1)));
  EXPECT_EQ(InFlight(kDns4A), 0);
}

TEST_F(IdleCopiesTest, OffThereIsNone) {
  ServiceConfig(kDns4Service).idle_share = 0;
  EXPECT_THAT(Split(DnsRequest4(1)).changes, Not(Contains(Key("dns4.idle_copies"))));
  Clones(HR_MARK_SEND, 0);
  EXPECT_EQ(InFlight(kDns4A), 1) << "the choice of a standby needs it anyway";
}

TEST_F(IdleCopiesTest, NoneWhereEitherBackendIsBusy) {
  MakeLoaded(kDns4A, 0.7);
  EXPECT_THAT(Split(DnsRequest4(1)).changes, Not(Contains(Key("dns4.idle_copies"))));
  MakeLoaded(kDns4A, 0.1);
  MakeLoaded(kDns4B, 0.7);
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Not(Contains(Key("dns4.idle_copies"))));
  MakeLoaded(kDns4B, 0.1);
  EXPECT_THAT(Split(DnsRequest4(3)).changes, Contains(Pair("dns4.idle_copies", 1)));
  Copies(1);
}

TEST_F(IdleCopiesTest, RequestsInFlightMakeABackendBusyAgainstWhatSlowsIt) {
  ServiceConfig(kDns4Service).attempts = 3;
  BackendTuning(kDns4A).slow_at = 10;
  BackendTuning(kDns4B).slow_at = 10;
  int copies = 0;
  for (uint16_t id = 1; id <= 30; ++id) copies += Split(DnsRequest4(id)).changes.contains("dns4.idle_copies") ? 1 : 0;
  EXPECT_GE(copies, 8) << "up to 3 of 10 in flight, as the last requests saw it";
  EXPECT_LE(copies, 15) << "never from 4.5 of 10 on";
  Copies(static_cast<size_t>(copies));
  EXPECT_EQ(InFlight(kDns4A), 30);
  EXPECT_EQ(InFlight(kDns4B), 0);
}

TEST_F(IdleCopiesTest, NoneToADrainedOrSilentBackendNorAroundOne) {
  EXPECT_TRUE(plane().policy().SetDrained("dns4", "b", true).ok());
  EXPECT_THAT(Split(DnsRequest4(1)).changes, Not(Contains(Key("dns4.idle_copies"))));
  EXPECT_TRUE(plane().policy().SetDrained("dns4", "b", false).ok());
  BackendState(kDns4B).health = HR_DOWN;
  BackendState(kDns4B).health_since_ns = NowNs();
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Not(Contains(Key("dns4.idle_copies"))));
  BackendState(kDns4B).health = HR_HEALTHY;
  BackendState(kDns4A).health = HR_SUSPECT;
  BackendState(kDns4A).health_since_ns = NowNs();
  const RunResult both = Split(DnsRequest4(3));
  EXPECT_THAT(both.changes, Not(Contains(Key("dns4.idle_copies"))));
  EXPECT_THAT(both.changes, Contains(Pair("dns4.failover_sends", 1))) << "the copy around a suspect backend, as before";
  Copies(1);
}

TEST_F(IdleCopiesTest, AServersPushbackHoldsThemBack) {
  ServiceState(kDns4Service).pushback_ns = ~0ull;
  ServiceState(kDns4Service).pushback_until_ns = NowNs() + kSecond;
  EXPECT_THAT(Split(DnsRequest4(1)).changes, Not(Contains(Key("dns4.idle_copies"))));
}

TEST_F(IdleCopiesTest, InADryRunTheyAreCountedAndNotSent) {
  EXPECT_TRUE(plane().policy().SetDryRun("dns4", true).ok());
  const RunResult sent = Split(DnsRequest4(1));
  EXPECT_THAT(sent.changes, Contains(Pair("dns4.would_copy", 1)));
  EXPECT_THAT(sent.changes, Not(Contains(Key("dns4.extra_sends"))));
  Copies(0);
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], 0);
}

TEST_F(IdleCopiesTest, WhatIsNotTrackedHasNoCopy) {
  EXPECT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Split(DnsRequest4(1));
  Copies(0);
  EXPECT_EQ(InFlight(kDns4A), 0);
}

TEST_F(IdleCopiesTest, WithoutAnswersTheyEnd) {
  ServiceState(kDns4Service).owed[HR_DEBT_COPIES] = HR_COPIES_MAX;
  const RunResult sent = Split(DnsRequest4(1));
  EXPECT_THAT(sent.changes, Contains(Pair("dns4:no_copy_budget", 1)));
  EXPECT_THAT(sent.changes, Not(Contains(Key("dns4.idle_copies"))));
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], HR_COPIES_MAX - 1);
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Contains(Pair("dns4.idle_copies", 1))) << "an answer pays for one";
  EXPECT_THAT(Split(DnsRequest4(3)).changes, Contains(Pair("dns4:no_copy_budget", 1)));
  Advance(kSecond);
  EXPECT_THAT(Split(DnsRequest4(4)).changes, Contains(Pair("dns4.idle_copies", 1))) << "and so does time";
  Copies(2);
}

TEST_F(IdleCopiesTest, AfterTheCopyThereIsNoHedgeWhereTwoAttemptsAreAllowed) {
  Split(DnsRequest4(1));
  Copies(1);
  const Changes fired = FireNow(FindDns(1));
  EXPECT_THAT(fired, Not(Contains(Key("dns4.hedges"))));
}

TEST_F(IdleCopiesTest, WhatIsInFlightEndsWithTheAnswerTheNackTheDeadlineOrTheRetention) {
  ServiceConfig(kDns4Service).idle_share = 0;
  Split(DnsRequest4(1));
  FireNow(FindDns(1));
  Copies(1);
  EXPECT_EQ(InFlight(kDns4A), 1);
  EXPECT_EQ(InFlight(kDns4B), 1) << "a hedge";
  Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(InFlight(kDns4A), 0) << "a nack";
  EXPECT_EQ(InFlight(kDns4B), 1);
  MakeExpired(FindDns(1));
  VisitAll();
  EXPECT_EQ(InFlight(kDns4B), 0) << "the deadline";

  Split(DnsRequest4(2));
  FireNow(FindDns(2));
  Copies(1);
  Reply(DnsReply4(2, kA4));
  EXPECT_EQ(InFlight(kDns4B), 1);
  const uint32_t request = FindDns(2);
  VisitAll();
  EXPECT_EQ(InFlight(kDns4B), 1);
  EndRetention(request);
  VisitAll();
  EXPECT_EQ(InFlight(kDns4B), 0) << "the retention";
}

TEST_F(IdleCopiesTest, RequestsThatWereLostAreNoLoad) {
  Split(DnsRequest4(1));
  Copies(1);
  Advance(3 * kMillisecond);
  MakeExpired(FindDns(1));
  VisitAll();
  EXPECT_GT(BackendLoad(kDns4A).lost_ns, 3 * kMillisecond);
  EXPECT_EQ(BackendLoad(kDns4B).lost_ns, 0u);
  BackendTuning(kDns4A).slow_at = 10;
  BackendLoad(kDns4A).in_flight = 40;
  BackendLoad(kDns4A).smoothed = 4 * 65536;
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Not(Contains(Key("dns4.idle_copies"))));
  BackendTuning(kDns4A).lost = 39;
  BackendLoad(kDns4A).smoothed = 65536 / 10;
  EXPECT_THAT(Split(DnsRequest4(3)).changes, Contains(Pair("dns4.idle_copies", 1)));
  Copies(1);
  BackendLoad(kDns4A).in_flight = 2;
}

TEST_F(IdleCopiesTest, AnAnswersTimeIsNotedAtTheLevelOfWhatWasInFlight) {
  ServiceConfig(kDns4Service).idle_share = 0;
  const uint64_t begin_ns = NowNs();
  for (uint16_t id = 1; id <= 4; ++id) Split(DnsRequest4(id));
  Advance(5 * kMillisecond);
  Reply(DnsReply4(1, kA4));
  const uint64_t at_most_ns = NowNs() - begin_ns;  // more than 5 ms by what the machine took for the rest
  EXPECT_EQ(BackendLoad(kDns4A).samples[hr_load_level(4)], 1u);
  EXPECT_GE(BackendLoad(kDns4A).median[hr_load_level(4)], 5'000'000u / 1024);
  EXPECT_LE(BackendLoad(kDns4A).median[hr_load_level(4)], at_most_ns / 1024);
}

TEST_F(IdleCopiesTest, AReportedLoadIsReadWhereTheProfileSays) {
  ServiceConfig(kRaw4Service).profile.load_offset = 6;
  ServiceConfig(kRaw4Service).profile.load_bytes = 1;
  const auto ask = [this](uint8_t id, Bytes answer) {
    Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {id, 0, 0, 0}).Build());
    Reply(PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, answer).Build());
  };
  ask(1, {1, 0, 0, 0, 9, 9, 255, 9});
  EXPECT_EQ(BackendLoad(kRaw4A).reported, unsigned{HR_LOAD_FULL});
  ask(2, {2, 0, 0, 0, 9, 9, 51});
  EXPECT_EQ(BackendLoad(kRaw4A).reported, 51u);
  ask(3, {3, 0, 0, 0, 9, 9});
  EXPECT_EQ(BackendLoad(kRaw4A).reported, 51u) << "too short to say anything";
  ServiceConfig(kRaw4Service).profile.load_bytes = 2;
  ask(4, {4, 0, 0, 0, 9, 9, 0x7f, 0xff});
  EXPECT_EQ(BackendLoad(kRaw4A).reported, 127u);
}

TEST_F(IdleCopiesTest, AHotStandbyIsPassedOverForAColdOne) {
  BackendState(kRaw4B).answer_ewma_ns = kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 9 * kMillisecond;
  MakeLoaded(kRaw4B, 1.5);
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0}));
  EXPECT_EQ(Read(Clones(HR_MARK_HEDGE, 1)[0].packet).destination, kC4);
}

TEST_F(IdleCopiesTest, WithPreferFastestANewRequestPassesOverAFullBackend) {
  ServiceConfig(kRaw4Service).spreads = HR_SPREAD_FASTEST;
  BackendState(kRaw4B).answer_ewma_ns = kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 2 * kMillisecond;
  auto goes_to = [this, id = uint8_t{0}]() mutable {
    return Read(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {++id, 0, 0, 0}).Build()).packet)
        .destination;
  };
  MakeLoaded(kRaw4A, 0.9);
  EXPECT_EQ(goes_to(), kA4);
  MakeLoaded(kRaw4A, 1.1);
  EXPECT_EQ(goes_to(), kB4);
  MakeLoaded(kRaw4B, 1.0);
  EXPECT_EQ(goes_to(), kC4);
  MakeLoaded(kRaw4C, 1.0);
  EXPECT_EQ(goes_to(), kA4) << "all are full: the target keeps its requests";
  ServiceConfig(kRaw4Service).spreads = HR_SPREAD_NONE;
  MakeLoaded(kRaw4B, 0);
  EXPECT_EQ(goes_to(), kA4) << "a leader gets what is for the leader";
}

TEST_F(IdleCopiesTest, AReportHasTheCopiesInItThatAreSentAtOnce) {
  MakeLoaded(kDns4A, 0.5);
  EXPECT_THAT(Split(DnsRequest4(1)).changes, Not(Contains(Key("dns4.idle_copies"))));
  ServiceState(kDns4Service).copied = 65535;  // each of the last requests had one: half of the half is theirs
  BackendLoad(kDns4A).smoothed = 65536 / 4;
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Contains(Pair("dns4.idle_copies", 1)));
  Copies(1);
}

// ---- What attacks found
// ---------------------------------------------------------------------------------------------------

class IdleCopiesRawTest : public IdleCopiesTest {
 protected:
  void SetUp() override {
    IdleCopiesTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ServiceConfig(kRaw4Service).idle_share = 77;
    ServiceConfig(kRaw4Service).suspect_min_ns = 5 * kMillisecond;
    ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  }
  RunResult Ask(uint8_t id, uint8_t version = 0) {
    return Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {id, 0, 0, 0, version}).Build());
  }
  RunResult Answer(uint8_t id, const char *backend, uint8_t version = 0) {
    return Reply(PacketBuilder(backend, kClient4).Udp(kRawPort, kClientPort, {id, 0, 0, 0, version}).Build());
  }
  uint32_t Find(uint8_t id) { return FindRequest(kRaw4Service, kClient4, kClientPort, {id, 0, 0, 0}); }
};

// The daemon names unhealthy backends, so that requests probe those that are down. Most requests have none to probe.
TEST_F(IdleCopiesRawTest, ABackendThatIsDownKeepsNoCopyFromTheOthers) {
  BackendState(kRaw4C).health = HR_DOWN;
  BackendState(kRaw4C).health_since_ns = NowNs();
  ServicePolicy(kRaw4Service).unhealthy = 0b100;
  for (uint8_t id = 1; id <= 5; ++id) {
    EXPECT_THAT(Ask(id).changes, IsSupersetOf({Pair("raw4.idle_copies", 1)})) << int{id};
    EXPECT_EQ(SentTo(Find(id)), 0b011u);
  }
  Copies(5);
  EXPECT_EQ(ServiceState(kRaw4Service).owed[HR_DEBT_COPIES], 5);
}

TEST_F(IdleCopiesRawTest, WithPreferFastestADrainedBackendGetsNothingWhereTheOthersAreFull) {
  ServiceConfig(kRaw4Service).idle_share = 0;
  ServiceConfig(kRaw4Service).spreads = HR_SPREAD_FASTEST;
  EXPECT_TRUE(plane().policy().SetDrained("raw4", "b", true).ok());
  EXPECT_TRUE(plane().policy().SetDrained("raw4", "c", true).ok());
  MakeLoaded(kRaw4A, 1.5);
  EXPECT_EQ(Read(Ask(1).packet).destination, kA4);
}

TEST_F(IdleCopiesRawTest, ALostCopyOfALoneClientDoesNotEndTheNext) {
  Split(DnsRequest4(1));
  Reply(DnsReply4(1, kA4));
  Advance(2 * kSecond);
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Contains(Pair("dns4.idle_copies", 1)));
  Reply(DnsReply4(2, kA4));
  Reply(DnsReply4(2, kB4));
  EXPECT_EQ(BackendState(kDns4B).health, uint32_t{HR_HEALTHY});
  EXPECT_THAT(Split(DnsRequest4(3)).changes, Contains(Pair("dns4.idle_copies", 1)));
  Copies(3);
}

// One socket's requests, one after the other, that nothing but the order of their replies tells apart.
TEST_F(IdleCopiesRawTest, NoAnswerOfALaggingBackendIsTakenForAnotherRequests) {
  for (uint8_t version = 1; version <= 2; ++version) {
    Ask(7, version);
    EXPECT_EQ(Answer(7, kA4, version).verdict, kRedirected);
  }
  Ask(7, 3);
  for (uint8_t version = 1; version <= 2; ++version)
    EXPECT_EQ(Answer(7, kB4, version).verdict, kDropped) << "b answers request " << int{version} << " late";
  EXPECT_EQ(Answer(7, kA4, 3).verdict, kRedirected);
}

TEST_F(IdleCopiesRawTest, NorOneOfALaggingLeader) {
  BackendState(kRaw4C).answer_ewma_ns = kSecond;  // so the copies go to b
  Ask(7, 1);
  EXPECT_EQ(Answer(7, kB4, 1).verdict, kRedirected);
  EXPECT_THAT(Ask(7, 2).changes, Not(Contains(Key("raw4.idle_copies")))) << "a still owes the reply to request 1";
  EXPECT_EQ(Answer(7, kA4, 1).verdict, kDropped);
  EXPECT_EQ(Answer(7, kB4, 2).verdict, kRedirected) << "so it went to b";
  EXPECT_THAT(Ask(7, 3).changes, Contains(Pair("raw4.idle_copies", 1))) << "nothing is owed any more";
  EXPECT_EQ(Answer(7, kB4, 3).verdict, kRedirected);
  Copies(2);
}

// A reply of a backend that was not sent the request in hand is the one that was owed.
TEST_F(IdleCopiesRawTest, CopiesGoOnOnceTheLaggingBackendHasAnswered) {
  Ask(7, 1);
  Answer(7, kA4, 1);
  EXPECT_THAT(Ask(7, 2).changes, Not(Contains(Key("raw4.idle_copies"))));
  EXPECT_EQ(Answer(7, kB4, 1).verdict, kDropped);
  EXPECT_EQ(Answer(7, kA4, 2).verdict, kRedirected);
  EXPECT_THAT(Ask(7, 3).changes, Contains(Pair("raw4.idle_copies", 1)));
  Copies(2);
}

TEST_F(IdleCopiesRawTest, AKeyIsInFlightOnceAtEachBackendHoweverOftenItIsUsed) {
  ServiceConfig(kRaw4Service).idle_share = 0;
  ServiceState(kRaw4Service).budget_micros = 50'000'000;
  for (uint8_t version = 1; version <= 10; ++version) {
    Ask(7, version);
    FireNow(Find(7));
    uint32_t place = 0;
    for (const uint32_t backend : {kRaw4A, kRaw4B, kRaw4C})
      ASSERT_EQ(InFlight(backend), static_cast<int32_t>(SentTo(Find(7)) >> place++ & 1)) << int{version};
    if (version % 2 == 0) Answer(7, kA4, version);
  }
  EXPECT_EQ(BackendLoad(kRaw4B).lost_ns, 0u) << "its replies are outstanding, not lost";
  Copies(0);  // all owe the last one's key two replies; each look of the clock forgets the copies before
}

TEST_F(IdleCopiesRawTest, AnErrorAboutTheLosersCopyEndsItsFlight) {
  ServiceConfig(kDns4Service).idle_share = 0;
  Split(DnsRequest4(1));
  FireNow(FindDns(1));
  Reply(DnsReply4(1, kA4));
  ASSERT_EQ(InFlight(kDns4B), 1);
  const Bytes sent =
      Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  EXPECT_EQ(Reply(PacketBuilder(kB4, kClient4).IcmpError(3, 3, sent).Build()).verdict, kDropped);
  EXPECT_EQ(InFlight(kDns4B), 0);
  Copies(1);
}

TEST_F(IdleCopiesRawTest, RetainedCopiesDoNotKeepRequestsFromBeingHedged) {
  const auto ask = [this](uint16_t id, bool both) {
    const Changes changes = Split(DnsRequest4(id)).changes;
    EXPECT_FALSE(changes.contains("dns4.passed_through")) << id;
    Reply(DnsReply4(id, kA4));
    if (both) Reply(DnsReply4(id, kB4));
    return changes;
  };
  for (uint16_t id = 1; id <= 100; ++id) {
    EXPECT_THAT(ask(id, true), Contains(Pair("dns4.idle_copies", 1))) << id;
    if (id % 20 != 0) continue;
    Advance(2 * kMillisecond);
    VisitAll();
    EXPECT_EQ(RequestsInUse(), 0u) << "both have answered: no loser can come";
  }
  EXPECT_THAT(Reply(DnsReply4(100, kB4)).changes, Contains(Pair("dns4:late", 1)))
      << "and one that comes twice is known for that";
  int copies = 0;
  for (uint16_t id = 1001; id <= 1250; ++id) {
    copies += ask(id, false).contains("dns4.idle_copies") ? 1 : 0;
    VisitAll();
  }
  EXPECT_EQ(copies, 256 / 4 - 1) << "a quarter of limits.requests, the one in hand included";
  EXPECT_THAT(Split(DnsRequest4(2000)).changes, Contains(Pair("dns4:no_copy_budget", 1)));
}

TEST_F(IdleCopiesRawTest, AClientsDebtIsPaidWithTheServices) {
  // The client's own copies were unanswered, others' answers have paid for all of them.
  const uint32_t request = (Split(DnsRequest4(1)), FindDns(1));
  const uint32_t client = Request(request).client;
  hr_client mine{};
  ASSERT_EQ(bpf_map_lookup_elem(bpf_map__fd(skeleton()->maps.clients), &client, &mine), 0);
  EXPECT_EQ(mine.owed[HR_DEBT_COPIES], 1);
  mine.owed[HR_DEBT_COPIES] = 300;
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(skeleton()->maps.clients), &client, &mine, 0), 0);
  Reply(DnsReply4(1, kA4));
  ASSERT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], 0);
  Split(DnsRequest4(2));
  Reply(DnsReply4(2, kA4));
  ASSERT_EQ(bpf_map_lookup_elem(bpf_map__fd(skeleton()->maps.clients), &client, &mine), 0);
  EXPECT_EQ(mine.owed[HR_DEBT_COPIES], 0) << "no client owes more than all";
}

}  // namespace
}  // namespace hedgerow::packets
