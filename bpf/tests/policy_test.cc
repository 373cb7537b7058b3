// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What an operator or the daemon changes while requests flow (delays, drained and preferred backends, dry
// runs), and what a backend itself may say about hedging. Times are set in the mapped state; nothing here
// waits.
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr uint8_t kServFail = 2;

class PolicyTest : public PacketTest {
 protected:
  std::string AskDns(uint16_t id) { return Read(Split(DnsRequest4(id)).packet).destination; }
  // The raw service has three backends and three attempts.
  uint32_t AskRaw(uint8_t id) {
    to_ = Read(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {id, 0, 0, 0}).Build()).packet)
              .destination;
    return FindRequest(kRaw4Service, kClient4, kClientPort, {id, 0, 0, 0});
  }
  uint32_t AskHkv(uint64_t seq) {
    Split(HkvRequest4(seq));
    return FindHkv(seq);
  }
  RunResult Nack(uint64_t seq, uint32_t pushback, const char *from = kA4) {
    return Reply(HkvReply4(seq, from, kHkvOverloaded, pushback));
  }
  void Drain(const char *service, const char *backend, bool on = true) {
    EXPECT_TRUE(plane().policy().SetDrained(service, backend, on).ok());
  }
  void MakeDown(uint32_t backend) {
    BackendState(backend).health = HR_DOWN;
    BackendState(backend).health_since_ns = NowNs();
  }
  uint64_t Unanswered(uint32_t service, size_t backend) {
    const auto snapshot = plane().reader().Read(false);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    return snapshot->services[service].backends[backend].unanswered;
  }

  std::string to_;
};

// ---- Shares
// ---------------------------------------------------------------------------------------------------------

class SharesTest : public PolicyTest {
 protected:
  void Share(hr_spread how, std::initializer_list<uint16_t> weights) {
    List(kRaw4Service, {"10.77.2.0/24"});
    ServiceConfig(kRaw4Service).spreads = how;
    for (size_t i = 0; i < weights.size(); ++i) {
      const uint16_t weight = weights.begin()[i];
      ServiceConfig(kRaw4Service).inverse_weights[i] = static_cast<uint16_t>(weight == 0 ? 0 : 65535 / weight);
    }
  }
  // Where the next requests of as many clients go.
  std::map<std::string, std::string> Ask(int clients) {
    std::map<std::string, std::string> places;
    for (int i = 0; i < clients; ++i) {
      const std::string client = absl::StrCat("10.77.2.", 1 + i);
      const Bytes id = {static_cast<uint8_t>(++asked_), static_cast<uint8_t>(asked_ >> 8), 0, 0};
      places[client] =
          Read(SplitOf(client, PacketBuilder(client, kRaw4).Udp(kClientPort, kRawPort, id).Build()).packet).destination;
      if (!places[client].empty()) Reply(PacketBuilder(places[client], client).Udp(kRawPort, kClientPort, id).Build());
    }
    return places;
  }
  static std::map<std::string, int> Counts(const std::map<std::string, std::string> &places) {
    std::map<std::string, int> counts;
    for (const auto &[client, place] : places) ++counts[place];
    return counts;
  }
  uint32_t asked_ = 0;
};

TEST_F(SharesTest, EachGetsRequestsByItsWeight) {
  Share(HR_SPREAD_EACH, {1, 3, 0});
  std::map<std::string, int> counts;
  for (int i = 0; i < 8; ++i)
    for (const auto &[place, count] : Counts(Ask(100))) counts[place] += count;
  EXPECT_NEAR(counts[kA4], 200, 60);
  EXPECT_NEAR(counts[kB4], 600, 60);
  EXPECT_EQ(counts[kC4], 0);
}

TEST_F(SharesTest, AClientHasItsBackendAndOnlyThoseOfOneThatIsDrainedOrDownMove) {
  Share(HR_SPREAD_SOURCE, {1, 1, 1});
  const auto before = Ask(60);
  EXPECT_EQ(Counts(before).size(), 3u) << "each has clients";
  EXPECT_EQ(Ask(60), before);
  const auto only_moves = [&](const char *from) {
    const auto now = Ask(60);
    std::map<std::string, int> to;
    for (const auto &[client, place] : now) {
      if (before.at(client) == from)
        ++to[place];
      else
        EXPECT_EQ(place, before.at(client)) << client;
    }
    EXPECT_EQ(to.count(from), 0u);
    EXPECT_EQ(to.size(), 2u) << "both others get some";
  };
  Drain("raw4", "b");
  only_moves(kB4);
  Drain("raw4", "b", false);
  EXPECT_EQ(Ask(60), before);
  MakeDown(kRaw4C);
  BackendState(kRaw4C).probe_counter = 1;  // so many after a probe
  only_moves(kC4);
}

TEST_F(SharesTest, WhatIsHedgedGoesToAnother) {
  Share(HR_SPREAD_SOURCE, {1, 1, 1});
  const uint32_t request = AskRaw(1);
  const std::string first = to_;
  FireNow(request);
  EXPECT_NE(Read(Clones(HR_MARK_HEDGE, 1)[0].packet).destination, first);
}

TEST_F(SharesTest, WhatIsSentAgainGoesToTheFasterOfTheOthersAndNotToTheFirstOfTheList) {
  Share(HR_SPREAD_EACH, {0, 1, 0});
  BackendState(kRaw4A).answer_ewma_ns = 9 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = kMillisecond;
  ServiceState(kRaw4Service).compared = 1;  // not one that explores
  const uint32_t request = AskRaw(1);
  ASSERT_EQ(to_, kB4);
  FireNow(request);
  EXPECT_EQ(Read(Clones(HR_MARK_HEDGE, 1)[0].packet).destination, kC4);
}

TEST_F(SharesTest, WithEachTwoFullBackendsArePassedByAndAnImpairedOneIsNoWay) {
  Share(HR_SPREAD_EACH, {1, 1, 1});
  for (const uint32_t full : {kRaw4A, kRaw4B}) {
    BackendTuning(full).slow_at = 1000;
    BackendLoad(full).reported = 2 * HR_LOAD_FULL;
    BackendLoad(full).reported_ns = NowNs();
  }
  EXPECT_EQ(Counts(Ask(60)), (std::map<std::string, int>{{kC4, 60}}));
  BackendState(kRaw4C).health = HR_IMPAIRED;
  for (const uint32_t each : {kRaw4A, kRaw4B, kRaw4C}) BackendState(each).probe_counter = 1;
  EXPECT_EQ(Counts(Ask(30)).count(kC4), 0u);
}

TEST_F(SharesTest, WithEachAFullBackendIsPassedBy) {
  Share(HR_SPREAD_EACH, {1, 1, 1});
  BackendTuning(kRaw4A).slow_at = 1000;
  BackendLoad(kRaw4A).reported = 2 * HR_LOAD_FULL;
  BackendLoad(kRaw4A).reported_ns = NowNs();
  EXPECT_EQ(Counts(Ask(60)).count(kA4), 0u);
}

TEST_F(SharesTest, APinnedBackendGetsEveryRequestUntilItIsDownAndThenTheOthersTheirShares) {
  for (const hr_spread how : {HR_SPREAD_EACH, HR_SPREAD_SOURCE}) {
    Share(how, {1, 1, 0});
    ASSERT_TRUE(plane().policy().PinLeader("raw4", "c").ok());
    BackendTuning(kRaw4C).slow_at = 1000;
    BackendLoad(kRaw4C).reported = 2 * HR_LOAD_FULL;
    BackendLoad(kRaw4C).reported_ns = NowNs();
    EXPECT_EQ(Counts(Ask(60)), (std::map<std::string, int>{{kC4, 60}})) << how << ": without a share, and busy";
    MakeDown(kRaw4C);
    BackendState(kRaw4C).probe_counter = 1;
    const auto others = Counts(Ask(60));
    EXPECT_EQ(others.count(kC4), 0u) << how;
    EXPECT_EQ(others.size(), 2u) << how;
    BackendState(kRaw4C).health = HR_HEALTHY;
    BackendLoad(kRaw4C).reported = 0;
    ASSERT_TRUE(plane().policy().UnpinLeader("raw4").ok());
    EXPECT_EQ(Counts(Ask(60)).count(kC4), 0u) << how << ": it has no share";
  }
}

TEST_F(PolicyTest, APinEndsThePreferenceForAFasterBackend) {
  ServiceConfig(kRaw4Service).spreads = HR_SPREAD_FASTEST;
  ASSERT_TRUE(plane().policy().SetPreferred("raw4", 1).ok());
  ASSERT_TRUE(plane().policy().PinLeader("raw4", "c").ok());
  for (uint8_t id = 1; id <= 5; ++id) {
    AskRaw(id);
    EXPECT_EQ(to_, kC4);
  }
}

// ---- The check
// -----------------------------------------------------------------------------------------------------

TEST_F(PolicyTest, ABackendThatFailsItsCheckIsTheLastThatIsAskedUntilTheDaemonsWordIsOver) {
  const auto fails = [&](std::vector<size_t> backends, uint64_t until_ns) {
    ASSERT_TRUE(plane().policy().SetFailing("raw4", backends, until_ns).ok());
  };
  BackendState(kRaw4A).probe_counter = 1;  // so many after a probe
  const uint64_t later_ns = NowNs() + 3000 * kMillisecond;
  fails({0}, later_ns);
  const uint32_t request = AskRaw(1);
  const std::string first = to_;
  EXPECT_NE(first, kA4);
  EXPECT_EQ(plane().reader().Read(false)->services[kRaw4Service].backends[0].health, HR_IMPAIRED);
  FireNow(request);
  EXPECT_EQ(Read(Clones(HR_MARK_HEDGE, 1)[0].packet).destination, first == kB4 ? kC4 : kB4);
  // With what the host has no route to: both words stand.
  ASSERT_TRUE(plane().policy().SetUnrouted("raw4", {1}, later_ns).ok());
  AskRaw(2);
  EXPECT_EQ(to_, kC4);
  ASSERT_TRUE(plane().policy().SetUnrouted("raw4", {}, later_ns).ok());
  AskRaw(3);
  EXPECT_NE(to_, kA4);
  fails({0, 1, 2}, later_ns);
  AskRaw(4);
  EXPECT_EQ(to_, kA4) << "none is better";
  fails({0}, NowNs());
  AskRaw(5);
  EXPECT_EQ(to_, kA4) << "the daemon is away";
  fails({}, later_ns);
  EXPECT_EQ(plane().reader().Read(false)->services[kRaw4Service].backends[0].health, HR_HEALTHY);
}

// ---- The delay
// -----------------------------------------------------------------------------------------------------

TEST_F(PolicyTest, ANewDelayIsForNewRequestsAndWhatWaitsKeepsItsDueTime) {
  AskDns(1);
  const uint64_t due_ns = Request(FindDns(1)).due_ns;
  ASSERT_TRUE(plane().policy().SetDelay("dns4", 3 * kMillisecond).ok());
  EXPECT_EQ(Request(FindDns(1)).due_ns, due_ns);
  const uint64_t before_ns = NowNs();
  AskDns(2);
  EXPECT_GE(Request(FindDns(2)).due_ns, before_ns + 3 * kMillisecond);
  EXPECT_LE(Request(FindDns(2)).due_ns, NowNs() + 3 * kMillisecond);
  EXPECT_EQ(plane().reader().Read(false)->services[kDns4Service].delay_ns, 3 * kMillisecond);
  EXPECT_EQ(plane().reader().Read(false)->services[kDns6Service].delay_ns, 200 * kMillisecond);
}

TEST_F(PolicyTest, AnAdaptiveDelayIsNoMeasureOfSilence) {
  ServiceConfig(kDns4Service).suspect_min_ns = 5 * kMillisecond;
  ASSERT_TRUE(plane().policy().SetDelay("dns4", 2 * kMillisecond).ok());
  Silence(kDns4A, 500 * kMillisecond);  // the fixed delay is 200 ms: 600 are allowed
  AskDns(1);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  Silence(kDns4A, 601 * kMillisecond);
  AskDns(2);
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
}

TEST_F(PolicyTest, LapsAreNoLongerThanTheShortestDelayAllows) {
  const auto lap_class = [this] { return (Lap().priority & 0xffff) - HR_CLOCK_CLASS_BASE; };
  AskDns(1);  // due in 200 ms: 10 ms laps will do
  EXPECT_EQ(lap_class(), 2u);
  ASSERT_TRUE(plane().policy().SetDelay("raw4", 3 * kMillisecond).ok());
  EXPECT_EQ(lap_class(), 1u) << "another request of raw4 could be due before such a lap is over";
  ASSERT_TRUE(plane().policy().SetDelay("raw4", kMillisecond).ok());
  EXPECT_EQ(lap_class(), 0u);
  ASSERT_TRUE(plane().policy().SetDelay("raw4", 200 * kMillisecond).ok());
  EXPECT_EQ(lap_class(), 2u);
}

// ---- What was never answered
// ---------------------------------------------------------------------------------------

TEST_F(PolicyTest, AFirstSendWithoutAnAnswerIsCountedOnceWhenItsTimeIsOver) {
  AskDns(1);  // nobody answers
  MakeExpired(FindDns(1));
  VisitAll();
  EXPECT_EQ(Unanswered(kDns4Service, 0), 1u);
  EndRetention(FindDns(1));
  VisitAll();
  EXPECT_EQ(Unanswered(kDns4Service, 0), 1u);

  AskDns(2);  // b wins, a never answers
  const uint32_t request = FindDns(2);
  FireNow(request);
  Reply(DnsReply4(2, kB4));
  VisitAll();
  EXPECT_EQ(Unanswered(kDns4Service, 0), 1u) << "it may still answer";
  EndRetention(request);
  VisitAll();
  EXPECT_EQ(Unanswered(kDns4Service, 0), 2u);

  AskDns(3);  // b wins, a is late
  const uint32_t late = FindDns(3);
  FireNow(late);
  Reply(DnsReply4(3, kB4));
  Reply(DnsReply4(3, kA4));
  EndRetention(late);
  VisitAll();
  EXPECT_EQ(Unanswered(kDns4Service, 0), 2u);
  EXPECT_EQ(Unanswered(kDns4Service, 1), 0u);
}

// ---- Drained backends
// ----------------------------------------------------------------------------------------------

TEST_F(PolicyTest, ADrainedLeaderGetsNothingNew) {
  AskDns(1);
  Drain("dns4", "a");
  EXPECT_EQ(AskDns(2), kB4);
  EXPECT_EQ(FireNow(FindDns(2)), (Changes{{"dns4:drained", 1}})) << "nor a hedge";
  Clones(HR_MARK_HEDGE, 0);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected) << "what was under way is finished";
  Drain("dns4", "a", false);
  EXPECT_EQ(AskDns(3), kA4);
}

TEST_F(PolicyTest, ADrainedStandbyGetsNoHedge) {
  Drain("raw4", "b");
  BackendState(kRaw4C).answer_ewma_ns = 9 * kMillisecond;  // b would be faster
  const uint32_t request = AskRaw(1);
  EXPECT_EQ(to_, kA4);
  EXPECT_EQ(FireNow(request), (Changes{{"raw4.extra_sends", 1}, {"raw4.hedges", 1}}));
  EXPECT_EQ(SentTo(request), 0b101u);
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(FireNow(request), (Changes{{"raw4:drained", 1}}));
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(PolicyTest, ADrainedBackendIsTheLastResort) {
  Drain("dns4", "b");
  Silence(kDns4A, 41 * kSecond);
  EXPECT_EQ(AskDns(1), kA4);
  EXPECT_EQ(SentTo(FindDns(1)), 0b11u) << "a is silent, and nobody else is there";
  Clones(HR_MARK_SEND, 1);
  MakeDown(kDns4A);
  BackendState(kDns4A).probe_counter = 1;
  EXPECT_EQ(AskDns(2), kB4);
}

TEST_F(PolicyTest, ADryRunGoesBackToAStandbyAndNotToTheDrainedLeader) {
  ASSERT_TRUE(plane().policy().SetDryRun("dns4", true).ok());
  Drain("dns4", "a");
  EXPECT_EQ(AskDns(1), kB4);
  MakeDown(kDns4A);
  MakeDown(kDns4B);
  BackendState(kDns4B).health_since_ns = NowNs() - 100 * ServiceConfig(kDns4Service).election_timeout_ns;
  BackendState(kDns4A).probe_counter = 1;
  EXPECT_EQ(AskDns(2), kB4) << "its retry is due";
}

TEST_F(PolicyTest, ADrainedLeaderAndASuspectStandbyAreBothAsked) {
  Drain("dns4", "a");
  Silence(kDns4B, 41 * kSecond);
  EXPECT_EQ(AskDns(1), kB4);
  EXPECT_EQ(SentTo(FindDns(1)), 0b11u) << "should a be gone already, its nack is not the client's answer";
  Clones(HR_MARK_SEND, 1);
}

TEST_F(PolicyTest, WhatWaitsForABackendThatFallsSilentGoesToADrainedOneAfterAll) {
  Drain("dns4", "b");
  AskDns(1);
  const uint32_t request = FindDns(1);
  EXPECT_EQ(FireNow(request), (Changes{{"dns4:drained", 1}}));
  EXPECT_LT(Request(request).due_ns, Request(request).sent_ns + ServiceConfig(kDns4Service).deadline_ns)
      << "it is looked at again";
  EXPECT_EQ(FireNow(request), (Changes{})) << "counted once";
  Silence(kDns4A, 41 * kSecond);
  EXPECT_EQ(FireNow(request).at("dns4.failover_sends"), 1);
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(PolicyTest, WithEverybodyDrainedTheBestIsAsked) {
  for (const char *backend : {"a", "b", "c"}) Drain("raw4", backend);
  BackendState(kRaw4A).answer_ewma_ns = 9 * kMillisecond;
  BackendState(kRaw4B).answer_ewma_ns = 2 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 5 * kMillisecond;
  AskRaw(1);
  EXPECT_EQ(to_, kB4);
}

TEST_F(PolicyTest, APinnedOrAnnouncedLeaderStaysDrained) {
  Drain("raw4", "c");
  ASSERT_TRUE(plane().policy().PinLeader("raw4", "c").ok());
  AskRaw(1);
  EXPECT_NE(to_, kC4);
  Drain("hkv4", "n3");
  AnnounceLeader(kC4, 5);
  const uint32_t request = AskHkv(1);
  EXPECT_EQ(SentTo(request) & 0b100u, 0u);
}

TEST_F(PolicyTest, ADrainedLeaderIsNotHandedWhatOthersHave) {
  Drain("hkv4", "n3");
  AskHkv(1);  // under way to n1
  AskHkv(2);
  Reply(HkvReply4(2, kA4, kHkvNotLeader));  // and of this one n1 wants nothing: only n3 can answer it
  AnnounceLeader(kC4, 5);
  int handed = 0;
  for (int lap = 0; lap < 20 && (Wheel().handover != 0 || Wheel().handover_services != 0); ++lap)
    handed += static_cast<int>(Lap().changes["hkv4.handed_over"]);
  EXPECT_EQ(handed, 1);
  EXPECT_EQ(SentTo(FindHkv(1)), 0b001u);
  EXPECT_EQ(SentTo(FindHkv(2)), 0b101u);
}

TEST_F(PolicyTest, TcpFollowsADrainToo) {
  const auto open = [this](uint16_t port) {
    return Read(Split(PacketBuilder(kClient4, kDns4).Tcp(port, kDnsPort, 0x02).Build()).packet).destination;
  };
  EXPECT_EQ(open(40001), kA4);
  Drain("dns4", "a");
  EXPECT_EQ(open(40002), kB4);
  EXPECT_EQ(Read(Split(PacketBuilder(kClient4, kDns4).Tcp(40001, kDnsPort, 0x10).Build()).packet).destination, kA4)
      << "an open connection keeps its backend";
}

TEST_F(PolicyTest, AConnectionGoesToNoBackendThatIsNotHealthyAndIsNoProbe) {
  uint16_t port = 41000;
  const auto open = [&] { return Split(PacketBuilder(kClient4, kDns4).Tcp(port++, kDnsPort, 0x02).Build()); };
  BackendState(kDns4A).health = HR_SUSPECT;
  BackendState(kDns4A).health_since_ns = NowNs();
  EXPECT_EQ(Read(open().packet).destination, kB4)
      << "where a request goes to both, a connection goes to the healthy one";
  MakeDown(kDns4B);
  EXPECT_EQ(Read(open().packet).destination, kA4) << "neither is, and this one may only be slow";
  BackendState(kDns4B).health = HR_HEALTHY;
  MakeDown(kDns4A);
  for (int i = 0; i < 2 * HR_PROBE_ONE_IN; ++i) {
    const RunResult opened = open();
    ASSERT_EQ(Read(opened.packet).destination, kB4) << "connection " << i;
    ASSERT_EQ(opened.changes.count("dns4.probes"), 0u) << "connection " << i;
  }
  BackendState(kDns4A).probe_counter = HR_PROBE_ONE_IN;
  open();
  EXPECT_EQ(BackendState(kDns4A).probe_counter, uint32_t{HR_PROBE_ONE_IN}) << "the next request's probe is not used up";
}

// ---- Who is preferred
// ----------------------------------------------------------------------------------------------

TEST_F(PolicyTest, ThePreferredIsAskedFirstButForOneInManyRequests) {
  ServiceConfig(kOnceService).attempts = 1;
  ASSERT_TRUE(plane().policy().SetPreferred("once", 1).ok());
  int to_leader = 0;
  for (int i = 0; i < 256; ++i) {
    const auto id = static_cast<uint8_t>(i);
    const RunResult run = Split(PacketBuilder(kClient4, kOnce4).Udp(kClientPort, kRawPort, {id, 0, 0, 0}).Build());
    to_leader += Read(run.packet).destination == kA4;
  }
  EXPECT_EQ(to_leader, 2);
  ASSERT_TRUE(plane().policy().SetPreferred("once", std::nullopt).ok());
  EXPECT_EQ(
      Read(Split(PacketBuilder(kClient4, kOnce4).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build()).packet).destination,
      kA4);
}

TEST_F(PolicyTest, WithAPreferredTheLeaderIsAStandbyLikeOthers) {
  ASSERT_TRUE(plane().policy().SetPreferred("raw4", 1).ok());
  ServiceState(kRaw4Service).explored = 1;
  BackendState(kRaw4A).answer_ewma_ns = 40 * kMillisecond;
  BackendState(kRaw4C).answer_ewma_ns = 2 * kMillisecond;
  const uint32_t request = AskRaw(1);
  EXPECT_EQ(to_, kB4);
  EXPECT_EQ(Request(request).flags & HR_REQUEST_FIRST_HEALTHY, HR_REQUEST_FIRST_HEALTHY) << "its answer is a sample";
  FireNow(request);
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
}

TEST_F(PolicyTest, APreferredThatFallsSilentIsSteeredAround) {
  ASSERT_TRUE(plane().policy().SetPreferred("dns4", 1).ok());
  ServiceState(kDns4Service).explored = 1;
  Silence(kDns4B, 41 * kSecond);
  EXPECT_EQ(AskDns(1), kB4);
  EXPECT_EQ(SentTo(FindDns(1)), 0b11u);
  Clones(HR_MARK_SEND, 1);
}

// ---- Dry runs
// ------------------------------------------------------------------------------------------------------

TEST_F(PolicyTest, ADryRunCountsHedgesPlaysTheBudgetAndSendsNothing) {
  ServiceConfig(kDns4Service).budget_ppm = 0;
  ServiceState(kDns4Service).budget_micros = 1'000'000;
  ASSERT_TRUE(plane().policy().SetDryRun("dns4", true).ok());
  EXPECT_TRUE(plane().reader().Read(false)->services[kDns4Service].dry_run);
  AskDns(1);
  AskDns(2);
  const uint32_t first = FindDns(1);
  EXPECT_EQ(FireNow(first), (Changes{{"dns4.would_hedge", 1}}));
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 0) << "paid";
  EXPECT_EQ(FireNow(first), (Changes{})) << "counted once";
  EXPECT_EQ(FireNow(FindDns(2)), (Changes{{"dns4:no_budget", 1}}));
  Clones(HR_MARK_HEDGE, 0);
  EXPECT_EQ(SentTo(first), 0b01u);
  EXPECT_THAT(Reply(DnsReply4(1, kA4)).changes, Contains(Pair("dns4.won_by_first", 1)));
  ASSERT_TRUE(plane().policy().SetDryRun("dns4", false).ok());
  ServiceState(kDns4Service).budget_micros = 1'000'000;
  EXPECT_EQ(FireNow(FindDns(2)), (Changes{{"dns4.extra_sends", 1}, {"dns4.hedges", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(PolicyTest, ADryRunSteersAroundNobody) {
  ASSERT_TRUE(plane().policy().SetDryRun("dns4", true).ok());
  Silence(kDns4A, 41 * kSecond);
  RunResult run = Split(DnsRequest4(1));
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.requests", 1), Pair("dns4.suspected", 1),
                                                Pair("dns4.would_fail_over", 1)));
  EXPECT_EQ(Request(FindDns(1)).flags & HR_REQUEST_FIRST_HEALTHY, 0) << "no fair sample";
  MakeDown(kDns4A);
  run = Split(DnsRequest4(2));
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_EQ(SentTo(FindDns(2)), 0b01u);
  Clones(HR_MARK_SEND, 0);
}

TEST_F(PolicyTest, ADryRunGivesNacksToTheClient) {
  ASSERT_TRUE(plane().policy().SetDryRun("dns4", true).ok());
  ASSERT_TRUE(plane().policy().SetDryRun("hkv4", true).ok());
  AskDns(1);
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_THAT(nack.changes,
              UnorderedElementsAre(Pair("dns4.nacked", 1), Pair("dns4.replies", 1), Pair("dns4.would_fail_over", 1)));
  AskHkv(1);
  EXPECT_THAT(Reply(HkvReply4(1, kA4, kHkvNotLeader, 3)).changes, Contains(Pair("hkv4.nacked", 1)));
}

TEST_F(PolicyTest, ADryRunHandsNothingToANewLeader) {
  ASSERT_TRUE(plane().policy().SetDryRun("hkv4", true).ok());
  AskHkv(1);
  AnnounceLeader(kC4, 5);
  for (int lap = 0; lap < 5; ++lap) EXPECT_EQ(Lap().changes.count("hkv4.handed_over"), 0u);
  EXPECT_EQ(SentTo(FindHkv(1)), 0b001u);
  EXPECT_EQ(Read(Split(HkvRequest4(2)).packet).destination, kC4) << "new requests follow the leader";
}

// ---- What a backend says about hedging
// -----------------------------------------------------------------------------

TEST_F(PolicyTest, ABackendMayAskForNoHedges) {
  AskHkv(1);
  AskHkv(2);
  const RunResult answer = Reply(HkvReply4(1, kA4, 0, kHkvNeverHedge));
  EXPECT_EQ(answer.verdict, kRedirected);
  EXPECT_THAT(answer.changes,
              UnorderedElementsAre(Pair("hkv4.won_by_first", 1), Pair("hkv4.replies", 1), Pair("hkv4.pushbacks", 1)));
  EXPECT_TRUE(plane().reader().Read(false)->services[kHkv4Service].pushed_back);
  const uint32_t request = FindHkv(2);
  EXPECT_EQ(FireNow(request), (Changes{{"hkv4:pushback", 1}}));
  EXPECT_EQ(FireNow(request), (Changes{})) << "counted once a request";
  EXPECT_EQ(ServiceState(kHkv4Service).budget_micros, 2'000'000) << "and nothing is paid";
  Clones(HR_MARK_HEDGE, 0);
}

TEST_F(PolicyTest, WhatItAskedForIsOverAfterASecond) {
  AskHkv(1);
  AskHkv(2);
  const uint64_t before_ns = NowNs();
  Reply(HkvReply4(1, kA4, 0, kHkvNeverHedge));
  EXPECT_GE(ServiceState(kHkv4Service).pushback_until_ns, before_ns + kSecond);
  EXPECT_LE(ServiceState(kHkv4Service).pushback_until_ns, NowNs() + kSecond);
  ServiceState(kHkv4Service).pushback_until_ns = NowNs() - 1;
  EXPECT_FALSE(plane().reader().Read(false)->services[kHkv4Service].pushed_back);
  EXPECT_EQ(FireNow(FindHkv(2)), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.hedges", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(PolicyTest, ABackendMayAskForLaterHedges) {
  AskHkv(1);
  AskHkv(2);
  Reply(HkvReply4(1, kA4, 0, 700));
  const uint32_t request = FindHkv(2);
  EXPECT_EQ(FireNow(request), (Changes{{"hkv4:pushback", 1}}));
  EXPECT_EQ(Request(request).due_ns, Request(request).sent_ns + 700 * kMillisecond);
  Request(request).sent_ns = NowNs() - 701 * kMillisecond;
  EXPECT_EQ(FireNow(request), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.hedges", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(PolicyTest, NobodyWaitsLongerThanASecondForIt) {
  AskHkv(1);
  Reply(HkvReply4(1, kA4, 0, 60'000));
  EXPECT_EQ(ServiceState(kHkv4Service).pushback_ns, kSecond);
}

TEST_F(PolicyTest, ANackThatWantsNoHedgeIsTheLast) {
  AskHkv(1);
  const RunResult nack = Nack(1, kHkvNeverHedge);
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_EQ(HR_MARK_KIND(nack.mark), 0u) << "to the client, and not to the clock";
  EXPECT_THAT(nack.changes,
              UnorderedElementsAre(Pair("hkv4.nacked", 1), Pair("hkv4.replies", 1), Pair("hkv4.pushbacks", 1)));
}

TEST_F(PolicyTest, ItIsNotTheLastWhileAnotherCopyIsUnderWay) {
  AskHkv(1);
  FireNow(FindHkv(1));
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Nack(1, kHkvNeverHedge).verdict, kDropped);
  EXPECT_THAT(Reply(HkvReply4(1, kB4)).changes, Contains(Pair("hkv4.won_by_hedge", 1)));
}

TEST_F(PolicyTest, ANackThatWantsALaterHedgeIsSentOnByTheClockWhenItIsTime) {
  AskHkv(1);
  const uint32_t request = FindHkv(1);
  const RunResult nack = Nack(1, 300);
  EXPECT_EQ(nack.verdict, kDropped);
  EXPECT_THAT(nack.changes,
              UnorderedElementsAre(Pair("hkv4.nacks_swallowed", 1), Pair("hkv4:nack", 1), Pair("hkv4.pushbacks", 1)));
  EXPECT_EQ(FireNow(request), (Changes{{"hkv4:pushback", 1}}));
  Request(request).sent_ns = NowNs() - 301 * kMillisecond;
  EXPECT_EQ(FireNow(request), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.failover_sends", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(PolicyTest, ANackAfterTheLastLookIsNotWaitedFor) {
  AskHkv(1);
  const uint32_t request = FindHkv(1);
  Request(request).due_ns = Request(request).sent_ns + ServiceConfig(kHkv4Service).deadline_ns;
  EXPECT_THAT(Nack(1, 300).changes, Contains(Pair("hkv4.nacked", 1)));
}

TEST_F(PolicyTest, ANackOfLeadershipIsSentOnAtOnceAllTheSame) {
  AskHkv(1);
  Reply(HkvReply4(1, kA4, 0, kHkvNeverHedge));
  AskHkv(2);
  const RunResult nack = Reply(HkvReply4(2, kA4, kHkvNotLeader, 3));
  ASSERT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
  EXPECT_EQ(Read(Clock(nack.packet, {.mark = nack.mark}).packet).destination, kC4);
}

TEST_F(PolicyTest, SilenceIsNotBoundByWhatWasSaid) {
  AskHkv(1);
  Reply(HkvReply4(1, kA4, 0, kHkvNeverHedge));
  AskHkv(2);
  Silence(kHkv4A, 41 * kSecond);
  EXPECT_EQ(FireNow(FindHkv(2)).at("hkv4.failover_sends"), 1);
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(PolicyTest, OnlyABackendsOwnAnswerSaysAnything) {
  AskHkv(9);
  FireNow(FindHkv(9));  // this client has a flow with b, but not for the next request
  Clones(HR_MARK_HEDGE, 1);
  AskHkv(1);
  EXPECT_THAT(Reply(HkvReply4(1, kB4, 0, kHkvNeverHedge)).changes, Contains(Pair("hkv4:stale", 1)))
      << "b was not asked";
  EXPECT_EQ(ServiceState(kHkv4Service).pushback_until_ns, 0u);
  Reply(HkvReply4(1, kA4, kHkvNotLeader, 3));
  EXPECT_EQ(ServiceState(kHkv4Service).pushback_until_ns, 0u) << "that is a node's id";
  AskDns(1);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(ServiceState(kDns4Service).pushback_until_ns, 0u) << "dns has no word for it";
}

TEST_F(PolicyTest, OfSeveralPushbacksTheLongestHolds) {
  AskHkv(1);
  Reply(HkvReply4(1, kA4, /*status=*/0, /*hint=*/500));
  AskHkv(2);
  Reply(HkvReply4(2, kA4, /*status=*/0, /*hint=*/1));
  EXPECT_EQ(ServiceState(kHkv4Service).pushback_ns, 500 * kMillisecond);
  Advance(HR_PUSHBACK_HOLD_NS + 1);
  AskHkv(3);
  Reply(HkvReply4(3, kA4, /*status=*/0, /*hint=*/1));
  EXPECT_EQ(ServiceState(kHkv4Service).pushback_ns, kMillisecond);
}

}  // namespace
}  // namespace hedgerow::packets
