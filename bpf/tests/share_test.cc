// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Shares: one client or one service that sends without end leaves the others their places, their parked copies, their
// hedges and their attempts after negative replies (bpf/proxy/share.bpf.h, steer.bpf.h).
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <netinet/in.h>

#include <string>

#include "bpf/tests/kernel_fixture.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class ShareTest : public PacketTest {
 protected:
  void SetUp() override {
    PacketTest::SetUp();
    for (const uint32_t service : {kDns4Service, kRaw4Service}) List(service, {"10.0.0.0/8"});
  }
  // 8 services share 128 parked copies.
  static constexpr uint32_t kCopies = 128;
  static constexpr uint32_t kClientCopies = kCopies / HR_CLIENT_PARTS + 1, kServiceCopies = kCopies / 4 / 8;

  static Bytes Ask(const std::string &client, const char *vip, uint16_t id) {
    const uint16_t port = vip == std::string(kRaw4) ? kRawPort : kDnsPort;
    return PacketBuilder(client.c_str(), vip).Udp(kClientPort, port, DnsQuery(id, "www.example.org")).Build();
  }
  // A request to dns4; why it was forwarded, "" where it is tracked.
  std::string WhyForwarded(const std::string &client, uint16_t id, const char *vip = kDns4) {
    const Changes changes = SplitOf(client, Ask(client, vip, id)).changes;
    for (const auto &[name, count] : changes)
      if (const size_t colon = name.find(':'); colon != std::string::npos) return name.substr(colon + 1);
    return "";
  }
  static uint32_t Count(bpf_map *flows) {
    hr_flow_key key{}, next{};
    uint32_t count = 0;
    for (const void *at = nullptr; bpf_map_get_next_key(bpf_map__fd(flows), at, &next) == 0; at = &key, ++count)
      key = next;
    return count;
  }
  uint32_t Find(const std::string &client, uint16_t id) {
    return FindRequest(kDns4Service, client.c_str(), kClientPort,
                       {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)});
  }
  // An address whose client has another place than `other`'s request 1. They share one by chance otherwise.
  std::string Stranger(const std::string &other) {
    const uint32_t place = Request(Find(other, 1)).client;
    for (int i = 1;; ++i) {
      const std::string client = "10.77.2." + std::to_string(i);
      if (WhyForwarded(client, 999) != "") return client;
      const uint32_t request = Find(client, 999);
      const bool differs = Request(request).client != place;
      Reply(PacketBuilder(kA4, client.c_str())
                .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(999, "www.example.org")))
                .Build());
      VisitAll();
      if (differs) return client;
    }
  }
};

TEST_F(ShareTest, AClientThatFloodsLeavesHalfOfTheTableToOthers) {
  ASSERT_EQ(WhyForwarded(kClient4, 1), "");
  const std::string other = Stranger(kClient4);
  for (uint16_t id = 2; id <= kCopies / 2; ++id) ASSERT_EQ(WhyForwarded(kClient4, id), "") << id;
  for (uint16_t id = 201; id <= 210; ++id) ASSERT_EQ(WhyForwarded(kClient4, id), "client_share") << id;
  for (uint16_t id = 1; id <= kClientCopies; ++id) EXPECT_EQ(WhyForwarded(other, id), "") << id;
  EXPECT_EQ(WhyForwarded(other, 99), "client_share");
  // What was answered is given back, to the client that floods as well.
  for (uint16_t id = 1; id <= 10; ++id) Reply(DnsReply4(id, kA4));
  VisitAll();
  EXPECT_EQ(WhyForwarded(kClient4, 301), "");
}

// Who a client is: a user may bind any address (IP_FREEBIND), a host has a whole /64, and what is masqueraded bears an
// address of this host.
TEST_F(ShareTest, AUserIsOneClientAndSoIsASourceBehindAnInterface) {
  List(kDns6Service, {"fd00::/8"});
  uint16_t id = 0;
  const auto client4 = [&](const char *source, int interface) {
    Split(Ask(source, kDns4, ++id), {.ingress_ifindex = interface});
    return uint32_t{Request(Find(source, id)).client};
  };
  const auto client6 = [&](const char *source, int interface) {
    Split(PacketBuilder(source, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(++id, "www.example.org")).Build(),
          {.ingress_ifindex = interface});
    return uint32_t{Request(FindRequest(kDns6Service, source, kClientPort,
                                        {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)}))
                        .client};
  };
  ASSERT_TRUE(plane().config().SetOwnAddresses({kClient4}).ok());
  const uint32_t user = client4(kClient4, 0), hidden = client4(kClient4, 77), container = client4("10.78.0.2", 77);
  EXPECT_EQ(client4("10.77.9.9", 0), user);
  EXPECT_NE(hidden, user) << "a masqueraded network";
  EXPECT_NE(container, hidden);
  EXPECT_NE(client4("10.78.0.3", 77), container);
  EXPECT_NE(client4("10.78.0.2", 78), container) << "another interface";
  const uint32_t host6 = client6("fd78::1", 77);
  EXPECT_EQ(client6("fd78::dead:beef", 77), host6);
  EXPECT_NE(client6("fd78:0:0:1::1", 77), host6);
  EXPECT_EQ(client6("fd55::1", 0), client6("fd99:7::2", 0));
  ASSERT_TRUE(plane().config().SetOwnAddresses({}).ok());
}

// A user who opens and closes connections without end, or leaves them open, breaks no connection of another client.
TEST_F(ShareTest, AClientsConnectionsMakeOnlyItsLikeBeForgotten) {
  constexpr uint32_t kConnections = 1024;  // of the fixture
  const auto send = [this](const std::string &client, uint16_t port, uint8_t flags) {
    SplitOf(client, PacketBuilder(client.c_str(), kDns4).Tcp(port, kDnsPort, flags).Build());
  };
  ASSERT_EQ(WhyForwarded(kClient4, 1), "");
  const std::string other = Stranger(kClient4);
  send(other, kClientPort, kTcpSyn);
  for (const bool closes : {true, false}) {
    for (uint16_t port = 10'000; port < 10'000 + 4 * kConnections; ++port) {
      send(kClient4, port, kTcpSyn);
      if (closes) send(kClient4, port, 0x11);
    }
    EXPECT_EQ(Reply(PacketBuilder(kA4, other.c_str()).Tcp(53, kClientPort, kTcpAck).Build()).verdict, kRedirected)
        << "an idle connection";
    EXPECT_LE(Count(skeleton()->maps.connections), kConnections / HR_FLOW_PARTS + 8);
  }
  const uint16_t last = 10'000 + 4 * kConnections - 1;
  const std::string to =
      Read(Split(PacketBuilder(kClient4, kDns4).Tcp(last, kDnsPort, kTcpAck).Build()).packet).destination;
  EXPECT_EQ(Reply(PacketBuilder(to, kClient4).Tcp(53, last, kTcpAck).Build()).verdict, kRedirected) << "its own, too";
}

TEST_F(ShareTest, ConnectionsThatHaveEndedAreLookedForWhileTheyMaySendAndNoLonger) {
  const auto send = [this](uint16_t port, uint8_t flags) {
    Split(PacketBuilder(kClient4, kDns4).Tcp(port, kDnsPort, flags).Build());
  };
  send(10'000, kTcpSyn);
  send(10'000, 0x11);
  EXPECT_GT(Live().crowded_ns[1], NowNs());
  EXPECT_EQ(Live().crowded_ns[0], 0u) << "datagrams pay for no connection";
  Advance(60 * kSecond);
  send(10'001, kTcpSyn);
  EXPECT_NE(Live().crowded_ns[1], 0u);
  Advance(70 * kSecond);
  send(10'002, kTcpSyn);
  EXPECT_EQ(Live().crowded_ns[1], 0u);
}

TEST_F(ShareTest, AServiceThatIsFloodedByManyLeavesAQuarterToOthers) {
  uint16_t tracked = 0;
  for (uint16_t i = 0; i < 250 && tracked < kCopies / 4 * 3; ++i)
    tracked += WhyForwarded("10.77.1." + std::to_string(i), 1).empty();
  ASSERT_EQ(tracked, kCopies / 4 * 3);
  EXPECT_EQ(WhyForwarded("10.77.3.1", 1), "service_share");
  for (uint16_t id = 1; id <= kServiceCopies; ++id)
    EXPECT_EQ(WhyForwarded("10.77.3." + std::to_string(id), id, kRaw4), "") << id;
  EXPECT_EQ(WhyForwarded("10.77.3.9", 9, kRaw4), "service_share");
}

TEST_F(ShareTest, AClientThatMakesEverNewFlowsMakesOnlyItsLikeBeForgotten) {
  constexpr uint32_t kFlows = 1024, kPart = kFlows / HR_FLOW_PARTS;  // of the fixture
  const auto from_port = [](const std::string &client, uint16_t port) {
    return PacketBuilder(client.c_str(), kDns4).Udp(port, kDnsPort, DnsQuery(1, "www.example.org")).Build();
  };
  const auto known = [this](const std::string &client, uint16_t port) {
    return HasFlow(client.c_str(), port, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A);
  };
  Advance((1ull << HR_FLOW_TICK_SHIFT) -
          NowNs() % (1ull << HR_FLOW_TICK_SHIFT));  // a client's part is counted anew in each tick
  ASSERT_EQ(WhyForwarded(kClient4, 1), "");
  const std::string other = Stranger(kClient4);
  SplitOf(other, from_port(other, kClientPort));
  ASSERT_TRUE(known(other, kClientPort));
  for (uint16_t port = 10'000; port < 10'000 + 4 * kFlows; ++port) Split(from_port(kClient4, port));
  EXPECT_TRUE(known(other, kClientPort));
  EXPECT_TRUE(known(kClient4, 10'000)) << "within its part";
  EXPECT_LE(Count(skeleton()->maps.flows), kPart + 8);
  EXPECT_GT(Count(skeleton()->maps.crowded_flows), 0u);
  // Its latest flow is where it is looked for: the answer to a request that was not tracked reaches it.
  const uint16_t last = 10'000 + 4 * kFlows - 1;
  EXPECT_FALSE(known(kClient4, last));
  EXPECT_EQ(Reply(PacketBuilder(kA4, kClient4).Udp(kDnsPort, last, DnsAnswer(DnsQuery(1, "www.example.org"))).Build())
                .verdict,
            kRedirected);
  // In another tick it may make as many anew.
  Advance(2ull << HR_FLOW_TICK_SHIFT);
  Split(from_port(kClient4, 9'999));
  EXPECT_TRUE(known(kClient4, 9'999));
}

// The control: as many flows of as many clients, none of which makes more than its part.
TEST_F(ShareTest, FlowsOfManyClientsMakeTheOldestBeForgotten) {
  const auto ask = [this](const std::string &client) { SplitOf(client, Ask(client, kDns4, 1)); };
  ask("10.77.3.1");
  ASSERT_TRUE(HasFlow("10.77.3.1", kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A));
  for (int i = 0; i < 4096; ++i) ask("10.78." + std::to_string(i / 250) + "." + std::to_string(i % 250 + 1));
  EXPECT_FALSE(HasFlow("10.77.3.1", kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A));
}

TEST_F(ShareTest, AServiceThatIsAloneHasTheWholeTable) {
  DataPlaneSpec spec = Spec();
  spec.services.resize(1);
  Start(spec);
  EXPECT_EQ(ServiceConfig(kDns4Service).request_share, UINT32_MAX);
  EXPECT_EQ(ServiceConfig(kDns4Service).parked_share, UINT32_MAX);
}

TEST_F(ShareTest, AClientThatUsedUpItsHedgesLeavesOthersTheirs) {
  ServiceConfig(kDns4Service).budget_burst = 32;  // half of it is 16 hedges, one client's credit 2
  ServiceConfig(kDns4Service).budget_ppm = 400'000;
  ServiceConfig(kDns4Service).deadline_ns = 100 * kSecond;
  ServicePolicy(kDns4Service).delay_ns = 50 * kSecond;
  ASSERT_EQ(WhyForwarded(kClient4, 1), "");
  const std::string other = Stranger(kClient4);
  // The other earns 4 hedges.
  for (uint16_t id = 1; id <= 10; ++id) ASSERT_EQ(WhyForwarded(other, id), "");
  for (uint16_t id = 2; id <= 22; ++id) ASSERT_EQ(WhyForwarded(kClient4, id), "");
  ServiceState(kDns4Service).budget_micros = 30'000'000;
  int hedges = 0;
  Changes last;
  // It has earned 8.8, may use the upper half of the bucket, which is 15, and then no more than its credit.
  for (uint16_t id = 1; id <= 22 && !last.contains("dns4:no_budget"); ++id) {
    last = FireNow(Find(kClient4, id));
    hedges += static_cast<int>(last.contains("dns4.hedges"));
  }
  EXPECT_TRUE(last.contains("dns4:no_budget"));
  EXPECT_EQ(hedges, 15);
  for (uint16_t id = 1; id <= 4; ++id) EXPECT_THAT(FireNow(Find(other, id)), Contains(Pair("dns4.hedges", 1))) << id;
}

TEST_F(ShareTest, WhereOthersHaveEmptiedTheBucketAUserHasWhatItHasEarnedAndItsCredit) {
  ServiceConfig(kDns4Service).budget_burst = 32;  // a client's credit is 2
  ServiceConfig(kDns4Service).budget_ppm = 50'000;
  ServiceConfig(kDns4Service).deadline_ns = 100 * kSecond;
  ServicePolicy(kDns4Service).delay_ns = 50 * kSecond;
  for (uint16_t id = 1; id <= 4; ++id) ASSERT_EQ(WhyForwarded(kClient4, id), "");
  ServiceState(kDns4Service).mixed_ns = NowNs();
  ServiceState(kDns4Service).budget_micros = -16'000'000;
  EXPECT_THAT(FireNow(Find(kClient4, 1)), Contains(Pair("dns4:no_budget", 1))) << "half a bucket below zero is the end";
  ServiceState(kDns4Service).budget_micros = 900'000;  // another one spends each token as it comes
  EXPECT_THAT(FireNow(Find(kClient4, 2)), Contains(Pair("dns4.hedges", 1)));
  EXPECT_THAT(FireNow(Find(kClient4, 3)), Contains(Pair("dns4.hedges", 1)));
  EXPECT_THAT(FireNow(Find(kClient4, 4)), Contains(Pair("dns4:no_budget", 1))) << "its credit is used up";
}

TEST_F(ShareTest, ManySourcesBehindAnInterfaceLeaveAUserItsCredit) {
  ServiceConfig(kDns4Service).budget_burst = 32;  // a client's credit is 2
  ServiceConfig(kDns4Service).budget_ppm = 50'000;
  ServiceConfig(kDns4Service).deadline_ns = 100 * kSecond;
  ServicePolicy(kDns4Service).delay_ns = 50 * kSecond;
  const auto source = [](int i) { return "10.78.1." + std::to_string(i); };
  Split(Ask(kClient4, kDns4, 1));
  for (int i = 1; i <= 40; ++i) Split(Ask(source(i), kDns4, 1), {.ingress_ifindex = 77});
  ServiceState(kDns4Service).budget_micros = 15'000'000;  // below half of the bucket
  ServiceState(kDns4Service).mixed_ns = NowNs();
  int hedges = 0;
  for (int i = 1; i <= 40; ++i) hedges += static_cast<int>(FireNow(Find(source(i), 1)).contains("dns4.hedges"));
  EXPECT_EQ(hedges, 15) << "and none below zero";
  EXPECT_THAT(FireNow(Find(kClient4, 1)), Contains(Pair("dns4.hedges", 1)));
}

TEST_F(ShareTest, AClientThatIsAlwaysRefusedLeavesOthersTheirAttempts) {
  ASSERT_EQ(WhyForwarded(kClient4, 1), "");
  const std::string other = Stranger(kClient4);
  const auto refuse = [&](const std::string &client, uint16_t id) {
    return Reply(PacketBuilder(kA4, client.c_str())
                     .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org"), 2))
                     .Build())
        .changes;
  };
  for (uint16_t id = 2; id <= HR_RETRIES_MAX / 2; ++id) ASSERT_EQ(WhyForwarded(kClient4, id), "");
  for (uint16_t id = 1; id <= HR_RETRIES_MAX / 2; ++id)
    ASSERT_THAT(refuse(kClient4, id), Contains(Pair("dns4:nack", 1))) << id;
  ASSERT_EQ(WhyForwarded(kClient4, 60), "");
  EXPECT_THAT(refuse(kClient4, 60), Contains(Pair("dns4:no_retry_budget", 1)));
  ASSERT_EQ(WhyForwarded(other, 1), "");
  EXPECT_THAT(refuse(other, 1), Contains(Pair("dns4:nack", 1)));
  // Others keep the service at its half: time pays for the client's own part as well.
  Advance(2 * kSecond);
  ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX * 3 / 4;
  ServiceState(kDns4Service).paid_tick = 0;
  ASSERT_EQ(WhyForwarded(kClient4, 61), "");
  EXPECT_THAT(refuse(kClient4, 61), Contains(Pair("dns4:nack", 1)));
}

}  // namespace
}  // namespace hedgerow::packets
