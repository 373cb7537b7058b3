// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER, who may use a VIP: sockets of this host always, and what this host forwards from the networks that the
// service lists.
#include "absl/strings/str_cat.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr RunContext kForwarded = {.ingress_ifindex = 1};

class ClientsTest : public PacketTest {
 protected:
  void ExpectDropped(const Bytes &packet, const std::string &reason = "dns4:not_a_client") {
    const RunResult run = Split(packet, kForwarded);
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair(reason, 1)));
  }
  static Bytes Query4(const char *from, uint16_t id = 1) {
    return PacketBuilder(from, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build();
  }
};

TEST_F(ClientsTest, AVipServesItsHostAlone) {
  EXPECT_EQ(Split(DnsRequest4(1)).verdict, kRedirected);
  ExpectDropped(DnsRequest4(2));
  EXPECT_EQ(FindDns(2), 0u) << "no place is taken";
  ExpectDropped(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
  ExpectDropped(PacketBuilder(kClient4, kDns4).Echo(false, 1, Text("ping")).Build());
  ExpectDropped(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build(),
                "dns6:not_a_client");
  ExpectDropped(PacketBuilder(kClient6, kDns6).Echo(false, 1, Text("ping")).Build(), "dns6:not_a_client");
}

TEST_F(ClientsTest, AListedNetworkIsServedToTheBit) {
  List(kDns4Service, {"10.78.0.0/25", "192.0.2.7"});
  EXPECT_EQ(Split(Query4("10.78.0.127"), kForwarded).verdict, kRedirected);
  EXPECT_EQ(Split(Query4("192.0.2.7"), kForwarded).verdict, kRedirected);
  ExpectDropped(Query4("10.78.0.128"));
  ExpectDropped(Query4("192.0.2.6"));
  const Bytes ping = PacketBuilder("10.78.0.1", kDns4).Echo(false, 1, Text("ping")).Build();
  EXPECT_EQ(Split(ping, kForwarded).verdict, kRedirected);
  List(kDns6Service, {"fd78::/64"});
  EXPECT_EQ(
      Split(PacketBuilder("fd78::5", kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.b")).Build(), kForwarded).verdict,
      kRedirected);
  ExpectDropped(PacketBuilder("fd78:0:0:1::5", kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.b")).Build(),
                "dns6:not_a_client");
}

// MASQUERADE and SNAT give it to what a container sends. IPv6 lets a neighbour's packet with it pass as well, so there
// a service lists it.
TEST_F(ClientsTest, WhatThisHostHidesBehindItsOwnAddressIsServed) {
  ASSERT_TRUE(plane().config().SetOwnAddresses({kClient4, kClient6}).ok());
  EXPECT_EQ(Split(DnsRequest4(1), kForwarded).verdict, kRedirected);
  EXPECT_EQ(Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build(), kForwarded).verdict,
            kRedirected);
  EXPECT_EQ(Split(PacketBuilder(kClient4, kDns4).Echo(false, 1, Text("ping")).Build(), kForwarded).verdict,
            kRedirected);
  ExpectDropped(Query4("10.77.0.2"));
  const Bytes query6 =
      PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build();
  ExpectDropped(query6, "dns6:not_a_client");
  List(kDns6Service, {kClient6});
  EXPECT_EQ(Split(query6, kForwarded).verdict, kRedirected);
  ASSERT_TRUE(plane().config().SetOwnAddresses({}).ok());
}

TEST_F(ClientsTest, EveryPlaceOfTheListCounts) {
  std::vector<std::string> texts;
  std::vector<const char *> networks;
  for (int i = 0; i < HR_MAX_CLIENT_NETWORKS; ++i) texts.push_back(absl::StrCat("10.", 100 + i, ".0.0/16"));
  for (const std::string &text : texts) networks.push_back(text.c_str());
  List(kDns4Service, networks);
  for (int i = 0; i < HR_MAX_CLIENT_NETWORKS; ++i) {
    const std::string source = absl::StrCat("10.", 100 + i, ".3.4");
    EXPECT_EQ(Split(Query4(source.c_str()), kForwarded).verdict, kRedirected) << source;
  }
  ExpectDropped(Query4("10.116.0.1"));
}

TEST_F(ClientsTest, FragmentsOfADroppedDatagramFollowNoFirst) {
  const std::vector<Bytes> fragments =
      PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, Pattern(3000, 1)).BuildFragments(1400, 7);
  ExpectDropped(fragments[0]);
  const RunResult later = Split(fragments[1], kForwarded);
  EXPECT_EQ(later.verdict, kUntouched) << "the sink's";
  EXPECT_THAT(later.changes, Contains(Pair("host:fragment_no_first", 1)));
}

TEST_F(ClientsTest, WhatIsForwardedToNoServiceIsLeftAlone) {
  const RunResult run =
      Split(PacketBuilder(kClient4, "10.99.0.99").Udp(kClientPort, 53, Text("x")).Build(), kForwarded);
  EXPECT_EQ(run.verdict, kUntouched);
  EXPECT_THAT(run.changes, IsEmpty());
}

}  // namespace
}  // namespace hedgerow::packets
