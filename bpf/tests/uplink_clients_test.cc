// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER at an uplink's egress, and REPLY for what it took there. A test run's packet is of no socket that the kernel
// finds, so it stands for a child of the uplink (macvlan, ipvlan); sockets of this host are
// tests/e2e/test_clients_bound.py.
#include <cstring>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "net/networks.h"

namespace hedgerow::packets {
namespace {

using ::testing::Pair;

constexpr char kChild4[] = "10.77.0.77";

class UplinkClientsTest : public PacketTest {
 protected:
  RunResult SplitAtUplink(const Bytes &packet) {
    return Split(packet, {.ifindex = static_cast<int>(TestLinks::Get().uplink.ifindex)});
  }
  void ListChild() {
    const net::Network network = *net::Network::Parse(kChild4);
    volatile hr_service_config &config = ServiceConfig(kDns4Service);
    memcpy(const_cast<hr_address *>(&config.clients[0].address), network.address.mapped().data(), sizeof(hr_address));
    memcpy(const_cast<hr_address *>(&config.clients[0].mask), network.mask().data(), sizeof(hr_address));
    config.client_networks = 1;
  }
  static Bytes Query(uint16_t id) {
    return PacketBuilder(kChild4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build();
  }
  static Bytes Answer(const char *backend, uint16_t id) {
    return PacketBuilder(backend, kChild4)
        .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org")))
        .Build();
  }
};

TEST_F(UplinkClientsTest, WhatIsForNoVipLeavesUntouched) {
  for (const Bytes &packet : {PacketBuilder(kClient4, kA4).Udp(kClientPort, 53, DnsQuery(1, "a.org")).Build(),
                              PacketBuilder(kClient6, kA6).Udp(kClientPort, 53, DnsQuery(1, "a.org")).Build(),
                              PacketBuilder(kClient4, "192.0.2.1").Tcp(kClientPort, 443, kTcpSyn).Build(), Bytes(60)}) {
    const RunResult run = SplitAtUplink(packet);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, packet);
    EXPECT_THAT(run.changes, IsEmpty());
  }
}

TEST_F(UplinkClientsTest, AChildThatIsNotListedIsDroppedAndCounted) {
  const RunResult run = SplitAtUplink(Query(1));
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4:not_a_client", 1)));
  const RunResult refused = SplitAtUplink(PacketBuilder(kChild4, kDns4).Tcp(kClientPort, 853, kTcpSyn).Build());
  EXPECT_EQ(refused.verdict, kDropped) << "strangers are told nothing";
}

TEST_F(UplinkClientsTest, AChildUnderAnAddressOfThisHostIsNotThisHost) {
  ASSERT_TRUE(plane().config().SetOwnAddresses({kClient4}).ok());
  const Bytes query = PacketBuilder(kClient4, kDns4).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build();
  const RunResult run = SplitAtUplink(query);
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4:not_a_client", 1)));
  ASSERT_TRUE(plane().config().SetOwnAddresses({}).ok());
}

// Its answers go on where they came in: the proxy interface does not lead to the child.
TEST_F(UplinkClientsTest, AListedChildIsServedAndItsAnswersGoOnInTheVipsName) {
  ListChild();
  const RunResult sent = SplitAtUplink(Query(1));
  EXPECT_EQ(sent.verdict, kRedirected);
  EXPECT_EQ(Read(sent.packet).destination, kA4);
  const RunResult answer = Reply(Answer(kA4, 1));
  EXPECT_EQ(answer.verdict, kUntouched) << "to whatever stands next at this interface";
  EXPECT_EQ(
      Layer3(answer.packet),
      Layer3(
          PacketBuilder(kDns4, kChild4).Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org"))).Build()));
  EXPECT_EQ(ChecksumFault(answer.packet), "");
  EXPECT_EQ(answer.changes.at("dns4.won_by_first"), 1);
}

TEST_F(UplinkClientsTest, TheAnswerToAHedgeGoesTheSameWayAndTheLoserIsDropped) {
  ListChild();
  SplitAtUplink(Query(1));
  const uint32_t request = FindRequest(kDns4Service, kChild4, kClientPort, {0, 1});
  ASSERT_NE(request, 0u);
  FireNow(request);
  const RunResult answer = Reply(Answer(kB4, 1));
  EXPECT_EQ(answer.verdict, kUntouched);
  EXPECT_EQ(Read(answer.packet).source, kDns4);
  EXPECT_EQ(answer.changes.at("dns4.won_by_hedge"), 1);
  EXPECT_EQ(Reply(Answer(kA4, 1)).verdict, kDropped);
}

TEST_F(UplinkClientsTest, TheLastErrorStaysInPlaceAndIsAboutTheVip) {
  ListChild();
  SplitAtUplink(Query(1));
  const auto unreachable = [&](const char *backend) {
    const Bytes quote =
        Layer3(PacketBuilder(kChild4, backend).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build());
    return PacketBuilder(backend, kChild4).IcmpError(3, 13, quote).Build();
  };
  const RunResult nack = Reply(unreachable(kA4));
  Clock(nack.packet, {.mark = nack.mark});
  const RunResult last = Reply(unreachable(kB4));
  EXPECT_EQ(last.verdict, kUntouched);
  EXPECT_EQ(Read(last.packet).source, kB4) << "a source that reverse-path filtering lets in here";
  EXPECT_EQ(ChecksumFault(last.packet), "");
  Bytes inner(kEthernetBytes);
  const Bytes quoted = Read(last.packet).payload;
  inner.insert(inner.end(), quoted.begin(), quoted.end());
  EXPECT_EQ(Read(inner).destination, kDns4);
}

// ---- The route to the VIP leads by the uplink (docs/adr/0055)
// -----------------------------------------------------------

class RoutedByUplinkTest : public UplinkClientsTest {
 protected:
  void SetUp() override {
    UplinkClientsTest::SetUp();
    RouteBy(TestLinks::Get().uplink.ifindex);
    ASSERT_TRUE(plane().config().SetOwnAddresses({kClient4, kClient6}).ok());
  }
  void TearDown() override {
    ASSERT_TRUE(plane().config().RouteVip(kDns4, 0).ok());
    ASSERT_TRUE(plane().config().SetOwnAddresses({}).ok());
    UplinkClientsTest::TearDown();
  }
  void RouteBy(int ifindex) { ASSERT_TRUE(plane().config().RouteVip(kDns4, static_cast<uint32_t>(ifindex)).ok()); }
  static Bytes OwnQuery(uint16_t id) {
    return PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build();
  }
  static Bytes AnswerToOwn(const char *backend, uint16_t id) {
    return PacketBuilder(backend, kClient4)
        .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org")))
        .Build();
  }
};

// As of a group of sockets with one port, and of the kernel itself.
TEST_F(RoutedByUplinkTest, WithAnAddressOfThisHostAPacketIsItsOwnWhateverItsSocket) {
  const RunResult sent = SplitAtUplink(OwnQuery(1));
  EXPECT_EQ(sent.verdict, kRedirected);
  EXPECT_EQ(Read(sent.packet).destination, kA4);
  EXPECT_FALSE(sent.changes.contains("dns4:not_a_client"));
  const RunResult answer = Reply(AnswerToOwn(kA4, 1));
  EXPECT_EQ(answer.verdict, kUntouched) << "it goes on where it came in";
  EXPECT_EQ(Layer3(answer.packet), Layer3(PacketBuilder(kDns4, kClient4)
                                              .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org")))
                                              .Build()));
  EXPECT_EQ(ChecksumFault(answer.packet), "");
}

TEST_F(RoutedByUplinkTest, AnotherSourceIsAStrangersThereToo) {
  const RunResult child = SplitAtUplink(Query(1));
  EXPECT_EQ(child.verdict, kDropped);
  EXPECT_THAT(child.changes, UnorderedElementsAre(Pair("dns4:not_a_client", 1)));
  ListChild();
  EXPECT_EQ(SplitAtUplink(Query(2)).verdict, kRedirected);
  EXPECT_EQ(Reply(Answer(kA4, 2)).verdict, kUntouched);
}

// With a tag that only the proxy knows; the reply program there lets nothing else in under a VIP's name.
TEST_F(RoutedByUplinkTest, AnAnswerByAnotherUplinkEntersByTheOneThatLeads) {
  EXPECT_EQ(SplitAtUplink(OwnQuery(1)).verdict, kRedirected);
  RouteBy(TestLinks::Get().proxy.ifindex + 1000);
  const RunResult given = Reply(AnswerToOwn(kA4, 1));
  EXPECT_EQ(given.verdict, kRedirected);
  EXPECT_EQ(Read(given.packet).source, kDns4);
  const RunResult entered = Reply(given.packet);
  EXPECT_EQ(entered.verdict, kUntouched);
  EXPECT_THAT(entered.changes, IsEmpty());
  EXPECT_NE(Bytes(entered.packet.begin(), entered.packet.begin() + 6),
            Bytes(given.packet.begin(), given.packet.begin() + 6))
      << "the tag";
  Bytes forged = given.packet;
  forged[0] ^= 1;
  EXPECT_EQ(Reply(forged).verdict, kDropped);
}

// It is found there alone.
TEST_F(RoutedByUplinkTest, AChildOfAnotherUplinkGetsItsAnswersThere) {
  ListChild();
  RouteBy(TestLinks::Get().proxy.ifindex + 1000);
  EXPECT_EQ(SplitAtUplink(Query(1)).verdict, kRedirected);
  EXPECT_EQ(Reply(Answer(kA4, 1)).verdict, kUntouched);
}

TEST_F(RoutedByUplinkTest, WhatLeftByTheProxyInterfaceBeforeComesBackThere) {
  EXPECT_EQ(Split(OwnQuery(1)).verdict, kRedirected);
  EXPECT_EQ(Reply(AnswerToOwn(kA4, 1)).verdict, kRedirected);
}

TEST_F(RoutedByUplinkTest, PortsWithoutAServiceAndPingsAreAnswered) {
  const RunResult refused = SplitAtUplink(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, 853, kTcpSyn).Build());
  EXPECT_EQ(refused.verdict, kRedirected);
  EXPECT_EQ(refused.changes.at("host.refusals"), 1);
  EXPECT_EQ(Reply(refused.packet).verdict, kUntouched) << "it enters by the uplink";
  ListChild();
  const Bytes from_child = PacketBuilder(kChild4, kDns4).Tcp(kClientPort, 853, kTcpSyn).Build();
  const RunResult childs = SplitAtUplink(from_child);
  EXPECT_EQ(childs.verdict, kRedirected);
  const RunResult entered = Reply(childs.packet);
  EXPECT_EQ(entered.verdict, kUntouched);
  EXPECT_TRUE(std::equal(entered.packet.begin(), entered.packet.begin() + 6, from_child.begin() + 6))
      << "to the child's own address";
}

TEST_F(RoutedByUplinkTest, SeveralDatagramsInOnePacketComeBackToTheUplink) {
  const int uplink = TestLinks::Get().uplink.ifindex;
  const RunResult run = Split(OwnQuery(1), {.mark = 0x1234567, .gso_segs = 3, .gso_size = 40, .ifindex = uplink});
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(run.mark, HR_MARK_SEGMENT_OUT | static_cast<uint32_t>(uplink));
  EXPECT_EQ(Clock(run.packet, {.mark = run.mark}).mark, 0x1234567u);
}

}  // namespace
}  // namespace hedgerow::packets
