// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER and SINK, everything that is no hedged request: TCP, pings, later fragments, what is for no service,
// and what cannot be parsed. "Untouched" means TC_ACT_UNSPEC and not one byte changed.
#include <netinet/in.h>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"

namespace hedgerow::packets {
namespace {

class SplitterOtherTest : public PacketTest {
 protected:
  void ExpectUntouched(const Bytes &packet, const Changes &changes) {
    const RunResult run = Split(packet);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, packet);
    EXPECT_EQ(run.changes, changes);
  }
  static Bytes Tcp4(uint8_t flags, uint16_t port = kClientPort, uint32_t number = 1000) {
    return PacketBuilder(kClient4, kDns4).Tcp(port, kDnsPort, flags, {}, number).Build();
  }
};

TEST_F(SplitterOtherTest, ATcpConnectionGoesToTheLeader) {
  const RunResult run = Split(Tcp4(kTcpSyn));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet), Layer3(PacketBuilder(kClient4, kA4).Tcp(kClientPort, 53, kTcpSyn).Build()));
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.tcp_packets", 1)));
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_CONNECTION, kDns4Service));
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kDns4A));
}

TEST_F(SplitterOtherTest, ATcpConnectionOverIpv6GoesToTheLeadersPort) {
  const RunResult run = Split(PacketBuilder(kClient6, kDns6).Tcp(kClientPort, kDnsPort, kTcpSyn, Text("abc")).Build());
  EXPECT_EQ(Layer3(run.packet),
            Layer3(PacketBuilder(kClient6, kA6).Tcp(kClientPort, kBackendDnsPort6, kTcpSyn, Text("abc")).Build()));
}

TEST_F(SplitterOtherTest, ATcpConnectionKeepsItsBackendWhenTheLeaderChanges) {
  Split(Tcp4(kTcpSyn));
  Reply(PacketBuilder(kA4, kClient4).Tcp(kDnsPort, kClientPort, kTcpSynAck).Build());
  ASSERT_TRUE(plane().policy().PinLeader("dns4", "b").ok());
  EXPECT_EQ(Read(Split(Tcp4(kTcpAck)).packet).destination, kA4);
  EXPECT_EQ(Read(Split(Tcp4(kTcpSyn, 40001)).packet).destination, kB4) << "a new connection";
  EXPECT_EQ(Read(Split(Tcp4(kTcpSyn)).packet).destination, kA4) << "the network has doubled it";
  EXPECT_EQ(Read(Split(Tcp4(kTcpSyn, kClientPort, 7000)).packet).destination, kB4)
      << "a new connection from the same port";
  EXPECT_EQ(Read(Split(Tcp4(kTcpAck)).packet).destination, kB4);
}

TEST_F(SplitterOtherTest, AForgottenTcpConnectionGoesToTheLeader) {
  EXPECT_EQ(Read(Split(Tcp4(kTcpAck)).packet).destination, kA4);
}

TEST_F(SplitterOtherTest, ATcpSegmentOfManyIsRewrittenToo) {
  const Bytes packet = PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpAck, Pattern(2400, 1)).Build();
  const RunResult run = Split(packet, {.gso_segs = 2, .gso_size = 1200});
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(ChecksumFault(run.packet), "");
}

TEST_F(SplitterOtherTest, AVipAnswersPing) {
  const RunResult run = Split(PacketBuilder(kClient4, kDns4).Echo(false, 77, Text("are you there?")).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet), Layer3(PacketBuilder(kDns4, kClient4).Echo(true, 77, Text("are you there?")).Build()));
  EXPECT_EQ(Read(run.packet).destination_mac, TestLinks::Get().proxy.mac);
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("host.pings", 1)));
}

TEST_F(SplitterOtherTest, AVipAnswersPingOverIpv6) {
  for (size_t bytes : {0, 1, 56, 1400}) {
    const RunResult run = Split(PacketBuilder(kClient6, kDns6).Echo(false, 77, Pattern(bytes, 1)).Build());
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Layer3(run.packet), Layer3(PacketBuilder(kDns6, kClient6).Echo(true, 77, Pattern(bytes, 1)).Build()));
    EXPECT_EQ(ChecksumFault(run.packet), "");
  }
}

TEST_F(SplitterOtherTest, OtherIcmpAndPingsToOthersStayUntouched) {
  ExpectUntouched(PacketBuilder(kClient4, kDns4).Echo(true, 77, Text("reply")).Build(), {});
  ExpectUntouched(PacketBuilder(kClient4, "10.99.0.99").Echo(false, 77, Text("ping")).Build(), {});
  ExpectUntouched(PacketBuilder(kClient6, "fd99::99").Echo(false, 77, Text("ping")).Build(), {});
}

TEST_F(SplitterOtherTest, LaterFragmentsFollowTheirFirst) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    auto request = ipv6 ? PacketBuilder(kClient6, kRaw6) : PacketBuilder(kClient4, kRaw4);
    auto expected = ipv6 ? PacketBuilder(kClient6, kA6) : PacketBuilder(kClient4, kA4);
    const char *name = ipv6 ? "raw6" : "raw4";
    const auto sent = request.Udp(kClientPort, kRawPort, Pattern(3000, 1)).BuildFragments(1400, 0x4242);
    const auto wanted = expected.Udp(kClientPort, kRawPort, Pattern(3000, 1)).BuildFragments(1400, 0x4242);
    ASSERT_EQ(sent.size(), 3u);
    // The leader changes in between: the datagram must not be torn apart.
    EXPECT_EQ(Layer3(Split(sent[0]).packet), Layer3(wanted[0]));
    ASSERT_TRUE(plane().policy().PinLeader(name, "b").ok());
    for (const size_t i : {2, 1}) {
      const RunResult run = Split(sent[i]);
      EXPECT_EQ(run.verdict, kRedirected);
      EXPECT_EQ(Layer3(run.packet), Layer3(wanted[i]));
      EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair(std::string(name) + ".later_fragments", 1)));
    }
  }
}

TEST_F(SplitterOtherTest, ALaterFragmentWithoutItsFirstStaysUntouched) {
  const auto fragments =
      PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(100, 1)).BuildFragments(64, 0x4242);
  ExpectUntouched(fragments[1], {{"host:fragment_no_first", 1}});
}

TEST_F(SplitterOtherTest, WhenTheFragmentMapIsFullTheOldestDatagramIsForgotten) {
  auto fragments = [](uint32_t id) {
    return PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(100, 1)).BuildFragments(64, id);
  };
  Split(fragments(1)[0]);
  for (uint32_t id = 100; id < 1124; ++id) Split(fragments(id)[0]);  // four times as many as there are places
  ExpectUntouched(fragments(1)[1], {{"host:fragment_no_first", 1}});
  EXPECT_EQ(Split(fragments(1123)[1]).verdict, kRedirected);
}

TEST_F(SplitterOtherTest, WhatIsForNoVipStaysUntouched) {
  ExpectUntouched(PacketBuilder(kClient4, "10.99.0.99").Udp(kClientPort, 53, Text("wrong address")).Build(), {});
  ExpectUntouched(PacketBuilder(kClient6, "fd99::99").Tcp(kClientPort, 53, kTcpSyn).Build(), {});
}

TEST_F(SplitterOtherTest, WhatIsNotIpStaysUntouched) {
  Bytes arp(60);
  arp[12] = 0x08;
  arp[13] = 0x06;
  ExpectUntouched(arp, {{"host:malformed", 1}});
}

TEST_F(SplitterOtherTest, MalformedPacketsStayUntouched) {
  const auto udp = [] { return PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.org")); };
  auto changed = [&](size_t offset, uint8_t value) {
    Bytes packet = udp().Build();
    packet[kEthernetBytes + offset] = value;
    return packet;
  };
  const Bytes good = udp().Build();
  struct {
    const char *what;
    Bytes packet;
  } const cases[] = {
      {"IPv4 header length below 20", changed(0, 0x44)},
      {"version 5", changed(0, 0x55)},
      {"total length above the packet", changed(3, static_cast<uint8_t>(good.size()))},
      {"total length below the header", changed(3, 19)},
      {"total length that cuts the UDP header off", changed(3, 27)},
      {"UDP length below its header", udp().UdpLength(7).Build()},
      {"UDP length 0", udp().UdpLength(0).Build()},
      {"UDP length above the packet", udp().UdpLength(static_cast<uint16_t>(good.size())).Build()},
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(each.what);
    ExpectUntouched(each.packet, {{"host:malformed", 1}});
  }
}

// Cut off at every byte: a packet that lies about its length is never read beyond its end, and never changed.
TEST_F(SplitterOtherTest, PacketsCutShortStayUntouched) {
  for (const Bytes &whole : {PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.org")).Build(),
                             PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.org")).Build(),
                             PacketBuilder(kClient6, kDns6).Tcp(kClientPort, kDnsPort, kTcpSyn).Build(),
                             PacketBuilder(kClient4, kDns4).Echo(false, 1, Text("ping")).Build()}) {
    // Below the IP header the kernel refuses to run the program at all.
    for (size_t bytes = kEthernetBytes + 40; bytes < whole.size(); ++bytes) {
      const Bytes packet = CutTo(whole, bytes);
      SCOPED_TRACE(bytes);
      ExpectUntouched(packet, {{"host:malformed", 1}});
    }
  }
}

TEST_F(SplitterOtherTest, EthernetPaddingIsNoPartOfTheRequest) {
  Bytes packet = PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 2, 3, 4}).Build();
  const size_t l3_bytes = packet.size() - kEthernetBytes;
  packet.resize(60, 0xee);
  EXPECT_EQ(Split(packet).changes.at("raw4.requests"), 1);
  EXPECT_EQ(Request(FindRequest(kRaw4Service, kClient4, kClientPort, {1, 2, 3, 4})).parked_bytes, l3_bytes);
}

TEST_F(SplitterOtherTest, TheSinkDropsWhatReachesTheFarEnd) {
  const RunResult run = Sink(PacketBuilder(kClient4, "10.99.0.99").Udp(1, 2, {}).Build());
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("host:sink", 1)));
}

// A router says that an answer was too large: the backend hears it, as if it had been asked directly.
TEST_F(SplitterOtherTest, AnErrorAboutAnAnswerGoesToTheBackendOfItsConnection) {
  struct {
    const char *router, *client, *vip, *backend;
    uint16_t port;
    uint8_t type, code;
    const char *counter;
  } const cases[] = {{"10.77.0.254", kClient4, kDns4, kA4, 53, 3, 4, "dns4.icmp_translated"},
                     {"fd77::fe", kClient6, kDns6, kA6, kBackendDnsPort6, 2, 0, "dns6.icmp_translated"}};
  for (const auto &each : cases) {
    SCOPED_TRACE(each.vip);
    // As far as the sequence number: what is quoted keeps its checksum.
    const auto error = [&each](const char *from, uint16_t port, const char *to) {
      const Bytes quoted = Layer3(PacketBuilder(from, each.client).Tcp(port, kClientPort, kTcpAck).Build());
      const size_t bytes = (quoted[0] >> 4 == 4 ? 20 : 40) + 8;
      const Bytes cut(quoted.begin(), quoted.begin() + static_cast<ptrdiff_t>(bytes));
      return PacketBuilder(each.router, to).IcmpError(each.type, each.code, cut, 1280).Build();
    };
    EXPECT_EQ(Sink(error(each.vip, kDnsPort, each.vip)).verdict, kDropped) << "no such connection";
    Split(PacketBuilder(each.client, each.vip).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
    const RunResult run = Sink(error(each.vip, kDnsPort, each.vip));
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair(each.counter, 1)));
    EXPECT_EQ(Layer3(run.packet), Layer3(error(each.backend, each.port, each.backend)));
    EXPECT_EQ(ChecksumFault(run.packet), "");
    EXPECT_EQ(Sink(error(each.vip, kDnsPort + 1, each.vip)).verdict, kDropped) << "of no service";
    EXPECT_EQ(Sink(error(each.backend, each.port, each.vip)).verdict, kDropped) << "about another packet";
  }
}

}  // namespace
}  // namespace hedgerow::packets
