// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Profiles without correlation bytes: one-way protocols, flows of clients that stay with one backend, and pairing by
// the client's socket alone. Times are set forward; nothing here waits.
#include <netinet/in.h>

#include <cstring>
#include <set>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr uint8_t kA = 1u << 0, kB = 1u << 1, kC = 1u << 2;

class UnpairedTest : public PacketTest {
 protected:
  // Service raw4 with another profile. The fixture puts it back.
  void Use(const hr_profile &profile) {
    std::memcpy(const_cast<hr_profile *>(&ServiceConfig(kRaw4Service).profile), &profile, sizeof(profile));
    ServiceConfig(kRaw4Service).flow_timeout_ns = 300 * kSecond;
  }
  RunResult Send(uint16_t port = kClientPort, const Bytes &payload = Text("line")) {
    const RunResult run = Split(PacketBuilder(kClient4, kRaw4).Udp(port, kRawPort, payload).Build());
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(ChecksumFault(run.packet), "");
    return run;
  }
  std::string SentTo(uint16_t port = kClientPort) { return Read(Send(port).packet).destination; }
  RunResult Answer(const char *from, uint16_t port = kClientPort, const Bytes &payload = Text("answer")) {
    return Reply(PacketBuilder(from, kClient4).Udp(kRawPort, port, payload).Build());
  }
  RunResult Unreachable(const char *backend, uint16_t port = kClientPort) {
    const Bytes quote = Layer3(PacketBuilder(kClient4, backend).Udp(port, kRawPort, Text("line")).Build());
    return Reply(PacketBuilder(backend, kClient4).IcmpError(3, 3, quote).Build());
  }
  void LeadBy(const char *backend) { ASSERT_TRUE(plane().policy().PinLeader("raw4", backend).ok()); }
  void TearDown() override {
    if (!IsSkipped() && !HasFatalFailure()) EXPECT_TRUE(plane().policy().UnpinLeader("raw4").ok());
    PacketTest::TearDown();
  }
};

// ---- One way -----------------------------------------------------------------------------------------------------

class OneWayTest : public UnpairedTest {
 protected:
  void SetUp() override {
    UnpairedTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) Use(BuiltInProfile("one-way"));
  }
};

TEST_F(OneWayTest, EachDatagramIsForwardedOnceToTheLeader) {
  for (int i = 0; i < 3; ++i) {
    const RunResult run = Send();
    EXPECT_EQ(Read(run.packet).destination, kA4);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("raw4.requests", 1), Pair("raw4.passed_through", 1),
                                                  Pair("raw4:one_way", 1)));
  }
  EXPECT_EQ(VisitAll().size(), 0u) << "nothing waits";
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(OneWayTest, SilenceSaysNothing) {
  SentTo();
  Advance(1000 * kSecond);
  EXPECT_EQ(SentTo(), kA4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
  EXPECT_EQ(BackendState(kRaw4A).wait_since, 0u);
}

TEST_F(OneWayTest, AnUnreachablePortMovesTheDatagramsAndTheClientHearsNothing) {
  SentTo();
  const RunResult error = Unreachable(kA4);
  EXPECT_EQ(error.verdict, kDropped);
  EXPECT_THAT(error.changes,
              UnorderedElementsAre(Pair("raw4.nacks_swallowed", 1), Pair("raw4:nack", 1), Pair("raw4.suspected", 1)));
  EXPECT_EQ(BackendState(kRaw4A).health, HR_DOWN);
  for (int i = 0; i < 40; ++i) {
    const RunResult run = Send();
    ASSERT_NE(Read(run.packet).destination, kA4) << "no line is spent on a probe";
    EXPECT_EQ(run.changes.at("raw4.failover_sends"), 1);
  }
}

// Another host guesses a client's port, and forges an error about its datagrams.
TEST_F(OneWayTest, AnErrorMovesOtherClientsOnceASecondWitnessHearsIt) {
  List(kRaw4Service, {"10.77.2.0/24"});
  const auto other = [&] {
    return Read(SplitOf("10.77.2.7", PacketBuilder("10.77.2.7", kRaw4).Udp(kClientPort, kRawPort, Text("line")).Build())
                    .packet)
        .destination;
  };
  SentTo();
  EXPECT_EQ(other(), kA4);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Unreachable(kA4).verdict, kDropped);
  EXPECT_NE(SentTo(), kA4) << "the client's own go elsewhere";
  EXPECT_EQ(other(), kA4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
  Advance(9 * 40 * kSecond + kSecond);
  other();
  EXPECT_EQ(SentTo(), kA4) << "and come back";
  Unreachable(kA4);
  const Bytes quote = Layer3(PacketBuilder("10.77.2.7", kA4).Udp(kClientPort, kRawPort, Text("line")).Build());
  Reply(PacketBuilder(kA4, "10.77.2.7").IcmpError(3, 3, quote).Build());
  EXPECT_EQ(BackendState(kRaw4A).health, HR_DOWN);
  EXPECT_NE(other(), kA4);
}

// The first client was restarted, and asks no more. Nothing is ever answered here, which would show that its error has
// passed.
TEST_F(OneWayTest, AnErrorOfLongAgoIsNoSecondWitness) {
  List(kRaw4Service, {"10.77.2.0/24"});
  const Bytes line = PacketBuilder("10.77.2.7", kRaw4).Udp(kClientPort, kRawPort, Text("line")).Build();
  const Bytes quote = Layer3(PacketBuilder("10.77.2.7", kA4).Udp(kClientPort, kRawPort, Text("line")).Build());
  SentTo();
  SplitOf("10.77.2.7", line);
  Unreachable(kA4);
  Advance((HR_STANDBY_RETRY - 1) * 40 * kSecond);
  SplitOf("10.77.2.7", line);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
  Advance(2 * 40 * kSecond);
  SplitOf("10.77.2.7", line);
  ServiceState(kRaw4Service).mixed_ns = NowNs();  // a third one asks as well
  Reply(PacketBuilder(kA4, "10.77.2.7").IcmpError(3, 3, quote).Build());
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY) << "its own client's word alone";
  SentTo();
  Unreachable(kA4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_DOWN) << "two of today";
}

TEST_F(OneWayTest, TheLastUnreachablePortReachesTheClient) {
  SentTo();
  for (const uint32_t backend : {kRaw4B, kRaw4C}) {
    BackendState(backend).health = HR_DOWN;
    BackendState(backend).health_since_ns = NowNs();
  }
  const RunResult error = Unreachable(kA4);
  EXPECT_EQ(error.verdict, kRedirected);
  EXPECT_EQ(error.changes.at("raw4.icmp_translated"), 1);
}

TEST_F(OneWayTest, ADownBackendGetsOneDatagramInEightElectionTimeoutsAndIsBackIfNoErrorFollows) {
  SentTo();
  Unreachable(kA4);
  for (int trial = 0; trial < 3; ++trial) {
    Advance(8 * 40 * kSecond - kSecond);
    EXPECT_NE(SentTo(), kA4);
    Advance(2 * kSecond);
    const RunResult run = Send();
    EXPECT_EQ(Read(run.packet).destination, kA4);
    EXPECT_EQ(run.changes.at("raw4.probes"), 1);
    Advance(HR_TRIAL_NS - kSecond);
    for (int i = 0; i < 70; ++i) ASSERT_NE(SentTo(), kA4) << "nothing shows yet that the datagram was delivered";
    if (trial == 2) continue;
    Unreachable(kA4);  // as a neighbour entry fails, three seconds after the datagram
    EXPECT_NE(SentTo(), kA4);
  }
  Advance(2 * kSecond);
  EXPECT_EQ(SentTo(), kA4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
}

TEST_F(OneWayTest, WhereAllAreDownTheLeaderIsTriedAsWell) {
  SentTo();
  for (const char *backend : {kA4, kB4, kC4}) Unreachable(backend);
  Advance(8 * 40 * kSecond + kSecond);
  std::set<std::string> tried;
  for (int i = 0; i < 3; ++i) tried.insert(SentTo());
  EXPECT_TRUE(tried.contains(kA4));
  Advance(HR_TRIAL_NS);
  EXPECT_EQ(SentTo(), kA4);
}

TEST_F(OneWayTest, AnErrorAboutAnotherServicesRequestDoesNotAgeLikeThat) {
  BackendState(kDns4A).health = HR_DOWN;
  BackendState(kDns4A).health_since_ns = NowNs();
  Advance(1000 * kSecond);
  Split(DnsRequest4(1));
  EXPECT_EQ(BackendState(kDns4A).health, HR_DOWN) << "a request's answer says when it is back";
}

TEST_F(OneWayTest, ItGoesToTheNewLeader) {
  LeadBy("b");
  EXPECT_EQ(SentTo(), kB4);
}

TEST_F(OneWayTest, WhatABackendSendsAllTheSameReachesTheClientAndShowsThatItLives) {
  SentTo();
  Unreachable(kA4);
  const RunResult run = Answer(kA4);
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).source, kRaw4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
}

TEST_F(OneWayTest, WhatIsDamagedOrToAClientThatHasSentItNothingShowsNothing) {
  SentTo();
  Unreachable(kA4);
  Bytes damaged = PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, Text("answer")).Build();
  damaged.back() ^= 1;
  Reply(damaged);
  EXPECT_EQ(Answer(kA4, 1000).verdict, kUntouched);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_DOWN);
}

TEST_F(OneWayTest, ADryRunSteersNothing) {
  ServicePolicy(kRaw4Service).switches = HR_SWITCH_DRY_RUN;
  SentTo();
  EXPECT_EQ(Unreachable(kA4).verdict, kRedirected) << "the error is the client's";
  const RunResult run = Send();
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_EQ(run.changes.at("raw4.would_fail_over"), 1);
}

// ---- Flows -------------------------------------------------------------------------------------------------------

class FlowTest : public UnpairedTest {
 protected:
  void SetUp() override {
    UnpairedTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) Use(BuiltInProfile("flow"));
  }
  void MakeDown(uint32_t backend, uint64_t ago_ns = 0) {
    BackendState(backend).health = HR_DOWN;
    BackendState(backend).health_since_ns = NowNs() - ago_ns;
  }
};

TEST_F(FlowTest, TheFirstDatagramOfASocketBeginsAFlowAtTheLeader) {
  const RunResult first = Send();
  EXPECT_EQ(Read(first.packet).destination, kA4);
  EXPECT_THAT(first.changes, UnorderedElementsAre(Pair("raw4.requests", 1), Pair("raw4.passed_through", 1),
                                                  Pair("raw4:flow", 1), Pair("raw4.flows", 1)));
  EXPECT_FALSE(Send().changes.contains("raw4.flows"));
  EXPECT_TRUE(Send(kClientPort + 1).changes.contains("raw4.flows")) << "another socket";
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(FlowTest, WhatIsSentNowhereBeginsNoFlow) {
  ServicePolicy(kRaw4Service).unrouted = ((NowNs() + 100 * kSecond) & ~HR_UNROUTED_PLACES) | 0b111;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Send().changes.contains("raw4.flows"));
  ServicePolicy(kRaw4Service).unrouted = 0;
  EXPECT_TRUE(Send().changes.contains("raw4.flows"));
}

TEST_F(FlowTest, ANewLeaderGetsNewFlowsOnly) {
  EXPECT_EQ(SentTo(1000), kA4);
  LeadBy("b");
  EXPECT_EQ(SentTo(2000), kB4);
  EXPECT_EQ(SentTo(1000), kA4);
  LeadBy("c");
  EXPECT_EQ(SentTo(1000), kA4);
  EXPECT_EQ(SentTo(2000), kB4);
}

TEST_F(FlowTest, ADrainedBackendKeepsItsFlows) {
  EXPECT_EQ(SentTo(1000), kA4);
  ServicePolicy(kRaw4Service).drained = kA;
  EXPECT_EQ(SentTo(1000), kA4);
  EXPECT_NE(SentTo(2000), kA4);
}

// What follows has the times of the profile: 3 s of silence, 300 ms of an election.
class AskingTest : public FlowTest {
 protected:
  void SetUp() override {
    FlowTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ServiceConfig(kRaw4Service).suspect_min_ns = 3 * kSecond;
    ServiceConfig(kRaw4Service).election_timeout_ns = 300 * kMillisecond;
    ServiceConfig(kRaw4Service).suspect_max_ns = 3 * kSecond;
  }
  // A datagram as no other: encrypted, or numbered.
  Bytes Fresh(size_t bytes = 100) { return Pattern(bytes, ++fresh_); }
  std::string SentTo(uint16_t port, const Bytes &payload) { return Read(Send(port, payload).packet).destination; }
  void Open(uint16_t port = kClientPort) {
    ASSERT_EQ(SentTo(port, Text("open")), kA4);
    ASSERT_EQ(Answer(kA4, port).verdict, kRedirected);
    Advance(50 * kMillisecond);
  }
  // Sends `payload` (empty: ever new ones) after each of these distances, in ms. Returns after how many ms the flow was
  // elsewhere; 0: never.
  uint64_t MovedAfter(const std::vector<uint64_t> &distances, const Bytes &payload = {}, uint16_t port = kClientPort) {
    uint64_t passed = 0;
    for (const uint64_t distance : distances) {
      Advance(distance * kMillisecond);
      passed += distance;
      if (SentTo(port, payload.empty() ? Fresh() : payload) != kA4) return passed;
    }
    return 0;
  }
  static std::vector<uint64_t> Every(uint64_t distance, size_t times) { return std::vector<uint64_t>(times, distance); }
  uint8_t fresh_ = 0;
};

TEST_F(AskingTest, AClientThatSendsTheSameAgainWaitsForAnAnswerAndItsFlowMoves) {
  Open();
  EXPECT_EQ(MovedAfter(Every(500, 20), Text("data")), 4000u)
      << "the first of them after 500 ms, the first that is later than 3.3 s";
  const RunResult next = Send(kClientPort, Text("data"));
  EXPECT_NE(Read(next.packet).destination, kA4);
  EXPECT_FALSE(next.changes.contains("raw4.flows"));
}

TEST_F(AskingTest, SoDoesOneThatBacksOff) {
  Open();
  // QUIC's probes: each is another datagram. The one at 6.35 s is the first that is later than 3.3 s.
  EXPECT_EQ(MovedAfter({50, 100, 200, 400, 800, 1600, 3200}), 6350u);
}

TEST_F(AskingTest, SoDoesOneThatBeginsAnewAsItBeganAndWasAnswered) {
  const auto handshake = [&] {
    Bytes bytes = Fresh(148);
    std::memcpy(bytes.data(), "\1\0\0\0", 4);
    return bytes;
  };
  ASSERT_EQ(SentTo(kClientPort, handshake()), kA4);
  Answer(kA4);
  EXPECT_EQ(MovedAfter(Every(25000, 8)), 0u) << "WireGuard's keep-alives, which nothing answers";
  int handshakes = 0;
  for (std::string to = kA4; to == kA4 && handshakes < 10; ++handshakes) {
    Advance(5 * kSecond);
    to = SentTo(kClientPort, handshake());
  }
  EXPECT_EQ(handshakes, 3);
}

TEST_F(AskingTest, WhatNeedsNoAnswerMovesNothing) {
  Open();
  EXPECT_EQ(MovedAfter(Every(50, 200)), 0u) << "an upload";
  EXPECT_EQ(MovedAfter(Every(50, 200), Text("frame")), 0u) << "one of equal datagrams";
  EXPECT_EQ(MovedAfter(Every(500, 40)), 0u) << "lines in a tunnel";
  EXPECT_EQ(MovedAfter(Every(4000, 10), Text("alive")), 0u) << "keep-alives that are all the same";
  EXPECT_EQ(MovedAfter({900, 100, 700, 200, 1500, 300, 2500, 50, 4000, 10, 3000, 600, 5000}), 0u) << "as it comes";
  EXPECT_EQ(BackendState(kRaw4A).wait_since, 0u);
}

TEST_F(AskingTest, AConversationWhoseLastWordWasTheClientsStaysAfterAnyPause) {
  for (const uint64_t pause : {1, 4, 10, 60}) {
    Open();
    EXPECT_EQ(MovedAfter({1, 24, pause * 1000, 30, 60}), 0u) << "acknowledgements, and then the next request";
    Answer(kA4);
  }
}

TEST_F(AskingTest, AStreamThatNothingHasEverAnsweredStays) {
  EXPECT_EQ(MovedAfter(Every(500, 60), Text("<13>line")), 0u);
  EXPECT_EQ(MovedAfter(Every(30000, 5), Text("<13>line")), 0u);
}

TEST_F(AskingTest, AServerThatAnswersAnyClientIsNotSilent) {
  Open(1000);
  Open(2000);
  for (int i = 0; i < 40; ++i) {
    Advance(500 * kMillisecond);
    ASSERT_EQ(SentTo(1000, Text("data")), kA4) << i;
    if (i % 5 == 0) Answer(kA4, 2000);
  }
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
}

TEST_F(AskingTest, WhatGoesOneWayMovesWithTheRequestsOfTheSameClientsOtherFlows) {
  Open(1000);
  Open(2000);
  ASSERT_NE(MovedAfter(Every(500, 20), Text("data"), 1000), 0u);
  EXPECT_NE(SentTo(2000, Fresh()), kA4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY) << "one client's word";
}

// A handshake with a server that is frozen, or that drops it. Which of the two it is, the answer of another one shows.
TEST_F(AskingTest, AFlowThatItsServerNeverAnsweredIsTriedAtAnother) {
  Open(1000);
  EXPECT_EQ(MovedAfter({10, 100, 200, 400, 800, 1600, 3200}, {}, 2000), 6310u);
  EXPECT_EQ(SentTo(1000, Fresh()), kA4) << "and nothing else";
  EXPECT_EQ(SentTo(3000, Fresh()), kA4) << "a new one neither";
  const char *second = Read(Send(2000, Fresh()).packet).destination == kB4 ? kB4 : kC4;
  EXPECT_EQ(Answer(second, 2000).verdict, kRedirected);
  EXPECT_NE(SentTo(4000, Fresh()), kA4) << "now the first one is known to be silent";
}

TEST_F(FlowTest, TheFormerBackendIsOutOfTheConversation) {
  SentTo();
  Unreachable(kA4);
  const std::string to = SentTo();
  ASSERT_NE(to, kA4);
  const RunResult late = Answer(kA4);
  EXPECT_EQ(late.verdict, kDropped);
  EXPECT_THAT(late.changes, UnorderedElementsAre(Pair("raw4.losers_dropped", 1), Pair("raw4:loser", 1)));
  EXPECT_EQ(Answer(to.c_str()).verdict, kRedirected);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY) << "but it lives";
  EXPECT_EQ(SentTo(), to) << "and the flow stays where its state is by now";
}

TEST_F(FlowTest, AForgedErrorAboutOneClientMovesNoFlowOfAnother) {
  List(kRaw4Service, {"10.77.2.0/24"});
  const auto other = [&](uint16_t port) {
    return Read(
               SplitOf("10.77.2.7", PacketBuilder("10.77.2.7", kRaw4).Udp(port, kRawPort, Text("line")).Build()).packet)
        .destination;
  };
  SentTo();
  EXPECT_EQ(other(1000), kA4);
  Unreachable(kA4);
  EXPECT_NE(SentTo(), kA4);
  EXPECT_EQ(other(1000), kA4);
  EXPECT_EQ(other(2000), kA4) << "nor its new ones";
}

TEST_F(FlowTest, AFlowMovesFromABackendThatIsRemoved) {
  SentTo();
  ServiceConfig(kRaw4Service).present = kB | kC;
  const RunResult moved = Send();
  EXPECT_NE(Read(moved.packet).destination, kA4);
  EXPECT_EQ(moved.changes.at("raw4.flows_moved"), 1);
}

TEST_F(FlowTest, WhereAllAreDownAFlowStays) {
  SentTo();
  for (const uint32_t backend : {kRaw4A, kRaw4B, kRaw4C}) MakeDown(backend);
  const RunResult run = Send();
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_FALSE(run.changes.contains("raw4.flows_moved"));
}

TEST_F(FlowTest, OneNewFlowInEightElectionTimeoutsTriesADownLeader) {
  MakeDown(kRaw4A);
  int tried = 0;
  for (uint16_t port = 1; port < 100; ++port) tried += SentTo(port) == kA4;
  EXPECT_EQ(tried, 0);
  Advance(8 * 40 * kSecond);
  for (uint16_t port = 101; port < 200; ++port) tried += SentTo(port) == kA4;
  EXPECT_EQ(tried, 1);
  EXPECT_EQ(Answer(kA4, 101).verdict, kRedirected) << "it answers its trial";
  EXPECT_EQ(SentTo(201), kA4);
}

TEST_F(FlowTest, ASilentClientIsForgottenAfterTheFlowsTimeout) {
  SentTo();
  LeadBy("b");
  Advance(200 * kSecond);
  BackendState(kRaw4A).wait_since = 0;
  EXPECT_EQ(SentTo(), kA4);
  Advance(302 * kSecond);  // a flow's time is kept to within a second
  const RunResult run = Send();
  EXPECT_EQ(Read(run.packet).destination, kB4);
  EXPECT_EQ(run.changes.at("raw4.flows"), 1);
}

TEST_F(FlowTest, WhatTheBackendSendsKeepsTheFlowOfAClientThatOnlyReceives) {
  SentTo();
  LeadBy("b");
  for (int i = 0; i < 3; ++i) {
    Advance(290 * kSecond);
    EXPECT_EQ(Answer(kA4).verdict, kRedirected);
  }
  BackendState(kRaw4A).wait_since = 0;
  EXPECT_EQ(SentTo(), kA4) << "and the client's next datagram belongs to it";
  Advance(302 * kSecond);
  EXPECT_EQ(Answer(kA4).verdict, kUntouched) << "both have been silent";
}

TEST_F(FlowTest, ADamagedDatagramMakesNoBackendHealthy) {
  SentTo();
  Unreachable(kA4);
  ASSERT_EQ(BackendState(kRaw4A).health, HR_DOWN);
  Bytes damaged = PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, Text("answer")).Build();
  damaged.back() ^= 1;
  Reply(damaged);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_DOWN);
  Answer(kA4);
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
}

TEST_F(FlowTest, AFormerBackendKeepsNoFlow) {
  SentTo();
  Unreachable(kA4);
  ASSERT_NE(SentTo(), kA4);
  Advance(200 * kSecond);
  EXPECT_EQ(Answer(kA4).verdict, kDropped);
  Advance(102 * kSecond);
  EXPECT_EQ(Answer(kA4).verdict, kUntouched);
}

TEST_F(FlowTest, AFlowOfAClientThatHasMadeItsPartMovesOnceAndHearsItsNewBackend) {
  constexpr uint16_t kPart = 1024 / HR_FLOW_PARTS;  // of the fixture's flows
  Advance((1ull << HR_FLOW_TICK_SHIFT) - NowNs() % (1ull << HR_FLOW_TICK_SHIFT));
  ASSERT_EQ(SentTo(1000), kA4);
  for (uint16_t port = 10'000; port < 10'000 + kPart; ++port) SentTo(port);
  MakeDown(kRaw4A);
  const RunResult moved = Send(1000);
  const std::string to = Read(moved.packet).destination;
  ASSERT_NE(to, kA4);
  EXPECT_EQ(moved.changes.at("raw4.flows_moved"), 1);
  EXPECT_EQ(Answer(to.c_str(), 1000).verdict, kRedirected);
  const RunResult next = Send(1000);
  EXPECT_EQ(Read(next.packet).destination, to);
  EXPECT_FALSE(next.changes.contains("raw4.flows_moved"));
}

// ---- Pairing by the socket ---------------------------------------------------------------------------------------

class BySocketTest : public UnpairedTest {
 protected:
  void SetUp() override {
    UnpairedTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) Use(OwnProfile("{by_socket: true, one_datagram: true}"));
  }
  uint32_t Find(uint16_t port = kClientPort) { return FindRequest(kRaw4Service, kClient4, port, {}); }
};

TEST_F(BySocketTest, AnyAnswerToTheSocketAnswersItsRequest) {
  EXPECT_THAT(Send().changes, UnorderedElementsAre(Pair("raw4.requests", 1)));
  ASSERT_NE(Find(), 0u);
  EXPECT_EQ(FireNow(Find()).at("raw4.hedges"), 1);
  Clones(HR_MARK_HEDGE, 1);
  const char *standby = PacketTest::SentTo(Find()) & kB ? kB4 : kC4;
  EXPECT_EQ(Answer(standby, kClientPort, {}).verdict, kRedirected) << "an empty datagram is an answer";
  EXPECT_EQ(Answer(kA4).verdict, kDropped);
}

TEST_F(BySocketTest, SocketsAreToldApart) {
  Send(1000);
  Send(2000);
  EXPECT_EQ(Answer(kA4, 2000).changes.at("raw4.won_by_first"), 1);
  EXPECT_EQ(StateOf(Find(1000)), HR_STATE_PENDING);
}

TEST_F(BySocketTest, ASecondRequestOfTheSocketIsForwardedOnceAndTheFirstStillWaits) {
  Send(kClientPort, Text("one"));
  const RunResult second = Send(kClientPort, Text("two"));
  EXPECT_THAT(second.changes, Contains(Pair("raw4:key_busy", 1)));
  EXPECT_EQ(StateOf(Find()), HR_STATE_PENDING);
  EXPECT_EQ(Answer(kA4, kClientPort, Text("ONE")).verdict, kRedirected);
  EXPECT_EQ(Answer(kA4, kClientPort, Text("TWO")).verdict, kRedirected) << "the same backend's, and nothing was hedged";
}

TEST_F(BySocketTest, TheNextRequestIsTrackedAndTheLosersAnswerToTheFormerIsDropped) {
  Send(kClientPort, Text("one"));
  FireNow(Find());
  Clones(HR_MARK_HEDGE, 1);
  const char *standby = PacketTest::SentTo(Find()) & kB ? kB4 : kC4;
  Answer(standby, kClientPort, Text("ONE"));
  EXPECT_THAT(Send(kClientPort, Text("two")).changes, UnorderedElementsAre(Pair("raw4.requests", 1)));
  EXPECT_EQ(Answer(kA4, kClientPort, Text("ONE")).verdict, kDropped);
  EXPECT_EQ(StateOf(Find()), HR_STATE_PENDING);
  EXPECT_EQ(Answer(PacketTest::SentTo(Find()) & kB ? kB4 : kC4, kClientPort, Text("TWO")).verdict, kRedirected)
      << "the next one went where no reply was outstanding";
}

// A loser's one datagram is dropped; what it sends beyond that answers requests that were forwarded to it.
TEST_F(BySocketTest, ALosersAnswersToForwardedRequestsReachTheClient) {
  Send(kClientPort, Text("one"));
  FireNow(Find());
  Clones(HR_MARK_HEDGE, 1);
  const char *standby = PacketTest::SentTo(Find()) & kB ? kB4 : kC4;
  ASSERT_EQ(Read(Send(kClientPort, Text("two")).packet).destination, kA4);
  ASSERT_EQ(Read(Send(kClientPort, Text("three")).packet).destination, kA4);
  EXPECT_EQ(Answer(standby, kClientPort, Text("ONE")).verdict, kRedirected);
  EXPECT_EQ(Answer(kA4, kClientPort, Text("ONE")).verdict, kDropped);
  EXPECT_EQ(Answer(kA4, kClientPort, Text("TWO")).changes.at("raw4.replies_untracked"), 1);
  EXPECT_EQ(Answer(kA4, kClientPort, Text("THREE")).verdict, kRedirected);
}

TEST_F(BySocketTest, ALosersSecondDatagramIsDroppedWhereNothingWasForwarded) {
  Send(kClientPort, Text("one"));
  FireNow(Find());
  Clones(HR_MARK_HEDGE, 1);
  Answer(PacketTest::SentTo(Find()) & kB ? kB4 : kC4, kClientPort, Text("ONE"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Answer(kA4, kClientPort, Text("ONE")).verdict, kDropped);
}

TEST_F(BySocketTest, ARequestIsPairedWhateverServiceHadItsPlaceBefore) {
  Split(DnsRequest4(0x1234));
  const uint32_t place = FindRequest(kDns4Service, kClient4, kClientPort, {0x12, 0x34});
  ASSERT_NE(place, 0u);
  Reply(DnsReply4(0x1234, kA4));
  VisitAll();
  Send();
  EXPECT_EQ(Find(), place);
  EXPECT_THAT(Answer(kA4).changes, Contains(Pair("raw4.won_by_first", 1)));
}

}  // namespace
}  // namespace hedgerow::packets
