// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A backend that lives and fails (bpf/proxy/impaired.bpf.h): it answers some requests, and another backend answers what
// it leaves unanswered or refuses. Time is set forward, nothing waits.
#include <algorithm>
#include <string>
#include <vector>

#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

class ImpairedTest : public PacketTest {
 protected:
  void SetUp() override {
    PacketTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) List(kDns4Service, {"10.77.0.0/16"});
  }
  static Bytes Query(uint16_t id, const std::string &client) {
    return PacketBuilder(client.c_str(), kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build();
  }
  void Ask(uint16_t id, const std::string &client = kClient4) { SplitOf(client, Query(id, client)); }
  RunResult Answer(uint16_t id, const char *backend, const std::string &client = kClient4, uint8_t rcode = 0) {
    Advance(kMillisecond);
    return Reply(PacketBuilder(backend, client.c_str())
                     .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org"), rcode))
                     .Build());
  }
  uint32_t Find(uint16_t id, const std::string &client = kClient4) {
    return FindRequest(kDns4Service, client.c_str(), kClientPort,
                       {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)});
  }
  hr_health Health() { return static_cast<hr_health>(BackendState(kDns4A).health); }
  // The leader answers a request that came after this one, which it leaves: the standby answers the hedge, or does not.
  void Leave(bool standby_answers = true, const std::string &client = kClient4, const std::string &others = kClient4,
             uint64_t judged_after_ns = 0) {
    const uint16_t id = next_id_, other = static_cast<uint16_t>(id + 1);
    next_id_ = static_cast<uint16_t>(next_id_ + 2);
    Ask(id, client);
    const uint32_t request = Find(id, client);
    Advance(kMillisecond);
    Ask(other, others);
    Answer(other, kA4, others);
    FireNow(request);
    if (standby_answers) Answer(id, kB4, client);
    if (standby_answers)
      EndRetention(request);
    else
      MakeExpired(request);
    Advance(judged_after_ns);
    VisitAll();
    Clones(HR_MARK_HEDGE, 1);
  }
  void Refuse() {
    const uint16_t id = next_id_++;
    Ask(id);
    const RunResult nack = Answer(id, kA4, kClient4, 2);
    ASSERT_EQ(nack.verdict, kRedirected) << id;
    Clock(nack.packet, {.mark = nack.mark});
    Answer(id, kB4);
    VisitAll();
  }
  // The standby alone answers this request; the leader answers one that comes later, after `ns`.
  uint16_t Miss(uint64_t ns = kSecond / 2, const std::string &client = kClient4, const std::string &others = kClient4) {
    const uint16_t id = next_id_, other = static_cast<uint16_t>(id + 1);
    next_id_ = static_cast<uint16_t>(next_id_ + 2);
    Ask(id, client);
    const uint32_t request = Find(id, client);
    if (SentTo(request) == 1) FireNow(request);
    Answer(id, kB4, client);
    Advance(ns);
    Hit(other, others);
    return id;
  }
  void Hit(uint16_t id, const std::string &client = kClient4) {
    Ask(id, client);
    Answer(id, kA4, client);
  }
  // Impaired, and each request is a probe.
  void Impair() {
    BackendState(kDns4A).health = HR_IMPAIRED;
    BackendState(kDns4A).health_since_ns = NowNs();
    BackendLoad(kDns4A).failing = 65536 / 6;
  }
  void Probe(bool answered) {
    const uint16_t id = next_id_++;
    BackendState(kDns4A).probe_counter = 0;
    Ask(id);
    const uint32_t request = Find(id);
    Answer(id, kB4);
    if (answered) Answer(id, kA4);
    EndRetention(request);
    VisitAll();
  }
  bool HedgesAreFree(uint16_t id) {
    ServiceState(kDns4Service).budget_micros = 0;
    ServiceConfig(kDns4Service).budget_ppm = 0;
    Ask(id);
    const uint32_t request = Find(id);
    return SentTo(request) == 0b11 || FireNow(request).contains("dns4.failover_sends");
  }
  uint16_t next_id_ = 1000;
};

TEST_F(ImpairedTest, ALeaderThatLeavesManyRequestsToTheStandbyLeadsNoLonger) {
  for (int i = 0; i < 60 && Health() == HR_HEALTHY; ++i) {
    Leave();
    Advance(2 * kSecond);  // its client is alone
  }
  EXPECT_EQ(Health(), HR_IMPAIRED);
  BackendState(kDns4A).probe_counter = 1;
  Ask(1);
  EXPECT_EQ(SentTo(Find(1)), 0b10u);
  const auto snapshot = plane().reader().Read(false);
  EXPECT_EQ(snapshot->services[kDns4Service].backends[0].health, HR_IMPAIRED);
}

TEST_F(ImpairedTest, ARequestThatNoBackendAnswersSaysNothing) {
  for (int i = 0; i < 60; ++i) {
    Leave(/*standby_answers=*/false);
    Advance(2 * kSecond);
  }
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u);
  EXPECT_EQ(Health(), HR_HEALTHY);
}

TEST_F(ImpairedTest, OneClientAmongOthersMovesNothing) {
  for (int i = 0; i < 200; ++i) Leave(true, kClient4, "10.77.2.1");
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_LT(BackendLoad(kDns4A).failing, 65536u / 64);
}

TEST_F(ImpairedTest, NorDoesOneWhoseRequestsAreJudgedOnceTheOthersHaveGone) {
  for (int i = 0; i < 200; ++i) Leave(true, kClient4, "10.77.2.1", 2 * kSecond);
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_LT(BackendLoad(kDns4A).failing, 65536u / 64);
}

TEST_F(ImpairedTest, TwoClientsDo) {
  for (int i = 0; i < 60 && Health() == HR_HEALTHY; ++i) {
    Leave(true, i % 2 == 0 ? kClient4 : "10.77.3.7", "10.77.2.1");
  }
  EXPECT_EQ(Health(), HR_IMPAIRED);
}

// A container sends from any source of its network.
TEST_F(ImpairedTest, ManySourcesBehindOneInterfaceAmongOthersAreOne) {
  for (int i = 0; i < 200; ++i) {
    const std::string client = "10.77.3." + std::to_string(i % 100 + 1);
    const uint16_t id = next_id_, other = static_cast<uint16_t>(id + 1);
    next_id_ = static_cast<uint16_t>(next_id_ + 2);
    Split(Query(id, client), {.ingress_ifindex = 77});
    const uint32_t request = Find(id, client);
    Advance(kMillisecond);
    Ask(other);
    Answer(other, kA4);
    FireNow(request);
    Answer(id, kB4, client);
    EndRetention(request);
    VisitAll();
    Clones(HR_MARK_HEDGE, 1);
  }
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_LT(BackendLoad(kDns4A).failing, 65536u / 64);
}

// Long before the first one's retention is over.
TEST_F(ImpairedTest, ThreeRequestsThatTheLeaderHasPassedOverMakeHedgesFree) {
  for (int i = 0; i < 3; ++i) {
    BackendState(kDns4A).health = HR_HEALTHY;
    Miss();
  }
  EXPECT_GT(BackendLoad(kDns4A).failing, 65536u / 64);
  EXPECT_TRUE(HedgesAreFree(1));
}

TEST_F(ImpairedTest, WhatItHasMissedIsForgottenWithSomeHundredsOfAnswers) {
  for (int i = 0; i < 3; ++i) {
    BackendState(kDns4A).health = HR_HEALTHY;
    Miss();
  }
  ASSERT_GE(BackendLoad(kDns4A).missed, 3u);
  BackendState(kDns4A).health = HR_HEALTHY;
  for (uint16_t id = 2000; id < 2600; ++id) {
    Ask(id);
    Answer(id, kA4);
    EndRetention(Find(id));
    VisitAll();
  }
  EXPECT_EQ(BackendLoad(kDns4A).missed, 0u);
}

TEST_F(ImpairedTest, TwoDoNot) {
  for (int i = 0; i < 2; ++i) {
    BackendState(kDns4A).health = HR_HEALTHY;
    Miss();
  }
  EXPECT_FALSE(HedgesAreFree(1));
}

TEST_F(ImpairedTest, AnAnswerThatComesAfterAllTakesItsMissBackAndSoLateAnswersAreWaitedFor) {
  const uint16_t late = Miss();
  EXPECT_GT(BackendLoad(kDns4A).failing, 0u);
  Advance(3 * kSecond);
  Answer(late, kA4);
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u);
  for (int i = 0; i < 8; ++i) Miss();
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u) << "it takes up to 3.5 s, so the first one is not missed yet";
  EXPECT_FALSE(HedgesAreFree(1));
}

TEST_F(ImpairedTest, AnAnswerTakesBackNoMissThatDidNotCount) {
  Miss(kSecond / 2, kClient4, "10.77.2.1");
  BackendState(kDns4A).health = HR_HEALTHY;
  const uint32_t counted = BackendLoad(kDns4A).failing;
  ASSERT_GT(counted, 0u);
  const uint16_t late = Miss(kSecond / 2, kClient4, "10.77.2.1");
  EXPECT_LE(BackendLoad(kDns4A).failing, counted) << "the same client among others";
  Answer(late, kA4);
  EXPECT_GT(BackendLoad(kDns4A).failing, counted / 2);
}

TEST_F(ImpairedTest, AnAnswerAfterTheRetentionTakesItsMissBack) {
  const uint16_t late = next_id_;
  Leave();
  Advance(2 * kSecond);
  Hit(1);
  ASSERT_EQ(Find(late), 0u);
  ASSERT_GT(BackendLoad(kDns4A).failing, 0u);
  Answer(late, kA4);
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u);
}

TEST_F(ImpairedTest, AndOneThatCountedWhenTheRetentionEnded) {
  Ask(1);
  Ask(2);
  Advance(kMillisecond);
  Hit(3);
  for (const uint16_t id : {1, 2}) MakeDue(Find(id));
  VisitAll();
  Clones(HR_MARK_HEDGE, 2);
  for (const uint16_t id : {1, 2}) Answer(id, kB4);
  for (const uint16_t id : {1, 2}) EndRetention(Find(id));
  VisitAll();
  ASSERT_EQ(Find(2), 0u);
  ASSERT_GT(BackendLoad(kDns4A).failing, 65536u / 256);
  Answer(2, kA4);
  EXPECT_LT(BackendLoad(kDns4A).failing, 16u);
}

// Answers come in any order, each tenth after two seconds, and the standby is fast.
TEST_F(ImpairedTest, ALeaderThatIsSlowOutOfTurnIsNotImpaired) {
  std::vector<uint16_t> slow;
  uint32_t most = 0;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(Miss(kSecond / 5));
    for (int hit = 0; hit < 8; ++hit) Hit(next_id_++);
    if (slow.size() > 10) {
      Answer(slow.front(), kA4);
      slow.erase(slow.begin());
    }
    most = std::max<uint32_t>(most, BackendLoad(kDns4A).failing);
    ASSERT_EQ(Health(), HR_HEALTHY) << i;
  }
  EXPECT_LT(most, 65536u / 16) << "before it is known how late answers are";
  EXPECT_LT(BackendLoad(kDns4A).failing, 65536u / 64);
  EXPECT_FALSE(HedgesAreFree(1));
}

TEST_F(ImpairedTest, AnOutageIsOneMissHoweverManyRequestsItLoses) {
  ServiceConfig(kDns4Service).suspect_min_ns = kSecond / 2;
  for (int outage = 0; outage < 4; ++outage) {
    std::vector<uint32_t> lost;
    for (int i = 0; i < 30; ++i) {
      const uint16_t id = next_id_++;
      Ask(id);
      lost.push_back(Find(id));
      if (SentTo(lost.back()) == 1) FireNow(lost.back());
      Answer(id, kB4);
    }
    Advance(kSecond);
    for (int i = 0; i < 60; ++i) Hit(next_id_++);
    for (const uint32_t request : lost) EndRetention(request);
    VisitAll();
    for (int i = 0; i < 60; ++i) Hit(next_id_++);
    EXPECT_LE(BackendLoad(kDns4A).failing, 65536u / 64) << outage;
    EXPECT_EQ(Health(), HR_HEALTHY);
  }
}

// A request in five seconds: each miss is a silence of its own.
TEST_F(ImpairedTest, ALeaderThatIsAskedSeldomIsFoundToo) {
  ServiceConfig(kDns4Service).suspect_min_ns = kSecond / 10;
  for (int i = 0; i < 80 && Health() != HR_IMPAIRED; ++i) {
    Miss(5 * kSecond);
    Advance(5 * kSecond);
  }
  EXPECT_EQ(Health(), HR_IMPAIRED);
}

TEST_F(ImpairedTest, OneClientAmongOthersMakesNoHedgeFree) {
  for (int i = 0; i < 100; ++i) Miss(kSecond / 2, kClient4, "10.77.2.1");
  EXPECT_LT(BackendLoad(kDns4A).failing, 65536u / 64);
  EXPECT_LT(BackendLoad(kDns4A).missed, 3u);
}

TEST_F(ImpairedTest, AnImpairedBackendThatAnswersNoProbeIsDownAndComesBackImpaired) {
  Impair();
  for (int i = 0; i < 7; ++i) Probe(false);
  EXPECT_EQ(Health(), HR_IMPAIRED);
  Probe(false);
  EXPECT_EQ(Health(), HR_DOWN);
  Advance(10 * kSecond);
  for (int i = 0; i < 3 && Health() == HR_DOWN; ++i) Probe(true);
  EXPECT_EQ(Health(), HR_IMPAIRED);
}

TEST_F(ImpairedTest, OneThatAnswersNowAndThenStaysImpaired) {
  Impair();
  for (int i = 0; i < 100; ++i) {
    Probe(i % 5 == 0);
    Advance(kSecond);
    ASSERT_EQ(Health(), HR_IMPAIRED) << i;
  }
}

TEST_F(ImpairedTest, OneThatIsSilentIsNoBackendForWhatTheStandbyRefuses) {
  Impair();
  Probe(false);
  Advance(ServiceConfig(kDns4Service).election_timeout_ns + ServiceConfig(kDns4Service).suspect_max_ns + kSecond);
  BackendState(kDns4A).probe_counter = 1;
  BackendState(kDns4A).health_since_ns = NowNs();
  Ask(1);
  ASSERT_EQ(SentTo(Find(1)), 0b10u);
  EXPECT_EQ(Answer(1, kB4, kClient4, 5).changes["dns4.nacked"], 1);
}

TEST_F(ImpairedTest, OneWhoseHostRefusesIsDownAtOnce) {
  Impair();
  BackendState(kDns4A).probe_counter = 0;
  Ask(1);
  const Bytes quote = Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build());
  Reply(PacketBuilder(kA4, kClient4).IcmpError(3, 3, quote).Build());
  EXPECT_EQ(Health(), HR_DOWN);
  Copies(1);
}

TEST_F(ImpairedTest, ASlowLeaderIsNotImpaired) {
  for (int i = 0; i < 60; ++i) {
    const uint16_t id = next_id_++;
    Ask(id);
    const uint32_t request = Find(id);
    FireNow(request);
    Answer(id, kB4);
    Answer(id, kA4);
    VisitAll();
    Advance(2 * kSecond);
    Clones(HR_MARK_HEDGE, 1);
  }
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u);
}

TEST_F(ImpairedTest, NorIsOneThatWasSilent) {
  for (int i = 0; i < 20; ++i) {
    const uint16_t id = next_id_++;
    Ask(id);
    const uint32_t request = Find(id);
    FireNow(request);
    Answer(id, kB4);
    EndRetention(request);
    VisitAll();
    Clones(HR_MARK_HEDGE, 1);
  }
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u) << "silence is judged as silence";
}

TEST_F(ImpairedTest, ALeaderThatRefusesWhatTheStandbyAnswersLeadsNoLonger) {
  for (int i = 0; i < 60 && Health() == HR_HEALTHY; ++i) Refuse();
  EXPECT_EQ(Health(), HR_IMPAIRED);
}

TEST_F(ImpairedTest, WhatBothRefuseSaysNothing) {
  for (int i = 0; i < 30; ++i) {
    const uint16_t id = next_id_++;
    Ask(id);
    const RunResult nack = Answer(id, kA4, kClient4, 5);
    if (nack.verdict == kRedirected && nack.mark != 0) Clock(nack.packet, {.mark = nack.mark});
    Answer(id, kB4, kClient4, 5);
    VisitAll();
  }
  EXPECT_EQ(BackendLoad(kDns4A).failing, 0u);
}

TEST_F(ImpairedTest, WhileItFailsItsHedgesAreFree) {
  BackendLoad(kDns4A).failing = 65536 / 32;
  ServiceState(kDns4Service).budget_micros = 0;
  ServiceConfig(kDns4Service).budget_ppm = 0;
  Ask(1);
  EXPECT_THAT(FireNow(Find(1)), testing::Contains(testing::Pair("dns4.failover_sends", 1)));
  Clones(HR_MARK_HEDGE, 1);
  BackendLoad(kDns4A).failing = 0;
  Ask(2);
  FireNow(Find(2));
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(ImpairedTest, AnsweredProbesBringItBackAndOneAnswerDoesNot) {
  BackendState(kDns4A).health = HR_IMPAIRED;
  BackendState(kDns4A).health_since_ns = NowNs();
  BackendLoad(kDns4A).failing = 65536 / 6;
  int probes = 0;
  for (; probes < 200 && Health() == HR_IMPAIRED; ++probes) {
    BackendState(kDns4A).probe_counter = 0;
    const uint16_t id = next_id_++;
    Ask(id);
    ASSERT_EQ(SentTo(Find(id)), 0b11u);
    Answer(id, kB4);
    Answer(id, kA4);
    VisitAll();
  }
  Copies(static_cast<size_t>(probes));
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_GT(probes, 20);
}

TEST_F(ImpairedTest, AnImpairedBackendIsTheNextOneAfterARefusal) {
  BackendState(kDns4A).health = HR_IMPAIRED;
  BackendState(kDns4A).health_since_ns = NowNs();
  BackendLoad(kDns4A).failing = 65536 / 6;
  BackendState(kDns4A).probe_counter = 1;
  Ask(1);
  ASSERT_EQ(SentTo(Find(1)), 0b10u);
  const RunResult nack = Answer(1, kB4, kClient4, 5);
  EXPECT_EQ(nack.changes.at("dns4.nacks_swallowed"), 1);
  Clock(nack.packet, {.mark = nack.mark});
  EXPECT_EQ(SentTo(Find(1)), 0b11u);
}

TEST_F(ImpairedTest, NoBackendIsImpairedThatFailsAsOftenAsTheOther) {
  BackendLoad(kDns4B).failing = 65536 / 8;
  for (int i = 0; i < 30; ++i) Refuse();
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_GT(BackendLoad(kDns4A).failing, 65536u / 8);
}

}  // namespace
}  // namespace hedgerow::packets
