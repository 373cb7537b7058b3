// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Steering around a silent leader (HEALTHY, SUSPECT, DOWN), the choice of a standby, the leader map, and the
// hedging budget. Times are set in the mapped state; nothing here waits.
#include <netinet/in.h>

#include "bpf/tests/checksum.h"
#include "bpf/proxy/choose.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class SteerTest : public PacketTest {
 protected:
  RunResult Ask(uint16_t id) { return Split(DnsRequest4(id)); }
  BackendSnapshot OfA() { return plane().reader().Read(true)->services[kDns4Service].backends[0]; }
  void MakeDown(uint32_t backend) {
    BackendState(backend).health = HR_DOWN;
    BackendState(backend).health_since_ns = NowNs();
  }
};

TEST_F(SteerTest, ALeaderThatOwesNothingIsHealthyHoweverLongItIsSilent) {
  BackendState(kDns4A).last_receive_ns = 1;
  EXPECT_THAT(Ask(1).changes, UnorderedElementsAre(Pair("dns4.requests", 1)));
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
}

TEST_F(SteerTest, ASilentLeaderIsSuspectedAndBothGetACopyAtOnce) {
  Silence(kDns4A, 41 * kSecond);  // the limit is 40 s here
  const RunResult run = Split(DnsRequest4(1), {.mark = 0x33});
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_EQ(run.mark, 0x33u);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.requests", 1), Pair("dns4.suspected", 1),
                                                Pair("dns4.failover_sends", 1), Pair("dns4.extra_sends", 1)));
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
  const uint32_t request = FindDns(1);
  EXPECT_EQ(SentTo(request), 0b11u);
  EXPECT_EQ(Request(request).attempts, 2u);
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 1'000'000) << "failover costs no budget";

  const std::vector<Captured> copies = Clones(HR_MARK_SEND, 1);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(Layer3(copies[0].packet),
            Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build()));
  const RunResult sent = Clock(copies[0].packet, {.mark = copies[0].mark});
  EXPECT_EQ(sent.verdict, kRedirected);
  EXPECT_EQ(sent.packet, copies[0].packet);
  EXPECT_EQ(sent.mark, 0x33u) << "both copies leave with the client's mark";
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).changes.at("dns4.won_by_failover"), 1);
}

TEST_F(SteerTest, SlownessIsNoSilence) {
  Silence(kDns4A, 39 * kSecond);
  EXPECT_THAT(Ask(1).changes, UnorderedElementsAre(Pair("dns4.requests", 1)));
}

TEST_F(SteerTest, TheSuspicionTimeoutIsThreeTimesTheP95) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  ASSERT_TRUE(plane().policy().SetBackendP95("dns4", 0, 20 * kSecond).ok());
  Silence(kDns4A, 59 * kSecond);
  Ask(1);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  Silence(kDns4A, 61 * kSecond);
  Ask(2);
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
}

TEST_F(SteerTest, TheSuspicionTimeoutHasACeiling) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  ServiceConfig(kDns4Service).suspect_max_ns = 10 * kSecond;
  ASSERT_TRUE(plane().policy().SetBackendP95("dns4", 0, 20 * kSecond).ok());
  Silence(kDns4A, 9 * kSecond);
  Ask(1);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  Silence(kDns4A, 11 * kSecond);
  Ask(2);
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
}

// ---- What an outage leaves behind
// -----------------------------------------------------------------------------------

TEST_F(SteerTest, APauseIsOneSampleHoweverManyAnswersItHeldBack) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  for (uint16_t id = 1; id <= 20; ++id) {
    Ask(id);
    Request(FindDns(id)).sent_ns = NowNs() - 400 * kMillisecond;
  }
  Silence(kDns4A, 400 * kMillisecond);
  for (uint16_t id = 1; id <= 20; ++id) Reply(DnsReply4(id, kA4));
  EXPECT_EQ(OfA().answer_times.Count(), 20u) << "the adaptive delay's";
  EXPECT_EQ(OfA().ordinary_times.Count(), 1u);
  EXPECT_GE(OfA().ordinary_times.max_ns, 400 * kMillisecond);
  const uint64_t ewma_ns = OfA().answer_ewma_ns;
  EXPECT_GE(ewma_ns, 400 * kMillisecond) << "the answer that ended it counts, as the others do not";

  // What came just after it had to queue behind what it held back.
  Ask(21);
  Ask(22);
  Reply(DnsReply4(21, kA4));
  Reply(DnsReply4(22, kA4));
  EXPECT_EQ(OfA().ordinary_times.Count(), 1u);
  Ask(23);
  Reply(DnsReply4(23, kA4));
  EXPECT_EQ(OfA().ordinary_times.Count(), 2u);
  EXPECT_LT(OfA().answer_ewma_ns, ewma_ns);
}

TEST_F(SteerTest, APauseIsOneWhateverTheSuspicionTimeoutHasBecome) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  ASSERT_TRUE(plane().policy().SetBackendP95("dns4", 0, 20 * kSecond).ok());
  Ask(1);
  Ask(2);
  for (const uint16_t id : {1, 2}) Request(FindDns(id)).sent_ns = NowNs() - 400 * kMillisecond;
  Silence(kDns4A, 400 * kMillisecond);
  Reply(DnsReply4(1, kA4));
  Reply(DnsReply4(2, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY) << "it was never suspect";
  EXPECT_EQ(OfA().ordinary_times.Count(), 1u) << "or a long timeout would keep itself up";
}

TEST_F(SteerTest, EachSlowAnswerOfASeldomAskedBackendIsASample) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  for (uint16_t id = 1; id <= 20; ++id) {
    Ask(id);
    Request(FindDns(id)).sent_ns = NowNs() - 100 * kMillisecond;
    Silence(kDns4A, 100 * kMillisecond);
    Reply(DnsReply4(id, kA4));
  }
  EXPECT_EQ(OfA().ordinary_times.Count(), 20u);
  EXPECT_GE(OfA().ordinary_times.QuantileNs(0.05), 100 * kMillisecond);
  EXPECT_GE(OfA().answer_ewma_ns, 100 * kMillisecond);
}

TEST_F(SteerTest, ABackendThatWorksOffItsBacklogIsStillSuspect) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;  // the timeout is 600 ms here
  Ask(1);
  Ask(2);
  for (const uint16_t id : {1, 2}) Request(FindDns(id)).sent_ns = NowNs() - 700 * kMillisecond;
  Silence(kDns4A, 700 * kMillisecond);
  Ask(3);
  ASSERT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT) << "new requests would queue behind the backlog";
  Ask(4);
  EXPECT_EQ(SentTo(FindDns(4)), 0b11u);
  Reply(DnsReply4(2, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
  Reply(DnsReply4(4, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  Clones(HR_MARK_SEND, 2);
}

TEST_F(SteerTest, TheFirstAnswerOfALeaderThatWasDownMakesItSuspectSoThatBothAreAsked) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  Ask(1);
  Request(FindDns(1)).sent_ns = NowNs() - 2 * kSecond;
  Silence(kDns4A, 2 * kSecond);
  MakeDown(kDns4A);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
  EXPECT_GE(BackendState(kDns4A).health_since_ns, NowNs() - kSecond) << "for another election timeout at most";
  Ask(2);
  EXPECT_EQ(SentTo(FindDns(2)), 0b11u);
  Reply(DnsReply4(2, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  Clones(HR_MARK_SEND, 1);
}

TEST_F(SteerTest, ABackendThatHasAnsweredAndHasHadNothingToDoSinceIsHealthy) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;  // the timeout is 600 ms here
  Ask(1);
  Request(FindDns(1)).sent_ns = NowNs() - 700 * kMillisecond;
  Silence(kDns4A, 700 * kMillisecond);
  Ask(2);
  Request(FindDns(2)).sent_ns = NowNs() - 650 * kMillisecond;
  Clones(HR_MARK_SEND, 1);
  Reply(DnsReply4(1, kA4));
  Reply(DnsReply4(2, kA4));
  ASSERT_EQ(BackendState(kDns4A).health, HR_SUSPECT) << "both were late";
  EXPECT_EQ(OfA().health, HR_SUSPECT);
  BackendState(kDns4A).answered_ns = NowNs() - 601 * kMillisecond;
  BackendState(kDns4A).health_since_ns = NowNs() - 650 * kMillisecond;
  EXPECT_EQ(OfA().health, HR_HEALTHY) << "nobody sends, so no program says so";
  Ask(3);
  EXPECT_EQ(SentTo(FindDns(3)), 0b01u);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
}

TEST_F(SteerTest, ARequestWithoutBudgetIsLookedAtAgainWhenItsBackendBecomesSuspect) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  ServiceConfig(kDns4Service).budget_ppm = 0;
  ServiceState(kDns4Service).budget_micros = 0;
  Ask(1);
  const uint32_t request = FindDns(1);
  const uint64_t silent_since_ns = BackendState(kDns4A).wait_since;
  ASSERT_EQ(silent_since_ns, HR_WAIT(Request(request).sent_ns, Request(request).client) | HR_WAIT_UNPROVED);
  Request(request).rechecks = 3;  // it would be looked at after 3.2 s
  EXPECT_EQ(FireNow(request), (Changes{{"dns4:no_budget", 1}}));
  EXPECT_EQ(Request(request).due_ns, silent_since_ns + 600 * kMillisecond + 1);
  // It speaks to others meanwhile: there is nothing to wait for.
  BackendState(kDns4A).wait_since = HR_WAIT(NowNs() + kMillisecond, Request(request).client);
  FireNow(request);
  EXPECT_GT(Request(request).due_ns, silent_since_ns + 700 * kMillisecond);
}

TEST_F(SteerTest, AStandbyThatServesIsMeasured) {
  MakeDown(kDns4A);
  BackendState(kDns4A).probe_counter = 1;
  Ask(1);
  Reply(DnsReply4(1, kB4));
  EXPECT_EQ(plane().reader().Read(true)->services[kDns4Service].backends[1].answer_times.Count(), 1u);
}

// ---- Signs of life
// --------------------------------------------------------------------------------------------------

TEST_F(SteerTest, WhatNamesNoRequestEndsNoSilenceAndHealsNobody) {
  Silence(kDns4A, 39 * kSecond);
  Ask(1);
  Bytes query(DnsQuery(1, "www.example.org"));  // QR is not set: no reply
  const RunResult run = Reply(PacketBuilder(kA4, kClient4).Udp(kDnsPort, kClientPort, query).Build());
  EXPECT_THAT(run.changes, Contains(Pair("dns4:not_a_reply", 1)));
  EXPECT_NE(BackendState(kDns4A).wait_since, 0u) << "any other host could have sent it";
  MakeDown(kDns4A);
  Reply(PacketBuilder(kA4, kClient4).Udp(kDnsPort, kClientPort, query).Build());
  EXPECT_EQ(BackendState(kDns4A).health, HR_DOWN);
}

TEST_F(SteerTest, ARequestThatIsPassedThroughSaysNothingAboutSilence) {
  Bytes query = DnsQuery(1, "www.example.org");
  query[2] = 0x28;  // UPDATE
  const RunResult run = Split(PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, query).Build());
  EXPECT_THAT(run.changes, Contains(Pair("dns4:unknown_operation", 1)));
  EXPECT_EQ(BackendState(kDns4A).wait_since, 0u);
}

TEST_F(SteerTest, WithEveryBackendDownNothingIsDoubled) {
  MakeDown(kDns4A);
  MakeDown(kDns4B);
  BackendState(kDns4A).probe_counter = 1;
  ServiceConfig(kDns4Service).budget_ppm = 0;
  ServiceState(kDns4Service).budget_micros = 0;
  Ask(1);
  EXPECT_EQ(SentTo(FindDns(1)), 0b10u);
  EXPECT_EQ(FireNow(FindDns(1)), (Changes{{"dns4:no_budget", 1}})) << "a second copy is a hedge, and paid";
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(SteerTest, DatagramsBeyondTheFirstAreCounted) {
  Silence(kDns4A, 41 * kSecond);
  EXPECT_EQ(Ask(1).changes.at("dns4.extra_sends"), 1);
  Clones(HR_MARK_SEND, 1);
  MakeDown(kDns4A);
  BackendState(kDns4A).probe_counter = 1;
  EXPECT_EQ(Ask(2).changes.count("dns4.extra_sends"), 0u) << "the standby gets the only one";
  BackendState(kDns4A).health = HR_HEALTHY;
  BackendState(kDns4A).wait_since = 0;
  Ask(3);
  EXPECT_EQ(FireNow(FindDns(3)).at("dns4.extra_sends"), 1);
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(SteerTest, AnyAnswerMakesItHealthyAgain) {
  Silence(kDns4A, 41 * kSecond);
  Ask(1);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  EXPECT_EQ(BackendState(kDns4A).wait_since, 0u);
  EXPECT_THAT(Ask(2).changes, UnorderedElementsAre(Pair("dns4.requests", 1)));
}

TEST_F(SteerTest, ALosersAnswerMakesItHealthyToo) {
  Silence(kDns4A, 41 * kSecond);
  Ask(1);
  Reply(DnsReply4(1, kB4));
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kDropped);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
}

TEST_F(SteerTest, AfterAnElectionTimeoutItIsDown) {
  Silence(kDns4A, 41 * kSecond);
  Ask(1);
  BackendState(kDns4A).health_since_ns = NowNs() - 41 * kSecond;
  Ask(2);
  EXPECT_EQ(BackendState(kDns4A).health, HR_DOWN);
}

TEST_F(SteerTest, DownMeansTheStandbyAloneAndOneProbeInSixtyFour) {
  MakeDown(kDns4A);
  uint32_t probes = 0;
  for (uint16_t id = 1; id <= HR_PROBE_ONE_IN; ++id) {
    const RunResult run = Ask(id);
    EXPECT_EQ(Read(run.packet).destination, kB4);
    EXPECT_EQ(run.changes.count("dns4.passed_through"), 0u);
    const bool probe = run.changes.contains("dns4.probes");
    probes += probe;
    EXPECT_EQ(run.changes.at("dns4.failover_sends"), probe ? 2 : 1);
    EXPECT_EQ(SentTo(FindDns(id)), probe ? 0b11u : 0b10u);
  }
  EXPECT_EQ(probes, 1u);
  for (const Captured &copy : Clones(HR_MARK_SEND, 1)) EXPECT_EQ(Read(copy.packet).destination, kA4);
}

TEST_F(SteerTest, UntrackedRequestsProbeALeaderThatIsDownToo) {
  for (const bool bypass : {false, true}) {
    const char *vip = bypass ? kRaw4 : kOnce4;
    ASSERT_TRUE(plane().policy().SetBypass("raw4", bypass).ok());
    MakeDown(bypass ? kRaw4A : kOnceA);
    uint32_t to_leader = 0;
    for (uint8_t i = 0; i < 2 * HR_PROBE_ONE_IN; ++i) {
      const RunResult run = Split(PacketBuilder(kClient4, vip).Udp(kClientPort, kRawPort, {i, 0, 0, 0}).Build());
      EXPECT_EQ(run.verdict, kRedirected);
      to_leader += Read(run.packet).destination == kA4;
    }
    EXPECT_EQ(to_leader, 2u) << "else nobody ever hears that it is back";
  }
  Clones(HR_MARK_SEND, 0);
}

TEST_F(SteerTest, WhereNothingIsTrackedAnAnswerToAForwardedRequestHeals) {
  ASSERT_TRUE(plane().policy().SetBypass("raw4", true).ok());
  MakeDown(kRaw4A);
  BackendState(kRaw4A).wait_since = 1;
  const Bytes request = PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build();
  EXPECT_EQ(Read(Split(request).packet).destination, kA4) << "it is itself the probe";
  Reply(PacketBuilder(kA4, kClient4).Udp(9000, kClientPort, {1, 0, 0, 0}).Build());
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
  EXPECT_EQ(BackendState(kRaw4A).wait_since, 0u);
}

TEST_F(SteerTest, ARetransmissionIsNoProbe) {
  MakeDown(kDns4A);
  BackendState(kDns4A).probe_counter = 1;
  Ask(1);
  BackendState(kDns4A).probe_counter = 16;
  const RunResult again = Ask(1);
  EXPECT_EQ(Read(again.packet).destination, kB4) << "who was asked is asked again";
  EXPECT_EQ(again.changes.at("dns4:retransmission"), 1);
  EXPECT_FALSE(again.changes.contains("dns4.probes"));
  EXPECT_EQ(SentTo(FindDns(1)), 0b10u);
}

TEST_F(SteerTest, ALeaderThatIsDownIsHedgedToOnlyAsALastResortWhenItIsToBeTriedAgain) {
  MakeDown(kDns4A);
  BackendState(kDns4A).probe_counter = 1;
  Ask(1);
  FireNow(FindDns(1));
  EXPECT_EQ(SentTo(FindDns(1)), 0b10u);
  BackendState(kDns4A).health_since_ns = 1;
  FireNow(FindDns(1));
  EXPECT_EQ(SentTo(FindDns(1)), 0b11u) << "nobody else is left";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(SteerTest, TheStandbyWithTheLowestAnswerTimeIsTaken) {
  BackendState(kRaw4B).answer_ewma_ns = 5 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 2 * kMillisecond;
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  const uint32_t request = FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0});
  ServiceState(kRaw4Service).budget_micros = 5'000'000;
  EXPECT_EQ(FireNow(request), (Changes{{"raw4.extra_sends", 1}, {"raw4.hedges", 1}}));
  EXPECT_EQ(SentTo(request), 0b101u);
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
  // The third attempt goes to whom is left, a fourth to nobody.
  FireNow(request);
  EXPECT_EQ(SentTo(request), 0b111u);
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kB4);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 0);
  EXPECT_EQ(Request(request).attempts, 3u);
}

TEST_F(SteerTest, AnUnhealthyStandbyIsTakenLast) {
  BackendState(kRaw4B).answer_ewma_ns = 1 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 9 * kMillisecond;
  MakeDown(kRaw4B);
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0}));
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
}

TEST_F(SteerTest, ADownStandbyWhoseRetryIsDueIsProbedBesideTheHedge) {
  ServiceConfig(kRaw4Service).election_timeout_ns = kSecond;
  BackendState(kRaw4B).answer_ewma_ns = 1 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 9 * kMillisecond;
  MakeDown(kRaw4B);
  Advance(HR_STANDBY_RETRY * kSecond);
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  const uint32_t request = FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0});
  EXPECT_EQ(FireNow(request),
            (Changes{{"raw4.extra_sends", 2}, {"raw4.hedges", 1}, {"raw4.failover_sends", 1}, {"raw4.probes", 1}}));
  EXPECT_EQ(SentTo(request), 0b111u);
  EXPECT_EQ(Request(request).attempts, 2u) << "a probe is no attempt";
  EXPECT_EQ(ServiceState(kRaw4Service).budget_micros, 0) << "nor paid for";
  const std::vector<Captured> copies = Copies(2);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].mark, HR_MARK_OF_COPY(HR_MARK_HEDGE, 2, request));
  EXPECT_EQ(Read(copies[0].packet).destination, kC4) << "the healthy one, though it is slower";
  EXPECT_EQ(copies[1].mark, HR_MARK_OF_COPY(HR_MARK_SEND, 1, request));
  EXPECT_EQ(Read(copies[1].packet).destination, kB4);
  EXPECT_EQ(ChecksumFault(copies[1].packet), "");
  // Not again at once.
  ServiceState(kRaw4Service).budget_micros = 1'000'000;
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {2, 0, 0, 0}).Build());
  EXPECT_EQ(FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {2, 0, 0, 0})),
            (Changes{{"raw4.extra_sends", 1}, {"raw4.hedges", 1}}));
  for (const Captured &copy : Copies(1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
  // And healthy as soon as it answers.
  Reply(PacketBuilder(kB4, kClient4).Udp(kRawPort, kClientPort, {1, 0, 0, 0}).Build());
  EXPECT_EQ(BackendState(kRaw4B).health, HR_HEALTHY);
}

// ---- A standby that was slow once
// -------------------------------------------------------------------------------------

TEST_F(SteerTest, OneHedgeInManyAsksTheStandbyThatWasHeardLeastLately) {
  BackendState(kRaw4B).answer_ewma_ns = 400 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 2 * kMillisecond;
  BackendState(kRaw4B).last_receive_ns = NowNs() - 3 * kSecond;
  BackendState(kRaw4C).last_receive_ns = NowNs();
  ServiceState(kRaw4Service).compared = HR_EXPLORE_ONE_IN - 2;
  for (const char *const asked : {kC4, kB4, kC4}) {
    const auto key = static_cast<uint8_t>(ServiceState(kRaw4Service).compared);
    ServiceState(kRaw4Service).budget_micros = 1'000'000;
    Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {key, 0, 0, 0}).Build());
    FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {key, 0, 0, 0}));
    for (const Captured &copy : Copies(1)) EXPECT_EQ(Read(copy.packet).destination, asked);
  }
}

TEST_F(SteerTest, ItsFirstAnswerAfterALongTimeReplacesItsAverage) {
  const auto answer = [&](uint8_t key) {
    Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {key, 0, 0, 0}).Build());
    Reply(PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, {key, 0, 0, 0}).Build());
    return BackendState(kRaw4A).answer_ewma_ns;
  };
  BackendState(kRaw4A).answer_ewma_ns = 400 * kMillisecond;
  BackendState(kRaw4A).last_receive_ns = NowNs();
  EXPECT_GT(answer(1), 300 * kMillisecond) << "an average moves slowly";
  BackendState(kRaw4A).answer_ewma_ns = 400 * kMillisecond;
  BackendState(kRaw4A).last_receive_ns = NowNs() - 6 * kSecond;
  EXPECT_LT(answer(2), 100 * kMillisecond) << "one that is too old says nothing";
}

TEST_F(SteerTest, ADownStandbyIsProbedBesideARequestToAHealthyLeader) {
  ServiceConfig(kRaw4Service).election_timeout_ns = kSecond;
  const auto split = [&](uint8_t key) {
    return Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {key, 0, 0, 0}).Build());
  };
  MakeDown(kRaw4B);
  Advance(HR_STANDBY_RETRY * kSecond);
  EXPECT_EQ(split(1).changes, (Changes{{"raw4.requests", 1}})) << "the daemon has named no unhealthy backend";
  ServicePolicy(kRaw4Service).unhealthy = 0b010;
  ServicePolicy(kRaw4Service).drained = 0b010;
  EXPECT_EQ(split(2).changes, (Changes{{"raw4.requests", 1}})) << "drained: it is to get nothing";
  ServicePolicy(kRaw4Service).drained = 0;
  const RunResult run = split(3);
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_EQ(run.changes,
            (Changes{{"raw4.requests", 1}, {"raw4.extra_sends", 1}, {"raw4.failover_sends", 1}, {"raw4.probes", 1}}));
  for (const Captured &copy : Copies(1)) EXPECT_EQ(Read(copy.packet).destination, kB4);
  EXPECT_EQ(Request(FindRequest(kRaw4Service, kClient4, kClientPort, {3, 0, 0, 0})).attempts, 1u)
      << "a probe is no attempt";
  EXPECT_EQ(split(4).changes, (Changes{{"raw4.requests", 1}})) << "not again at once";
  Reply(PacketBuilder(kB4, kClient4).Udp(kRawPort, kClientPort, {3, 0, 0, 0}).Build());
  EXPECT_EQ(BackendState(kRaw4B).health, HR_HEALTHY);
}

TEST_F(SteerTest, AStandbyThatWasNeverHeardIsProbedUntilItAnswers) {
  ServiceConfig(kRaw4Service).election_timeout_ns = kSecond;
  ServicePolicy(kRaw4Service).unhealthy = 0b010;
  BackendState(kRaw4B).last_receive_ns = 0;
  const auto probes = [&](uint8_t key) {
    const Changes changes =
        Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {key, 0, 0, 0}).Build()).changes;
    const auto found = changes.find("raw4.probes");
    Reply(PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, {key, 0, 0, 0}).Build());
    return found == changes.end() ? 0 : found->second;
  };
  EXPECT_EQ(probes(1), 1);
  EXPECT_EQ(probes(2), 0) << "not again at once";
  Advance(HR_STANDBY_RETRY * kSecond);
  EXPECT_EQ(probes(3), 1);
  Reply(PacketBuilder(kB4, kClient4).Udp(kRawPort, kClientPort, {3, 0, 0, 0}).Build());
  EXPECT_NE(BackendState(kRaw4B).last_receive_ns, 0u);
  Advance(HR_STANDBY_RETRY * kSecond);
  EXPECT_EQ(probes(4), 0) << "it answers";
}

TEST_F(SteerTest, ADownStandbyWhoseRetryIsDueIsProbedBesideAFailover) {
  ServiceConfig(kRaw4Service).election_timeout_ns = kSecond;
  BackendState(kRaw4C).answer_ewma_ns = 9 * kMillisecond;
  MakeDown(kRaw4B);
  Advance(HR_STANDBY_RETRY * kSecond);
  MakeDown(kRaw4A);
  BackendState(kRaw4A).probe_counter = 1;
  const RunResult run = Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  EXPECT_EQ(Read(run.packet).destination, kC4);
  EXPECT_EQ(run.changes,
            (Changes{{"raw4.requests", 1}, {"raw4.extra_sends", 1}, {"raw4.failover_sends", 2}, {"raw4.probes", 1}}));
  for (const Captured &copy : Copies(1)) EXPECT_EQ(Read(copy.packet).destination, kB4);
  const uint32_t request = FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0});
  EXPECT_EQ(Request(request).attempts, 1u);
  // The next waits for no probe, and has none.
  EXPECT_EQ(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {2, 0, 0, 0}).Build()).changes,
            (Changes{{"raw4.requests", 1}, {"raw4.failover_sends", 1}}));
  Copies(0);
}

TEST_F(SteerTest, ASecondCopyThatFailsIsTakenBack) {
  Ask(1);  // the clock runs
  Silence(kDns4A, 41 * kSecond);
  ASSERT_TRUE(net::SetLinkDown("hr0c1").ok());
  const RunResult run = Ask(2);
  ASSERT_TRUE(net::SetLinkUp("hr0c1").ok());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).destination, kA4) << "the request itself went out";
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_EQ(run.changes, (Changes{{"dns4.requests", 1}, {"dns4.suspected", 1}, {"dns4:hedge_failed", 1}}))
      << "no failover is counted";
  const uint32_t request = FindDns(2);
  EXPECT_EQ(SentTo(request), 0b01u) << "nobody waits for b";
  EXPECT_EQ(HR_FAILOVER_MASK(Request(request).masks), 0u);
  EXPECT_EQ(Request(request).attempts, 1u);
  EXPECT_EQ(BackendState(kDns4B).wait_since, 0u);
  EXPECT_EQ(FireNow(request), (Changes{{"dns4.extra_sends", 1}, {"dns4.failover_sends", 1}}))
      << "the clock makes the attempt";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(SteerTest, WithNobodyHealthyTheSecondSendIsPaidFor) {
  MakeDown(kDns4A);
  MakeDown(kDns4B);
  BackendState(kDns4A).probe_counter = 1;
  EXPECT_EQ(Read(Ask(1).packet).destination, kB4);
  EXPECT_EQ(FireNow(FindDns(1)), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}))
      << "load does not double for as long as both are down";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(SteerTest, TheNextAttemptGoesToANewLeaderThatWasNotAsked) {
  BackendState(kRaw4B).answer_ewma_ns = 1 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 9 * kMillisecond;
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
  ASSERT_TRUE(plane().policy().PinLeader("raw4", "c").ok());
  FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {1, 0, 0, 0}));
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
}

TEST_F(SteerTest, PinAndUnpin) {
  ASSERT_TRUE(plane().policy().PinLeader("dns4", "b").ok());
  EXPECT_EQ(Read(Ask(1).packet).destination, kB4);
  EXPECT_EQ(Read(Split(DnsRequest4(1)).packet).destination, kB4) << "a retransmission goes to whoever leads now";
  ASSERT_TRUE(plane().policy().UnpinLeader("dns4").ok());
  EXPECT_EQ(Read(Ask(2).packet).destination, kA4);
  EXPECT_FALSE(plane().policy().PinLeader("dns4", "nobody").ok());
  EXPECT_FALSE(plane().policy().PinLeader("nothing", "a").ok());
}

TEST_F(SteerTest, ARetransmissionToANewLeaderMayBeAnsweredByIt) {
  Ask(1);
  ASSERT_TRUE(plane().policy().PinLeader("dns4", "b").ok());
  EXPECT_THAT(Ask(1).changes, Contains(Pair("dns4:retransmission", 1)));
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).verdict, kRedirected);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kDropped);
}

// ---- The budget
// -----------------------------------------------------------------------------------------------------

TEST_F(SteerTest, TheBudgetIsEarnedByRequestsAndBounded) {
  ServiceConfig(kDns4Service).budget_ppm = 400'000;
  ServiceConfig(kDns4Service).budget_burst = 1;
  Ask(1);
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 400'000);
  Ask(2);
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 800'000);
  Ask(3);
  Ask(4);
  Ask(5);
  EXPECT_LE(ServiceState(kDns4Service).budget_micros, 1'000'000 + 400'000);
}

TEST_F(SteerTest, AHedgePaysOneTokenAndAnEmptyBucketRefuses) {
  ServiceConfig(kDns4Service).budget_ppm = 0;
  ServiceState(kDns4Service).budget_micros = 1'999'999;
  for (uint16_t id = 1; id <= 3; ++id) Ask(id);
  EXPECT_EQ(FireNow(FindDns(1)), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 999'999);
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(FireNow(FindDns(2)), (Changes{{"dns4:no_budget", 1}})) << "no minimum reserve";
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 999'999);
  Clones(HR_MARK_HEDGE, 0);
  EXPECT_EQ(FireNow(FindDns(2)), (Changes{})) << "counted once a request";
  // With a token in the bucket it is hedged after all.
  ServiceState(kDns4Service).budget_micros = 1'000'000;
  EXPECT_EQ(FireNow(FindDns(2)), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(SteerTest, AHedgeThatFailsCostsNothing) {
  Ask(1);
  const uint32_t request = FindDns(1);
  ASSERT_TRUE(net::SetLinkDown("hr0c1").ok());
  const Changes failed = FireNow(request);
  ASSERT_TRUE(net::SetLinkUp("hr0c1").ok());
  EXPECT_EQ(failed, (Changes{{"dns4:hedge_failed", 1}})) << "no hedge is counted";
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 1'000'000) << "nothing was sent";
  EXPECT_EQ(SentTo(request), 0b01u);
  EXPECT_EQ(FireNow(request), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

}  // namespace
}  // namespace hedgerow::packets
