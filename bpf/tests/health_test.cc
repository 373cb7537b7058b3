// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a silence is evidence of (bpf/proxy/health.bpf.h): for the client that waits at once, for all clients once it
// has a second witness. The suspicion timeout is 600 ms here (3 x the fixed delay), the election timeout 40 s; time is
// set forward, nothing waits.
#include <string>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

constexpr uint64_t kLimit = 600 * kMillisecond;
constexpr uint64_t kElection = 40 * kSecond;
constexpr uint64_t kAlone = kSecond;  // HR_ALONE_NS

class HealthTest : public PacketTest {
 protected:
  void SetUp() override {
    PacketTest::SetUp();
    List(kDns4Service, {"10.77.0.0/16"});
    ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
    ServiceConfig(kDns4Service).election_timeout_ns = kElection;
  }
  RunResult Ask(const std::string &client, uint16_t id) {
    return SplitOf(
        client,
        PacketBuilder(client.c_str(), kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build());
  }
  RunResult Answer(const std::string &client, uint16_t id, const char *backend) {
    return Reply(PacketBuilder(backend, client.c_str())
                     .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org")))
                     .Build());
  }
  uint32_t Find(const std::string &client, uint16_t id) {
    return FindRequest(kDns4Service, client.c_str(), kClientPort,
                       {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)});
  }
  uint32_t SentTo(const std::string &client, uint16_t id) { return PacketTest::SentTo(Find(client, id)); }
  // The address of a client that shares no place with kClient4's; `nth` of several.
  std::string Other(int nth = 1) {
    Ask(kClient4, 9999);
    const uint32_t place = Request(Find(kClient4, 9999)).client;
    Answer(kClient4, 9999, kA4);
    for (int i = nth;; ++i) {
      const std::string client = "10.77.2." + std::to_string(i);
      Ask(client, 9999);
      const bool differs = Request(Find(client, 9999)).client != place;
      Answer(client, 9999, kA4);
      if (differs) return client;
    }
  }
  // As `hedgerow status` shows it. The reader's time is the kernel's, so the wait is moved by what lies between.
  hr_health ToOneClient() {
    volatile hr_backend_state &state = BackendState(kDns4A);
    const uint64_t wait = state.wait_since, attested = state.attested_since;
    const uint64_t programs_ns = NowNs(), test_ahead_ns = Wheel().test_ahead_ns;
    LetTimeRun();
    const uint64_t ahead_ns = HR_WAIT(programs_ns - NowNs(), 0);
    Wheel().test_ahead_ns = test_ahead_ns;
    state.wait_since = wait - ahead_ns;
    if (attested != 0) state.attested_since = attested - ahead_ns;
    const hr_health health = plane().reader().Read(false)->services[kDns4Service].backends[0].one_client_health;
    state.wait_since = wait;
    state.attested_since = attested;
    return health;
  }
  // The standby answers the request, so the leader owes its client an answer.
  void AnswerElsewhere(const std::string &client, uint16_t id) {
    FireNow(Find(client, id));
    Answer(client, id, kB4);
  }
  hr_health Health() { return static_cast<hr_health>(BackendState(kDns4A).health); }
};

TEST_F(HealthTest, AClientThatWaitsInVainGoesAroundTheBackendAndNoOtherClientDoes) {
  const std::string honest = Other();
  Ask(kClient4, 1);
  AnswerElsewhere(kClient4, 1);
  Advance(kLimit + kMillisecond);
  Ask(kClient4, 2);
  EXPECT_EQ(SentTo(kClient4, 2), 0b11u) << "suspect to the client that waits";
  EXPECT_EQ(ToOneClient(), HR_SUSPECT);
  Ask(honest, 1);
  EXPECT_EQ(SentTo(honest, 1), 0b01u);
  EXPECT_EQ(Health(), HR_HEALTHY);
  Answer(honest, 1, kA4);
  Ask(kClient4, 3);
  EXPECT_EQ(SentTo(kClient4, 3), 0b01u) << "the backend has spoken: the client waits anew";
  EXPECT_EQ(ToOneClient(), HR_HEALTHY);
  AnswerElsewhere(kClient4, 3);
  Advance(kLimit + kElection + kMillisecond);
  BackendState(kDns4A).probe_counter = 1;
  Ask(kClient4, 4);
  EXPECT_EQ(SentTo(kClient4, 4), 0b10u) << "down to the client that waits";
  EXPECT_EQ(ToOneClient(), HR_DOWN);
  Ask(honest, 2);
  EXPECT_EQ(SentTo(honest, 2), 0b01u);
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_EQ(plane().reader().Read(false)->services[kDns4Service].stats.counters[HR_SUSPECTED], 0u);
}

TEST_F(HealthTest, ABackendThatIsDownToOneClientIsTriedAnewByIt) {
  Other();
  Ask(kClient4, 1);
  AnswerElsewhere(kClient4, 1);
  Advance(kLimit + (1 + HR_STANDBY_RETRY) * kElection + kMillisecond);
  Ask(kClient4, 2);
  EXPECT_EQ(SentTo(kClient4, 2), 0b01u);
  Advance(kLimit + kMillisecond);
  Ask(kClient4, 3);
  EXPECT_EQ(SentTo(kClient4, 3), 0b11u);
  Clones(HR_MARK_SEND, 1);
}

TEST_F(HealthTest, TwoClientsThatWaitInVainMakeABackendSuspectToAll) {
  const std::string second = Other(1), third = Other(100);
  Ask(kClient4, 1);
  AnswerElsewhere(kClient4, 1);
  Advance(kLimit);
  Ask(second, 1);
  Advance(kLimit - kMillisecond);
  Ask(third, 1);
  EXPECT_EQ(SentTo(third, 1), 0b01u) << "the second client has not waited for the whole timeout yet";
  EXPECT_EQ(Health(), HR_HEALTHY);
  Advance(2 * kMillisecond);
  Ask(third, 2);
  EXPECT_EQ(SentTo(third, 2), 0b11u);
  EXPECT_EQ(Health(), HR_SUSPECT);
  Advance(kElection + kMillisecond);
  BackendState(kDns4A).probe_counter = 1;
  Ask(third, 3);
  EXPECT_EQ(SentTo(third, 3), 0b10u);
  Clones(HR_MARK_SEND, 1);
}

// Addresses are no witnesses: a user binds as many as it likes, and so does a container behind its interface.
TEST_F(HealthTest, TwoAddressesOfOneUserOrInterfaceAreOneWitness) {
  const std::string honest = Other();
  for (const int interface : {0, 77}) {
    const auto ask = [&](const char *source, uint16_t id) {
      Split(PacketBuilder(source, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build(),
            {.ingress_ifindex = interface});
    };
    ask("10.77.5.1", 1);
    AnswerElsewhere("10.77.5.1", 1);
    ask("10.77.5.2", 1);
    Advance(kLimit + kMillisecond);
    ask("10.77.5.2", 2);
    Ask(honest, 1);
    EXPECT_EQ(SentTo(honest, 1), 0b01u);
    EXPECT_EQ(Health(), HR_HEALTHY);
    Answer(honest, 1, kA4);
    Answer("10.77.5.2", 1, kA4);
    Answer("10.77.5.2", 2, kA4);
    EndRetention(Find("10.77.5.1", 1));
    VisitAll();
  }
  Copies(1);
}

// A send on another CPU may meet the answer that ends its silence, and note itself as a witness just behind it.
TEST_F(HealthTest, AWitnessOfAFormerSilenceCountsForNoLaterOne) {
  const std::string honest = Other();
  Ask(kClient4, 1);
  Ask(honest, 1);
  const uint64_t witness = BackendState(kDns4A).attested_since;
  ASSERT_NE(witness, 0u);
  Answer(honest, 1, kA4);
  BackendState(kDns4A).attested_since = witness;
  Advance(2 * kMillisecond);
  Ask(kClient4, 2);
  AnswerElsewhere(kClient4, 2);
  Advance(kLimit + kMillisecond);
  Ask(honest, 2);
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_EQ(SentTo(honest, 2), 0b01u);
  Advance(kLimit + kMillisecond);
  Ask(honest, 3);
  EXPECT_EQ(Health(), HR_SUSPECT) << "the second request is a witness of its own";
}

TEST_F(HealthTest, ALoneClientsSilenceIsAttestedByTheBackendThatAnsweredTheVeryRequest) {
  Ask(kClient4, 1);
  Advance(300 * kMillisecond);
  FireNow(Find(kClient4, 1));
  Answer(kClient4, 1, kB4);
  EXPECT_EQ(Health(), HR_HEALTHY);
  Advance(kLimit - 300 * kMillisecond + kMillisecond);
  Ask(kClient4, 2);
  EXPECT_EQ(SentTo(kClient4, 2), 0b11u);
  EXPECT_EQ(Health(), HR_SUSPECT) << "as soon as its suspicion timeout has passed";
  EXPECT_EQ(ToOneClient(), HR_HEALTHY) << "suspect to all";
  Advance(kElection + kMillisecond);
  BackendState(kDns4A).probe_counter = 1;
  Ask(kClient4, 3);
  EXPECT_EQ(Health(), HR_DOWN);
  EXPECT_EQ(ToOneClient(), HR_DOWN) << "and suspect to all others";
  Copies(2);
}

TEST_F(HealthTest, ALoneClientWhoseRequestsNoBackendAnswersMakesNoneSuspect) {
  for (uint16_t id = 1; id <= 50; ++id) {
    Ask(kClient4, id);
    Advance(10 * kSecond);
    FireNow(Find(kClient4, id));
  }
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_EQ(BackendState(kDns4B).health, HR_HEALTHY);
  EXPECT_EQ(plane().reader().Read(false)->services[kDns4Service].stats.counters[HR_SUSPECTED], 0u);
}

// A block list, rate limiting: what every backend leaves unanswered is the name's fault, whoever asks for it and
// however often.
TEST_F(HealthTest, NamesThatNoBackendAnswersMakeNoneSuspect) {
  const std::string second = Other(1), third = Other(100);
  BackendState(kDns4A).probe_counter = 1;
  for (uint16_t id = 1; id <= 20; ++id) {
    for (const std::string &client : {std::string(kClient4), second}) {
      Ask(client, id);
      Advance(20 * kMillisecond);
      FireNow(Find(client, id));
    }
    Advance(kSecond);
    Ask(third, id);
    EXPECT_EQ(SentTo(third, id), 0b01u) << id;
    Answer(third, id, kA4);
  }
  EXPECT_EQ(Health(), HR_HEALTHY);
  EXPECT_EQ(BackendState(kDns4B).health, HR_HEALTHY)
      << "which has answered nothing at all, and was asked for nothing else";
  EXPECT_EQ(ToOneClient(), HR_HEALTHY);
  EXPECT_EQ(plane().reader().Read(false)->services[kDns4Service].stats.counters[HR_SUSPECTED], 0u);
}

TEST_F(HealthTest, AClientThatAsksForThemHidesNoSilence) {
  const std::string honest = Other();
  ServiceConfig(kDns4Service).election_timeout_ns = 300 * kMillisecond;
  Ask(kClient4, 1);  // a name that no backend answers
  Ask(honest, 1);
  Advance(kLimit + 301 * kMillisecond);
  Ask(kClient4, 2);  // its wait begins anew
  AnswerElsewhere(honest, 1);
  Ask(kClient4, 3);
  Advance(kLimit + kMillisecond);
  Ask(honest, 2);
  EXPECT_NE(Health(), HR_HEALTHY);
}

TEST_F(HealthTest, NorDoesTheirClientSendToAnotherBackendWhatCanHaveNoCopy) {
  Other();
  ServiceConfig(kDns4Service).election_timeout_ns = 300 * kMillisecond;
  BackendState(kDns4A).probe_counter = 1;
  for (uint16_t id = 1; id <= 30; ++id) {
    Ask(kClient4, id);
    Advance(200 * kMillisecond);
    FireNow(Find(kClient4, id));
    const uint16_t port = static_cast<uint16_t>(20000 + id);
    EXPECT_EQ(Read(Split(PacketBuilder(kClient4, kDns4).Tcp(port, kDnsPort, kTcpSyn).Build()).packet).destination, kA4)
        << id;
    Reply(PacketBuilder(kA4, kClient4).Tcp(kDnsPort, port, kTcpSynAck).Build());
    Bytes update = DnsQuery(id, "example.org");
    update[2] = 5 << 3;
    EXPECT_EQ(Read(Split(PacketBuilder(kClient4, kDns4).Udp(port, kDnsPort, update).Build()).packet).destination, kA4)
        << id;
  }
}

TEST_F(HealthTest, WhereNoBackendAnswersAnythingForTenSecondsTheSilenceCounts) {
  const std::string second = Other();
  for (uint16_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(Health(), HR_HEALTHY);
    for (const std::string &client : {std::string(kClient4), second}) Ask(client, id);
    Advance(5 * kSecond);
  }
  Ask(second, 9);
  EXPECT_EQ(Health(), HR_SUSPECT);
}

TEST_F(HealthTest, WhereOthersAskAsWellOneClientAndAnotherBackendProveNothing) {
  const std::string honest = Other();
  Ask(honest, 1);
  Answer(honest, 1, kA4);
  Ask(kClient4, 1);
  Advance(300 * kMillisecond);
  FireNow(Find(kClient4, 1));
  Answer(kClient4, 1, kB4);  // a name that a policy of the leader alone drops
  Advance(300 * kMillisecond + kMillisecond);
  Ask(kClient4, 2);
  EXPECT_EQ(SentTo(kClient4, 2), 0b11u);
  EXPECT_EQ(Health(), HR_HEALTHY);
  Ask(honest, 2);
  EXPECT_EQ(SentTo(honest, 2), 0b01u);
  Copies(2);
}

TEST_F(HealthTest, ABackendThatIsDownByOneClientsWordIsAskedByTheNextClientToo) {
  const std::string newcomer = Other();
  Advance(2 * kAlone);
  Ask(kClient4, 1);
  Advance(kAlone + kSecond);
  Ask(kClient4, 2);
  Copies(1);
  Answer(kClient4, 2, kB4);
  BackendState(kDns4A).health = HR_DOWN;
  BackendState(kDns4A).health_since_ns = NowNs();
  BackendState(kDns4A).probe_counter = 1;
  Ask(newcomer, 1);
  EXPECT_EQ(SentTo(newcomer, 1), 0b11u);
  Answer(newcomer, 1, kA4);
  EXPECT_EQ(Health(), HR_HEALTHY);
  Copies(1);
}

TEST_F(HealthTest, OneClientsWaitIsNoPauseInAnothersAnswer) {
  const std::string honest = Other();
  for (uint16_t id = 1; id <= 20; ++id) {
    Ask(kClient4, id);
    Advance(400 * kMillisecond);
    Ask(honest, id);
    Answer(honest, id, kA4);
  }
  const BackendSnapshot a = plane().reader().Read(true)->services[kDns4Service].backends[0];
  EXPECT_LT(a.ordinary_times.max_ns, 100 * kMillisecond) << "or the suspicion timeout would grow by it";
}

TEST_F(HealthTest, APauseThatTwoClientsMetIsOne) {
  const std::string second = Other();
  Ask(kClient4, 1);
  Ask(second, 1);
  Advance(400 * kMillisecond);
  Answer(second, 1, kA4);
  EXPECT_GE(plane().reader().Read(true)->services[kDns4Service].backends[0].ordinary_times.max_ns, 400 * kMillisecond);
}

// ---- What its client got wrong

Bytes RouterError(const Bytes &sent, uint8_t type, uint8_t code) {
  return PacketBuilder("10.77.0.254", kClient4).IcmpError(type, code, Layer3(sent)).Build();
}

TEST_F(HealthTest, ADatagramThatDiedOnItsWayBeginsNoSilence) {
  const Bytes sent = PacketBuilder(kClient4, kA4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build();
  // Time exceeded, fragmentation needed, parameter problem.
  for (const auto &[type, code] : {std::pair<uint8_t, uint8_t>(11, 0), {3, 4}, {12, 0}}) {
    SCOPED_TRACE(int{type});
    Ask(kClient4, 1);
    ASSERT_NE(BackendState(kDns4A).wait_since, 0u);
    EXPECT_EQ(Reply(RouterError(sent, type, code)).changes, (Changes{{"dns4.icmp_translated", 1}}));
    EXPECT_EQ(BackendState(kDns4A).wait_since, 0u);
    FireNow(Find(kClient4, 1));
    Answer(kClient4, 1, kB4);
    EXPECT_EQ(BackendState(kDns4A).attested_since, 0u)
        << "b's answer says nothing about a, which never had the request";
    Advance(kLimit + kMillisecond);
    Ask(kClient4, 2);
    EXPECT_EQ(SentTo(kClient4, 2), 0b01u);
    Answer(kClient4, 2, kA4);
    for (const uint16_t id : {1, 2}) EndRetention(Find(kClient4, id));
    VisitAll();
    Copies(1);
  }
}

TEST_F(HealthTest, AnErrorAboutOneClientsDatagramLeavesAnothersWait) {
  const std::string other = Other();
  Ask(kClient4, 1);
  Ask(other, 1);
  Reply(RouterError(PacketBuilder(kClient4, kA4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build(), 11,
                    0));
  EXPECT_EQ(HR_WAIT_CLIENT(BackendState(kDns4A).wait_since), uint32_t{Request(Find(other, 1)).client});
  EXPECT_EQ(BackendState(kDns4A).attested_since, 0u);
}

TEST_F(HealthTest, AHostThatRefusesOneOfSeveralClientsIsNotSuspectToTheOthers) {
  const std::string honest = Other();
  Ask(honest, 1);
  Answer(honest, 1, kA4);
  Ask(kClient4, 1);
  const Bytes sent = PacketBuilder(kClient4, kA4).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build();
  const RunResult nack = Reply(PacketBuilder(kA4, kClient4).IcmpError(3, 3, Layer3(sent)).Build());
  EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE) << "its own request goes on to the next backend";
  EXPECT_EQ(Health(), HR_HEALTHY);
  Ask(honest, 2);
  EXPECT_EQ(SentTo(honest, 2), 0b01u);
}

TEST_F(HealthTest, ACopyOfADamagedRequestIsAsDamaged) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6);
    const auto to_vip = [&] {
      return PacketBuilder(ipv6 ? kClient6 : kClient4, ipv6 ? kDns6 : kDns4)
          .Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org"));
    };
    Bytes damaged = to_vip().Build();
    damaged.back() ^= 1;
    ASSERT_NE(ChecksumFault(damaged), "");
    Split(damaged);
    const uint32_t request =
        FindRequest(ipv6 ? kDns6Service : kDns4Service, ipv6 ? kClient6 : kClient4, kClientPort, {0, 1});
    ASSERT_NE(request, 0u);
    FireNow(request);
    for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_NE(ChecksumFault(copy.packet), "");
  }
}

}  // namespace
}  // namespace hedgerow::packets
