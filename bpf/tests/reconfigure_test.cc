// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A reload under the programs that run: who is added is found at once, who is removed gets nothing new, and
// what is in flight to it is answered as if nothing had been; forgotten, its numbers are clean for the next.
// What packets meet in between: reload_steps_test.cc.
#include <netinet/in.h>

#include <atomic>
#include <functional>
#include <set>
#include <thread>

#include "bpf/tests/reconfigure_fixture.h"
#include "proxy/data_plane/endpoint.h"

namespace hedgerow::packets {
namespace {

TEST_F(ReconfigureTest, ARemovedLeaderGetsNothingNewAndItsAnswerStillReachesTheClient) {
  ASSERT_EQ(SentTo(RawRequest(1)), kA4);
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.erase(Raw(spec).backends.begin());  // a, the primary; b and c keep their places
  Reconfigure(spec);
  EXPECT_EQ(SentTo(RawRequest(2)), kB4);
  const RunResult answer = Reply(RawReply(1, kA4));
  EXPECT_EQ(answer.verdict, kRedirected);
  EXPECT_EQ(Read(answer.packet).source, kRaw4);
  EXPECT_EQ(answer.changes.at("raw4.won_by_first"), 1);
  EXPECT_EQ(ServiceConfig(kRaw4Service).present, 0b110);
}

TEST_F(ReconfigureTest, ARemovedStandbyIsNoTargetOfAHedge) {
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.erase(Raw(spec).backends.begin() + 1);
  Reconfigure(spec);
  ASSERT_EQ(SentTo(RawRequest(1)), kA4);
  const uint32_t request = FindRaw(1);
  ASSERT_NE(request, 0u);
  FireNow(request);
  EXPECT_EQ(PacketTest::SentTo(request), 0b101u) << "a, and then c";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(ReconfigureTest, WithOneBackendLeftNothingIsHedged) {
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.resize(1);
  Reconfigure(spec);
  EXPECT_EQ(Split(RawRequest(1)).changes.at("raw4:not_hedged"), 1);
}

TEST_F(ReconfigureTest, AnAddedBackendTakesAFreePlaceAndAnAddedServiceServes) {
  DataPlaneSpec spec = WithIds();
  BackendSpec added = Raw(spec).backends[0];
  added.name = "d";
  added.address = "10.77.0.14";
  added.id = 40;
  added.slot = 3;
  Raw(spec).backends.push_back(added);
  Raw(spec).primary = 3;
  ServiceSpec service = Raw(spec);
  service.name = "new";
  service.vip = "10.99.0.77";
  service.id = 12;
  service.primary = 0;
  service.backends.resize(1);
  service.backends[0].address = "10.77.0.15";
  service.backends[0].id = 41;
  service.backends[0].slot = 0;
  spec.services.push_back(service);
  Reconfigure(spec);
  EXPECT_EQ(SentTo(RawRequest(1)), "10.77.0.14") << "the new primary";
  EXPECT_EQ(SentTo(RawRequest(2, "10.99.0.77")), "10.77.0.15");
  EXPECT_EQ(plane().reader().Read(false)->services.back().stats.counters[HR_REQUESTS], 1u);
}

TEST_F(ReconfigureTest, ARemovedServiceIsNotFoundAndItsAnswersAreStillGivenInItsName) {
  ASSERT_EQ(SentTo(RawRequest(1)), kA4);
  DataPlaneSpec spec = WithIds();
  const uint32_t id = Raw(spec).id;
  std::vector<RetiredBackend> backends;
  for (const BackendSpec &backend : Raw(spec).backends) backends.push_back({backend.id, backend.address, backend.port});
  spec.services.erase(spec.services.begin() + kRaw4Service);
  const std::vector<RetiredService> retired = {{id, kRaw4, kRawPort}};
  Reconfigure(spec);
  EXPECT_THAT(Split(RawRequest(2)).changes, UnorderedElementsAre(testing::Pair("host.refusals", 1)));
  EXPECT_EQ(Read(Reply(RawReply(1, kA4)).packet).source, kRaw4);
  VisitAll();

  const int vips = bpf_map__fd(plane().object().skeleton()->maps.vip_addresses);
  const hr_address vip = ParseEndpoint(kRaw4, kRawPort)->address;
  hr_vip found{};
  ASSERT_TRUE(plane().config().Forget({{id, kRaw4, kRawPort, /*vip_is_known=*/true}}, {}).ok());
  EXPECT_EQ(bpf_map_lookup_elem(vips, &vip, &found), 0) << "another service has this VIP";
  ASSERT_TRUE(plane().config().Forget(retired, {}).ok());
  EXPECT_NE(bpf_map_lookup_elem(vips, &vip, &found), 0);
  ASSERT_TRUE(plane().config().Forget(retired, backends).ok());
  EXPECT_EQ(Reply(RawReply(1, kA4)).verdict, kUntouched) << "nobody's by now";
  EXPECT_EQ(ServiceConfig(id).present, 0);
}

TEST_F(ReconfigureTest, WhatAnAdministratorHasSwitchedHoldsUnlessTheConfigurationSaysOtherwise) {
  ASSERT_TRUE(plane().policy().SetBypass("raw4", true).ok());
  ASSERT_TRUE(plane().policy().SetDryRun("raw4", true).ok());
  ASSERT_TRUE(plane().policy().SetDrained("raw4", "b", true).ok());
  DataPlaneSpec spec = WithIds();
  Raw(spec).config.delay_ns = 7 * kMillisecond;
  Reconfigure(spec);
  const ServiceSnapshot same = plane().reader().Read(false)->services[kRaw4Service];
  EXPECT_TRUE(same.bypass && same.dry_run && same.backends[1].drained);
  EXPECT_EQ(same.delay_ns, 7 * kMillisecond);
  EXPECT_EQ(Wheel().shortest_delay_ns, 7 * kMillisecond);
  Raw(spec).config.switches = HR_SWITCH_DRY_RUN;
  Reconfigure(spec);
  Raw(spec).config.switches = 0;
  Reconfigure(spec);
  EXPECT_FALSE(plane().reader().Read(false)->services[kRaw4Service].dry_run);
}

TEST_F(ReconfigureTest, ATwiceGivenNumberIsRefused) {
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends[1].id = Raw(spec).backends[0].id;
  EXPECT_EQ(plane().config().Reconfigure(spec).code(), absl::StatusCode::kInvalidArgument);
  spec = WithIds();
  Raw(spec).backends[1].slot = Raw(spec).backends[0].slot;
  EXPECT_EQ(plane().config().Reconfigure(spec).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReconfigureTest, AVipPassesFromOneServiceToAnother) {
  ASSERT_EQ(SentTo(RawRequest(1)), kA4);
  DataPlaneSpec spec = WithIds();
  ServiceSpec &successor = Raw(spec);
  successor.name = "successor";
  successor.id = 12;
  successor.primary = 0;
  successor.backends = {Another(successor, "10.77.0.14", 40, 0)};
  Reconfigure(spec);
  EXPECT_EQ(SentTo(RawRequest(2)), "10.77.0.14");
  EXPECT_EQ(Read(Reply(RawReply(1, kA4)).packet).source, kRaw4) << "asked before, of the first";
  Reconfigure(spec);
  EXPECT_EQ(SentTo(RawRequest(3)), "10.77.0.14") << "another reload while it is retired";
}

TEST_F(ReconfigureTest, WhatMayBeDuplicatedChangesAndWhatIsInFlightIsAnswered) {
  DataPlaneSpec spec = WithIds();
  Raw(spec).config.profile = PairedBy(4, R"(operations: [{match: [{offset: 4, bytes: "01"}]}])");
  const auto request = [](uint8_t id, uint8_t operation) {
    return PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {id, 0, 0, 0, operation, 0, 0, 0}).Build();
  };
  EXPECT_EQ(Split(request(1, 2)).changes.count("raw4.passed_through"), 0u) << "as loaded, everything may";
  Reconfigure(spec);
  EXPECT_EQ(ServicePolicy(kRaw4Service).switches, 0u);
  EXPECT_EQ(Split(request(2, 2)).changes.at("raw4.passed_through"), 1);
  EXPECT_EQ(Split(request(3, 1)).changes.count("raw4.passed_through"), 0u);
  const Bytes answer = PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, {1, 0, 0, 0, 9}).Build();
  EXPECT_EQ(Reply(answer).changes.at("raw4.won_by_first"), 1);
}

// Its number is its old one, and with it comes what was announced before it was removed.
TEST_F(ReconfigureTest, AServiceThatComesBackFollowsItsOwnClusterAndNoOther) {
  AnnounceLeader(kB4, 5);
  const DataPlaneSpec whole = WithIds();
  DataPlaneSpec without = whole;
  without.services.erase(without.services.begin() + kHkv4Service);
  Reconfigure(without);
  Reconfigure(whole);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
  EXPECT_EQ(LeaderOf(kHkv4Service).term, 5u);
  Reconfigure(without);
  DataPlaneSpec other = whole;
  ++other.services[kHkv4Service].cluster->id;
  other.services[kHkv4Service].config.switches = HR_SWITCH_DRY_RUN;
  Reconfigure(other);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0) << "the primary, until that cluster says otherwise";
  EXPECT_EQ(LeaderOf(kHkv4Service).term, 0u);
  EXPECT_TRUE(plane().reader().Read(false)->services[kHkv4Service].dry_run) << "as its configuration says";
}

TEST_F(ReconfigureTest, WhoWasRemovedIsNotBelievedToLead) {
  AnnounceLeader(kB4, 5);
  DataPlaneSpec spec = WithIds();
  std::vector<BackendSpec> &backends = spec.services[kHkv4Service].backends;
  backends.erase(backends.begin() + 1);
  Reconfigure(spec);
  const RunResult run = Announce(Seal(Leading(kCluster4, kB4, kHkvPort, 6, 1), kKey4));
  EXPECT_EQ(run.changes.count("host:announce_endpoint"), 1u);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0);
  EXPECT_EQ(LeaderOf(kHkv4Service).term, 5u);
}

TEST_F(ReconfigureTest, ForgottenNumbersLeaveNoFlowBehind) {
  const auto tcp = [](uint8_t flags) {
    return PacketBuilder(kClient4, kRaw4).Tcp(kClientPort, kRawPort, flags).Build();
  };
  constexpr uint8_t kSyn = 0x02, kAck = 0x10;
  Split(tcp(kSyn));
  ASSERT_EQ(SentTo(RawRequest(1)), kA4);
  ASSERT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_CONNECTION, kRaw4Service));
  ASSERT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kRaw4A));
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.erase(Raw(spec).backends.begin());
  Reconfigure(spec);
  EXPECT_TRUE(plane().config().IsKnown(kRaw4Service, 0b001)) << "a request waits for it";
  EXPECT_FALSE(plane().config().IsKnown(kRaw4Service, 0b110));
  EXPECT_FALSE(plane().config().IsKnown(kDns4Service, 0xff));
  Reply(RawReply(1, kA4));
  MakeDue(FindRaw(1));
  VisitAll();
  EXPECT_FALSE(plane().config().IsKnown(kRaw4Service, 0b001));
  ASSERT_TRUE(plane().config().Forget({}, {{kRaw4A, kA4, kRawPort}}).ok());
  EXPECT_FALSE(HasFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_CONNECTION, kRaw4Service));
  EXPECT_FALSE(HasFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kRaw4A));
  EXPECT_FALSE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kRaw4A));
  EXPECT_EQ(Read(Split(tcp(kAck)).packet).destination, kB4) << "whoever leads says that he knows it not";
}

// Threads split requests while one configuration follows the other: packets that are under way over a write.
// The leader is silent, so that each request looks at every place for a standby; a place that can be seen
// before its number stands there would lead to backend 0, another service's, which looks fastest.
TEST_F(ReconfigureTest, PacketsThatAreUnderWayStrayNowhere) {
  const DataPlaneSpec with = [&] {
    DataPlaneSpec spec = WithIds();
    Raw(spec).backends.push_back(Another(Raw(spec), "10.77.0.14", 40, 3));
    Raw(spec).config.delay_ns = 9 * kMillisecond;
    return spec;
  }();
  const DataPlaneSpec without = [&] {
    DataPlaneSpec spec = WithIds();
    Raw(spec).backends.erase(Raw(spec).backends.begin() + 1);
    return spec;
  }();
  BackendState(kRaw4A).health = HR_DOWN;
  BackendState(kRaw4A).health_since_ns = NowNs();
  for (const uint32_t id : {uint32_t{kRaw4B}, uint32_t{kRaw4C}, 40u}) BackendState(id).answer_ewma_ns = kMillisecond;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> packets = 0;
  std::atomic<int> untouched = 0, strayed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (uint8_t id = 0; !stop; ++id) {
        const Bytes packet = PacketBuilder(kClient4, kRaw4)
                                 .Udp(static_cast<uint16_t>(kClientPort + i), kRawPort, Pattern(8, id))
                                 .Build();
        const RunResult run =
            RunUncounted(skeleton()->progs.hr_splitter, packet, {.ifindex = TestLinks::Get().proxy.ifindex});
        ++packets;
        if (run.verdict != kRedirected) {
          ++untouched;
          continue;
        }
        const PacketView sent = Read(run.packet);
        const std::set<std::string> ours = {kA4, kB4, kC4, "10.77.0.14"};
        if (!ours.contains(sent.destination) || sent.destination_port != kRawPort) ++strayed;
      }
    });
  }
  for (int turn = 0; turn < 60; ++turn) {
    Reconfigure(turn % 2 == 0 ? with : without);
    // As after a forgetting: the place leads to nobody's number until it is given again.
    if (turn % 2 == 1) {
      EXPECT_TRUE(WaitForPrograms().ok());
      ServiceConfig(kRaw4Service).backends[3] = 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stop = true;
  for (std::thread &thread : threads) thread.join();
  EXPECT_GT(packets, 1000u);
  EXPECT_EQ(untouched, 0);
  EXPECT_EQ(strayed, 0);
}

// One generation allows attempts but not this operation, and the other one the operation but no second attempt: only
// halves of both, under one packet, would let a copy of it wait. Within a packet's time the generations change several
// times.
TEST_F(ReconfigureTest, NoPacketSeesTwoConfigurationsMixed) {
  const auto configure = [this](uint8_t attempts, const char *operation) {
    hr_service_config config{};
    memcpy(&config, const_cast<hr_service_config *>(&ServiceConfig(kRaw4Service)), sizeof(config));
    config.attempts = attempts;
    config.profile = PairedBy(4, absl::StrCat("operations: [{match: [{offset: 4, bytes: \"", operation, "\"}]}]"));
    memcpy(const_cast<hr_service_config *>(&ServiceConfig(kRaw4Service)), &config, sizeof(config));
    Published() = Published() ^ 1;
  };
  configure(2, "01");
  configure(1, "02");
  std::atomic<bool> stop = false;
  std::thread publisher([&] {
    for (uint64_t generation = 0; !stop; ++generation) __atomic_store_n(&Published(), generation & 1, __ATOMIC_SEQ_CST);
  });
  const auto tracked = [this](uint8_t operation) {
    constexpr int kPackets = 20'000;
    int waiting = 0;
    for (int i = 0; i < kPackets; ++i) {
      const auto id = static_cast<uint8_t>(i);
      const uint32_t before = RequestsInUse();
      RunUncounted(skeleton()->progs.hr_splitter,
                   PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {id, 0, 0, 0, operation, 0, 0, 0}).Build(),
                   {.ifindex = TestLinks::Get().proxy.ifindex});
      if (RequestsInUse() != before) ++waiting;
    }
    return waiting;
  };
  EXPECT_EQ(tracked(2), 0) << "copies of what neither configuration sends twice";
  const int allowed_by_one = tracked(1);
  stop = true;
  publisher.join();
  EXPECT_GT(allowed_by_one, 0) << "the first generation was met by no packet";
}

TEST_F(ReconfigureTest, WhatIsWrongChangesNothing) {
  const uint64_t before_ns = ServicePolicy(kDns4Service).delay_ns;
  for (const auto &spoil : std::vector<std::function<void(DataPlaneSpec &)>>{
           [](DataPlaneSpec &spec) { spec.services.back().id = HR_MAX_SERVICES; },
           [](DataPlaneSpec &spec) { spec.services.back().backends[0].id = 4000; },
           [](DataPlaneSpec &spec) { spec.services.back().backends[0].address = "nowhere"; },
           [](DataPlaneSpec &spec) { spec.services.back().backends.clear(); }}) {
    DataPlaneSpec spec = WithIds();
    spec.services[kDns4Service].config.delay_ns = 1;
    spoil(spec);
    EXPECT_EQ(plane().config().Reconfigure(spec).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ServicePolicy(kDns4Service).delay_ns, before_ns);
  }
}

}  // namespace
}  // namespace hedgerow::packets
