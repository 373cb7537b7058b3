// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Second copies that leave with the first send while both backends are idle, and what is in flight at each backend.
#include "bpf/tests/kernel_fixture.h"
#include "bpf/proxy/load.h"

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
  }
};

TEST_F(IdleCopiesTest, ACopyLeavesWithTheFirstSendAndTheFirstAnswerWins) {
  const RunResult sent = Split(DnsRequest4(1));
  EXPECT_EQ(Read(sent.packet).destination, kA4);
  EXPECT_THAT(sent.changes, IsSupersetOf({Pair("dns4.idle_copies", 1), Pair("dns4.extra_sends", 1)}));
  EXPECT_THAT(sent.changes, Not(Contains(Key("dns4.hedges"))));
  EXPECT_THAT(sent.changes, Not(Contains(Key("dns4.failover_sends"))));
  const auto copies = Clones(HR_MARK_SEND, 1);
  EXPECT_EQ(Layer3(copies[0].packet), Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build()));
  EXPECT_EQ(InFlight(kDns4A), 1);
  EXPECT_EQ(InFlight(kDns4B), 1);
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], 1);

  const RunResult answer = Reply(DnsReply4(1, kB4));
  EXPECT_THAT(answer.changes, IsSupersetOf({Pair("dns4.won_by_hedge", 1), Pair("dns4.replies", 1)}));
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_COPIES], 0) << "the answer has paid";
  EXPECT_EQ(InFlight(kDns4B), 0);
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
  EXPECT_LE(copies, 19) << "never from 6 of 10 on";
  Copies(static_cast<size_t>(copies));
  EXPECT_EQ(InFlight(kDns4A), 30);
  EXPECT_EQ(InFlight(kDns4B), copies);
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
  Copies(1);
}

TEST_F(IdleCopiesTest, AfterTheCopyThereIsNoHedgeWhereTwoAttemptsAreAllowed) {
  Split(DnsRequest4(1));
  Copies(1);
  const Changes fired = FireNow(FindDns(1));
  EXPECT_THAT(fired, Not(Contains(Key("dns4.hedges"))));
}

TEST_F(IdleCopiesTest, WhatIsInFlightEndsWithTheAnswerTheNackTheDeadlineOrTheRetention) {
  Split(DnsRequest4(1));
  Copies(1);
  Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(InFlight(kDns4A), 0) << "a nack";
  EXPECT_EQ(InFlight(kDns4B), 1);
  MakeExpired(FindDns(1));
  VisitAll();
  EXPECT_EQ(InFlight(kDns4B), 0) << "the deadline";

  Split(DnsRequest4(2));
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
  EXPECT_EQ(BackendLoad(kDns4A).lost_ns, BackendLoad(kDns4B).lost_ns);
  BackendTuning(kDns4A).slow_at = 10;
  BackendLoad(kDns4A).in_flight = 40;
  BackendLoad(kDns4A).smoothed = hr_in_256ths(40);
  EXPECT_THAT(Split(DnsRequest4(2)).changes, Not(Contains(Key("dns4.idle_copies"))));
  BackendTuning(kDns4A).lost = 39;
  BackendLoad(kDns4A).smoothed = hr_in_256ths(1);
  EXPECT_THAT(Split(DnsRequest4(3)).changes, Contains(Pair("dns4.idle_copies", 1)));
  Copies(1);
  BackendLoad(kDns4A).in_flight = 2;
}

TEST_F(IdleCopiesTest, AnAnswersTimeIsNotedAtTheLevelOfWhatWasInFlight) {
  ServiceConfig(kDns4Service).idle_share = 0;
  for (uint16_t id = 1; id <= 4; ++id) Split(DnsRequest4(id));
  Advance(5 * kMillisecond);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(BackendLoad(kDns4A).samples[hr_load_level(4)], 1u);
  EXPECT_NEAR(BackendLoad(kDns4A).median[hr_load_level(4)], 5'000'000 / 1024, 3000);
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
  ServiceConfig(kRaw4Service).spreads = 1;
  BackendState(kRaw4B).answer_ewma_ns = kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 2 * kMillisecond;
  auto goes_to = [this, id = uint8_t{0}]() mutable {
    return Read(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {++id, 0, 0, 0}).Build()).packet).destination;
  };
  MakeLoaded(kRaw4A, 0.9);
  EXPECT_EQ(goes_to(), kA4);
  MakeLoaded(kRaw4A, 1.1);
  EXPECT_EQ(goes_to(), kB4);
  MakeLoaded(kRaw4B, 1.0);
  EXPECT_EQ(goes_to(), kC4);
  MakeLoaded(kRaw4C, 1.0);
  EXPECT_EQ(goes_to(), kA4) << "all are full: the target keeps its requests";
  ServiceConfig(kRaw4Service).spreads = 0;
  MakeLoaded(kRaw4B, 0);
  EXPECT_EQ(goes_to(), kA4) << "a leader gets what is for the leader";
}

}  // namespace
}  // namespace hedgerow::packets
