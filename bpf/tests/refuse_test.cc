// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER, ports of a VIP without a service: what a host says at a closed port, with every checksum complete, also
// where the packet came with one that a device should have finished.
#include <arpa/inet.h>
#include <netinet/tcp.h>

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"

namespace hedgerow::packets {
namespace {

using ::testing::Pair;

constexpr uint16_t kClosedPort = 853;
constexpr uint8_t kTcpRst = 0x04, kTcpFin = 0x01;

class RefuseTest : public PacketTest {
 protected:
  static tcphdr TcpOf(const Bytes &frame, bool ipv6) {
    tcphdr header{};
    const size_t offset = kEthernetBytes + (ipv6 ? 40 : 20);
    EXPECT_EQ(frame.size(), offset + sizeof(header)) << "nothing but the headers";
    if (frame.size() >= offset + sizeof(header)) memcpy(&header, frame.data() + offset, sizeof(header));
    return header;
  }
  void ExpectRefusal(const RunResult &run, const char *vip, const char *client) {
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("host.refusals", 1)));
    EXPECT_EQ(Read(run.packet).source, vip);
    EXPECT_EQ(Read(run.packet).destination, client);
    EXPECT_EQ(Read(run.packet).destination_mac, TestLinks::Get().proxy.mac);
    EXPECT_EQ(ChecksumFault(run.packet), "");
  }
  static PacketBuilder From(bool ipv6) {
    return ipv6 ? PacketBuilder(kClient6, kDns6) : PacketBuilder(kClient4, kDns4);
  }
};

TEST_F(RefuseTest, ASynIsReset) {
  for (const bool ipv6 : {false, true}) {
    for (const Checksum checksum : {Checksum::kRight, Checksum::kPartial}) {
      for (const size_t payload : {0, 5, 1000}) {
        SCOPED_TRACE(absl::StrCat(ipv6 ? "IPv6 " : "IPv4 ", payload));
        const Bytes syn = From(ipv6).Tcp(kClientPort, kClosedPort, kTcpSyn, Pattern(payload, 1)).With(checksum).Build();
        const RunResult run = Split(syn);
        ExpectRefusal(run, ipv6 ? kDns6 : kDns4, ipv6 ? kClient6 : kClient4);
        tcphdr asked{};
        memcpy(&asked, syn.data() + kEthernetBytes + (ipv6 ? 40 : 20), sizeof(asked));
        const tcphdr reset = TcpOf(run.packet, ipv6);
        EXPECT_EQ(ntohs(reset.source), kClosedPort);
        EXPECT_EQ(ntohs(reset.dest), kClientPort);
        EXPECT_TRUE(reset.rst && reset.ack && !reset.syn && !reset.fin);
        EXPECT_EQ(reset.seq, 0u);
        EXPECT_EQ(ntohl(reset.ack_seq), ntohl(asked.seq) + 1 + payload);
      }
    }
  }
}

// RFC 9293: where the segment acknowledges something, the reset has that as its sequence number and acknowledges
// nothing.
TEST_F(RefuseTest, ASegmentOfAConnectionIsResetInItsWindow) {
  const Bytes segment = From(false).Tcp(kClientPort, kClosedPort, kTcpAck, Text("data")).Build();
  const RunResult run = Split(segment);
  ExpectRefusal(run, kDns4, kClient4);
  tcphdr asked{};
  memcpy(&asked, segment.data() + kEthernetBytes + 20, sizeof(asked));
  const tcphdr reset = TcpOf(run.packet, false);
  EXPECT_TRUE(reset.rst && !reset.ack);
  EXPECT_EQ(reset.seq, asked.ack_seq);
  ExpectRefusal(Split(From(false).Tcp(kClientPort, kClosedPort, kTcpAck, Pattern(2400, 1)).Build(),
                      {.gso_segs = 2, .gso_size = 1200}),
                kDns4, kClient4);
}

// ---- No route to a backend
// ----------------------------------------------------------------------------------------------

constexpr uint64_t kAllPlaces = 0xff;

class UnroutedTest : public RefuseTest {
 protected:
  void SetUp() override {
    RefuseTest::SetUp();
    Unroute(kAllPlaces);
  }
  void Unroute(uint64_t places, int64_t for_ns = 60'000'000'000) {
    const uint64_t until_ns = static_cast<uint64_t>(static_cast<int64_t>(NowNs()) + for_ns);
    for (const auto service : {kDns4Service, kDns6Service})
      ServicePolicy(service).unrouted = (until_ns & ~HR_UNROUTED_PLACES) | places;
  }
  static Bytes Query(bool ipv6, uint16_t id) {
    return From(ipv6).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build();
  }
};

TEST_F(UnroutedTest, ADatagramIsToldSoInAWayThatConnectedSocketsHear) {
  for (const bool ipv6 : {false, true}) {
    const Bytes sent = Query(ipv6, 1);
    const RunResult run = Split(sent);
    EXPECT_EQ(run.verdict, kRedirected);
    const std::string service = ipv6 ? "dns6" : "dns4";
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair(service + ".requests", 1), Pair(service + ".unrouted", 1),
                                                  Pair(service + ":no_route", 1)));
    const PacketView view = Read(run.packet);
    EXPECT_EQ(view.source, ipv6 ? kDns6 : kDns4);
    EXPECT_EQ(view.icmp_type, ipv6 ? 1 : 3);
    EXPECT_EQ(view.icmp_code, ipv6 ? 4 : 6);
    EXPECT_EQ(ChecksumFault(run.packet), "");
    const Bytes whole = Layer3(sent);
    EXPECT_EQ(view.payload, Bytes(whole.begin(), whole.begin() + (ipv6 ? 48 : 28)));
  }
}

TEST_F(UnroutedTest, AConnectionThatOpensIsResetAndOneThatStandsIsNot) {
  for (const bool ipv6 : {false, true}) {
    const RunResult opens = Split(From(ipv6).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
    EXPECT_EQ(opens.verdict, kRedirected);
    EXPECT_TRUE(TcpOf(opens.packet, ipv6).rst);
    const RunResult stands = Split(From(ipv6).Tcp(kClientPort, kDnsPort, kTcpAck, Text("data")).Build());
    EXPECT_EQ(stands.verdict, kRedirected);
    EXPECT_EQ(Read(stands.packet).icmp_type, ipv6 ? 1 : 3);
  }
}

TEST_F(UnroutedTest, WhileThereIsARouteToAnotherBackendItGoesThere) {
  Unroute(0b001);
  for (uint16_t id = 1; id <= 200; ++id) EXPECT_EQ(Read(Split(Query(false, id)).packet).destination, kB4);
  EXPECT_EQ(Read(Split(From(false).Tcp(kClientPort, kDnsPort, kTcpSyn).Build()).packet).destination, kB4);
}

TEST_F(UnroutedTest, ARequestWithoutARouteEarnsNoHedge) {
  ServiceState(kDns4Service).budget_micros = 0;
  Split(Query(false, 1));
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 0);
  Unroute(0);
  Split(Query(false, 2));
  EXPECT_GT(ServiceState(kDns4Service).budget_micros, 0);
}

TEST_F(UnroutedTest, TheDaemonsWordEnds) {
  Unroute(kAllPlaces, /*for_ns=*/-1'000'000);
  EXPECT_EQ(Read(Split(Query(false, 1)).packet).destination, kA4);
}

TEST_F(RefuseTest, AResetGetsNoAnswer) {
  for (const uint8_t flags :
       {kTcpRst, static_cast<uint8_t>(kTcpRst | kTcpAck), static_cast<uint8_t>(kTcpRst | kTcpFin)}) {
    const RunResult run = Split(From(false).Tcp(kClientPort, kClosedPort, flags).Build());
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.changes, IsEmpty());
  }
}

TEST_F(RefuseTest, ADatagramGetsPortUnreachableThatQuotesIt) {
  for (const bool ipv6 : {false, true}) {
    for (const Checksum checksum : {Checksum::kRight, Checksum::kPartial}) {
      for (const size_t payload : {0, 1, 40, 1400}) {
        SCOPED_TRACE(absl::StrCat(ipv6 ? "IPv6 " : "IPv4 ", payload));
        const Bytes sent = From(ipv6).Udp(kClientPort, kClosedPort, Pattern(payload, 1)).With(checksum).Build();
        const RunResult run = Split(sent);
        ExpectRefusal(run, ipv6 ? kDns6 : kDns4, ipv6 ? kClient6 : kClient4);
        const PacketView view = Read(run.packet);
        EXPECT_EQ(view.icmp_type, ipv6 ? 1 : 3);
        EXPECT_EQ(view.icmp_code, ipv6 ? 4 : 3);
        const Bytes whole = Layer3(sent);
        EXPECT_EQ(view.payload, Bytes(whole.begin(), whole.begin() + (ipv6 ? 48 : 28)))
            << "headers and 8 bytes, RFC 792";
      }
    }
  }
}

// As the kernel limits its own: a burst of 50, then 1,000 a second. What is beyond goes the way of before, to the sink.
TEST_F(RefuseTest, PortUnreachablesAreLimitedAndResetsAreNot) {
  const Bytes datagram = From(false).Udp(kClientPort, kClosedPort, Text("x")).Build();
  int said = 0;
  RunResult run;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000 && (run = Split(datagram)).verdict == kRedirected; ++i) ++said;
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_GE(said, 50);
  EXPECT_LE(said, 50 + 1000 * elapsed_s + 2) << "in " << elapsed_s << " s";
  EXPECT_EQ(run.verdict, kUntouched);
  EXPECT_EQ(run.packet, datagram);
  EXPECT_THAT(run.changes, IsEmpty()) << "the sink counts it";
  EXPECT_EQ(Split(From(false).Tcp(kClientPort, kClosedPort, kTcpSyn).Build()).verdict, kRedirected);
  Advance(kSecond);
  EXPECT_EQ(Split(datagram).verdict, kRedirected);
}

TEST_F(RefuseTest, StrangersAreToldNothing) {
  for (const Bytes &packet : {From(false).Udp(kClientPort, kClosedPort, {}).Build(),
                              From(false).Tcp(kClientPort, kClosedPort, kTcpSyn).Build()}) {
    const RunResult run = Split(packet, {.ingress_ifindex = 1});
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4:not_a_client", 1)));
  }
}

TEST_F(RefuseTest, WhatIsNoWholePlainPacketToAVipGetsNoAnswer) {
  const Bytes fragments = From(false).Udp(kClientPort, kClosedPort, Pattern(100, 1)).BuildFragments(64, 7)[0];
  for (const Bytes &packet :
       {fragments, From(false).Ipv4Options({1, 1, 1, 1}).Udp(kClientPort, kClosedPort, {}).Build(),
        PacketBuilder(kClient4, "10.99.0.99").Tcp(kClientPort, kClosedPort, kTcpSyn).Build()}) {
    const RunResult run = Split(packet);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, packet);
  }
}

}  // namespace
}  // namespace hedgerow::packets
