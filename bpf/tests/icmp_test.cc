// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// REPLY, ICMP errors about packets that went out in a VIP's name: "unreachable" of any code is the fastest nack;
// whatever reaches the client is about client -> VIP, with right checksums outside and inside.
#include <netinet/in.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"

namespace hedgerow::packets {
namespace {

using ::testing::Pair;

constexpr char kRouter4[] = "10.77.0.254";
constexpr char kRouter6[] = "fd77::fe";

// What is quoted of the request, as the uplink saw it (client -> backend); `limit` cuts it.
Bytes Quote(PacketBuilder sent, size_t limit = 548) {
  const Bytes l3 = Layer3(sent.Build());
  return Bytes(l3.begin(), l3.begin() + static_cast<ptrdiff_t>(std::min(limit, l3.size())));
}

class IcmpTest : public PacketTest {
 protected:
  static PacketBuilder Sent4(const char *to, uint16_t id = 1) {
    return PacketBuilder(kClient4, to).Udp(kClientPort, 53, DnsQuery(id, "www.example.org"));
  }
  static PacketBuilder Sent6(const char *to, uint16_t port, uint16_t id = 1) {
    return PacketBuilder(kClient6, to).Udp(kClientPort, port, DnsQuery(id, "www.example.org"));
  }
  static Bytes Unreachable4(const char *from, Bytes quote) {
    return PacketBuilder(from, kClient4).IcmpError(3, 3, quote).Build();
  }
  static Bytes Unreachable6(const char *from, Bytes quote) {
    return PacketBuilder(from, kClient6).IcmpError(1, 4, quote).Build();
  }
};

TEST_F(IcmpTest, PortUnreachableIsANackAndASuspicion) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult nack = Reply(Unreachable4(kA4, Quote(Sent4(kA4))));
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_EQ(nack.mark, HR_MARK_RELEASE | request);
  EXPECT_THAT(nack.changes,
              UnorderedElementsAre(Pair("dns4.nacks_swallowed", 1), Pair("dns4:nack", 1), Pair("dns4.suspected", 1)));
  EXPECT_EQ(BackendState(kDns4A).health, HR_SUSPECT);
  const RunResult sent = Clock(nack.packet, {.mark = nack.mark});
  EXPECT_EQ(Layer3(sent.packet), Layer3(Sent4(kB4).Build())) << "the spent error became the next attempt";
  EXPECT_EQ(ChecksumFault(sent.packet), "");
}

TEST_F(IcmpTest, AnErrorThatTheKernelWouldDropCountsForNothing) {
  Split(DnsRequest4(1));
  Bytes error = Unreachable4(kA4, Quote(Sent4(kA4)));
  error.back() ^= 1;
  const RunResult run = Reply(error);
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4:bad_checksum", 1)));
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build());
  error = Unreachable6(kA6, Quote(Sent6(kA6, kBackendDnsPort6)));
  error.back() ^= 1;
  EXPECT_THAT(Reply(error).changes, UnorderedElementsAre(Pair("dns6:bad_checksum", 1)));
  EXPECT_EQ(BackendState(kDns6A).health, HR_HEALTHY);
}

struct Unreachable {
  bool ipv6;
  uint8_t type, code;
};

// What a firewall, a router or a host says instead of delivering: from the backend itself, or from a router on the way.
TEST_F(IcmpTest, EveryUnreachableIsANackAndASuspicion) {
  std::vector<Unreachable> kinds;
  for (uint8_t code = 0; code <= 15; ++code)
    if (code != 4) kinds.push_back({false, 3, code});  // 4: about the packet's size
  for (uint8_t code = 0; code <= 7; ++code) kinds.push_back({true, 1, code});
  uint16_t id = 1;
  for (const Unreachable &kind : kinds) {
    for (const bool router : {false, true}) {
      SCOPED_TRACE(absl::StrCat(kind.ipv6 ? "IPv6" : "IPv4", " code ", kind.code, router ? " of a router" : ""));
      ++id;
      const uint32_t backend = kind.ipv6 ? kDns6A : kDns4A;
      BackendState(backend).health = HR_HEALTHY;
      Bytes error;
      if (kind.ipv6) {
        Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build());
        error = PacketBuilder(router ? kRouter6 : kA6, kClient6)
                    .IcmpError(kind.type, kind.code, Quote(Sent6(kA6, kBackendDnsPort6, id)))
                    .Build();
      } else {
        Split(DnsRequest4(id));
        error = PacketBuilder(router ? kRouter4 : kA4, kClient4)
                    .IcmpError(kind.type, kind.code, Quote(Sent4(kA4, id)))
                    .Build();
      }
      const std::string service = kind.ipv6 ? "dns6" : "dns4";
      const RunResult nack = Reply(error);
      EXPECT_EQ(nack.verdict, kRedirected);
      EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
      EXPECT_THAT(nack.changes, UnorderedElementsAre(Pair(service + ".nacks_swallowed", 1), Pair(service + ":nack", 1),
                                                     Pair(service + ".suspected", 1)));
      const RunResult sent = Clock(nack.packet, {.mark = nack.mark});
      EXPECT_EQ(Layer3(sent.packet), Layer3((kind.ipv6 ? Sent6(kB6, kBackendDnsPort6, id) : Sent4(kB4, id)).Build()));
      EXPECT_EQ(ChecksumFault(sent.packet), "");
    }
  }
}

TEST_F(IcmpTest, TheLastProhibitionIsTranslatedForTheClient) {
  Split(DnsRequest4(1));
  const RunResult nack = Reply(PacketBuilder(kA4, kClient4).IcmpError(3, 13, Quote(Sent4(kA4))).Build());
  Clock(nack.packet, {.mark = nack.mark});
  const RunResult last = Reply(PacketBuilder(kRouter4, kClient4).IcmpError(3, 13, Quote(Sent4(kB4))).Build());
  EXPECT_EQ(last.verdict, kUntouched) << "a router's error stays where it came in";
  EXPECT_THAT(last.changes,
              UnorderedElementsAre(Pair("dns4.nacked", 1), Pair("dns4.icmp_translated", 1), Pair("dns4.suspected", 1)));
  const PacketView view = Read(last.packet);
  EXPECT_EQ(view.icmp_code, 13);
  EXPECT_EQ(ChecksumFault(last.packet), "");
  Bytes inner(kEthernetBytes);
  inner.insert(inner.end(), view.payload.begin(), view.payload.end());
  EXPECT_EQ(Read(inner).destination, kDns4);
}

// The packet is the client's own matter: its size, its hops, its headers. The backend's health and the request stay as
// they are.
TEST_F(IcmpTest, WhatIsAboutThePacketItselfIsNoNack) {
  Split(DnsRequest4(1));
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  for (const auto &[type, code] : std::vector<std::pair<int, int>>{{3, 4}, {11, 0}, {12, 0}}) {
    SCOPED_TRACE(absl::StrCat("IPv4 type ", type));
    const RunResult run =
        Reply(PacketBuilder(kRouter4, kClient4)
                  .IcmpError(static_cast<uint8_t>(type), static_cast<uint8_t>(code), Quote(Sent4(kA4)), 1400)
                  .Build());
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.icmp_translated", 1)));
  }
  for (uint8_t type = 2; type <= 4; ++type) {
    SCOPED_TRACE(absl::StrCat("IPv6 type ", type));
    const RunResult run =
        Reply(PacketBuilder(kRouter6, kClient6).IcmpError(type, 0, Quote(Sent6(kA6, kBackendDnsPort6)), 1280).Build());
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns6.icmp_translated", 1)));
  }
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
}

// The kernel of this host gives up on a neighbour, and says so to the sender: from its own address to its own address,
// over lo.
TEST_F(IcmpTest, HostUnreachableOfThisHostsOwnKernelIsANack) {
  Split(DnsRequest4(1));
  const RunResult nack = OwnError(PacketBuilder(kClient4, kClient4).IcmpError(3, 1, Quote(Sent4(kA4))).Build());
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
  EXPECT_THAT(nack.changes,
              UnorderedElementsAre(Pair("dns4.nacks_swallowed", 1), Pair("dns4:nack", 1), Pair("dns4.suspected", 1)));
  Clock(nack.packet, {.mark = nack.mark});
  const RunResult last = OwnError(PacketBuilder(kClient4, kClient4).IcmpError(3, 1, Quote(Sent4(kB4))).Build());
  EXPECT_EQ(last.verdict, kUntouched) << "to its receiver, by the same way";
  EXPECT_EQ(ChecksumFault(last.packet), "");
  Bytes inner(kEthernetBytes);
  const Bytes quoted = Read(last.packet).payload;
  inner.insert(inner.end(), quoted.begin(), quoted.end());
  EXPECT_EQ(Read(inner).destination, kDns4);
}

TEST_F(IcmpTest, AddressUnreachableOfThisHostsOwnKernelIsANackToo) {
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  const RunResult nack =
      OwnError(PacketBuilder(kClient6, kClient6).IcmpError(1, 3, Quote(Sent6(kA6, kBackendDnsPort6))).Build());
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
}

TEST_F(IcmpTest, OtherPacketsOfTheLoopbackInterfaceStayUntouched) {
  Split(DnsRequest4(1));
  for (const Bytes &packet :
       {DnsReply4(1, kA4), PacketBuilder(kA4, kClient4).Tcp(53, kClientPort, kTcpAck).Build(),
        PacketBuilder("127.0.0.1", "127.0.0.1").Echo(false, 1, Text("x")).Build(),
        PacketBuilder("127.0.0.1", "127.0.0.1").Udp(53, 53, {}).Build(),
        Unreachable4(kClient4, Quote(PacketBuilder(kClient4, kA4).Udp(40001, 53, DnsQuery(1, "www.example.org"))))}) {
    const RunResult run = OwnError(packet);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, packet);
  }
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
}

TEST_F(IcmpTest, ABackendOnThisHostAnswersByTheLoopbackInterface) {
  DataPlaneSpec here = plane().spec();
  for (ServiceSpec &service : here.services)
    for (BackendSpec &backend : service.backends) backend.uplink_ifindex = net::kLoopbackIfindex;
  ASSERT_TRUE(plane().config().MoveBackends(here, static_cast<int64_t>(NowNs())).ok());
  Split(DnsRequest4(1));
  const RunResult won = Reply(DnsReply4(1, kA4), {.ifindex = net::kLoopbackIfindex});
  EXPECT_EQ(won.verdict, kRedirected);
  EXPECT_EQ(Read(won.packet).source, kDns4);
  EXPECT_THAT(won.changes, testing::Contains(Pair("dns4.won_by_first", 1)));
  const Bytes direct = PacketBuilder(kA4, kClient4).Udp(53, 40001, DnsQuery(1, "www.example.org")).Build();
  EXPECT_EQ(Reply(direct, {.ifindex = net::kLoopbackIfindex}).packet, direct) << "another socket's";
}

// After the deadline nothing is tried any more: the error is what is known, and goes to the client unless an answer may
// come.
TEST_F(IcmpTest, AnErrorAfterTheDeadlineGoesToTheClientWhenNoBackendIsLeftToAnswer) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  MakeExpired(request);
  VisitAll();
  ASSERT_EQ(StateOf(request), HR_STATE_EXPIRED);
  const RunResult run = OwnError(PacketBuilder(kClient4, kClient4).IcmpError(3, 1, Quote(Sent4(kA4))).Build());
  EXPECT_EQ(run.verdict, kUntouched);
  EXPECT_EQ(run.changes.at("dns4.icmp_translated"), 1);

  Split(DnsRequest4(2));
  const uint32_t hedged = FindDns(2);
  FireNow(hedged);
  MakeExpired(hedged);
  VisitAll();
  ASSERT_EQ(StateOf(hedged), HR_STATE_EXPIRED);
  EXPECT_EQ(OwnError(PacketBuilder(kClient4, kClient4).IcmpError(3, 1, Quote(Sent4(kA4, 2))).Build()).verdict,
            kDropped);
}

TEST_F(IcmpTest, PortUnreachableOverIpv6IsANackToo) {
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  const RunResult nack = Reply(Unreachable6(kA6, Quote(Sent6(kA6, kBackendDnsPort6))));
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
  const RunResult sent = Clock(nack.packet, {.mark = nack.mark});
  EXPECT_EQ(Layer3(sent.packet), Layer3(Sent6(kB6, kBackendDnsPort6).Build()));
  EXPECT_EQ(ChecksumFault(sent.packet), "");
}

TEST_F(IcmpTest, TheLastPortUnreachableIsTranslatedForTheClient) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult nack = Reply(Unreachable4(kA4, Quote(Sent4(kA4))));
  Clock(nack.packet, {.mark = nack.mark});
  const RunResult last = Reply(Unreachable4(kB4, Quote(Sent4(kB4))));
  EXPECT_EQ(last.verdict, kRedirected);
  EXPECT_EQ(StateOf(request), HR_STATE_NACKED);
  EXPECT_THAT(last.changes,
              UnorderedElementsAre(Pair("dns4.nacked", 1), Pair("dns4.icmp_translated", 1), Pair("dns4.suspected", 1)));
  const PacketView view = Read(last.packet);
  EXPECT_EQ(view.source, kDns4);
  EXPECT_EQ(view.destination, kClient4);
  EXPECT_EQ(view.destination_mac, TestLinks::Get().proxy.mac);
  EXPECT_EQ(ChecksumFault(last.packet), "");
  EXPECT_EQ(QuotedHeaderFault(view.payload), "");
  Bytes inner(kEthernetBytes);
  inner.insert(inner.end(), view.payload.begin(), view.payload.end());
  EXPECT_EQ(Read(inner).source, kClient4);
  EXPECT_EQ(Read(inner).destination, kDns4);
  EXPECT_EQ(Read(inner).destination_port, kDnsPort);
}

TEST_F(IcmpTest, TheLastPortUnreachableOverIpv6IsTranslatedWithItsPort) {
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  const RunResult nack = Reply(Unreachable6(kA6, Quote(Sent6(kA6, kBackendDnsPort6))));
  Clock(nack.packet, {.mark = nack.mark});
  const RunResult last = Reply(Unreachable6(kB6, Quote(Sent6(kB6, kBackendDnsPort6))));
  EXPECT_EQ(last.verdict, kRedirected);
  EXPECT_EQ(ChecksumFault(last.packet), "");
  const PacketView view = Read(last.packet);
  EXPECT_EQ(view.source, kDns6);
  Bytes inner(kEthernetBytes);
  inner.insert(inner.end(), view.payload.begin(), view.payload.end());
  EXPECT_EQ(Read(inner).source, kClient6);
  EXPECT_EQ(Read(inner).destination, kDns6);
  EXPECT_EQ(Read(inner).destination_port, kDnsPort);
}

TEST_F(IcmpTest, AnErrorAboutACopyThatLostIsDropped) {
  Split(DnsRequest4(1));
  FireNow(FindDns(1));
  Reply(DnsReply4(1, kB4));
  const RunResult run = Reply(Unreachable4(kA4, Quote(Sent4(kA4))));
  EXPECT_EQ(run.verdict, kDropped) << "the client has its answer";
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.losers_dropped", 1), Pair("dns4:loser", 1)));
}

TEST_F(IcmpTest, AnErrorAboutACopyThatLostIsDroppedAfterItsRetentionToo) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  FireNow(request);
  Reply(DnsReply4(1, kB4));
  EndRetention(request);
  VisitAll();
  ASSERT_EQ(StateOf(request), HR_STATE_FREE);
  const RunResult run = Reply(Unreachable4(kA4, Quote(Sent4(kA4))));
  EXPECT_EQ(run.verdict, kDropped) << "the client had its answer";
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.losers_dropped", 1), Pair("dns4:late", 1)));
}

TEST_F(IcmpTest, AQuotationTooShortForTheKeyEndsNothing) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult run = Reply(Unreachable4(kA4, Quote(Sent4(kA4), 28)));  // RFC 792: 8 bytes of layer 4
  EXPECT_EQ(StateOf(request), HR_STATE_PENDING);
  EXPECT_EQ(run.verdict, kDropped) << "the client must not give up: a standby can still answer";
}

TEST_F(IcmpTest, AForgedErrorAboutAnotherIdEndsNothing) {
  Split(DnsRequest4(1));
  Reply(Unreachable4(kA4, Quote(Sent4(kA4, 2))));
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
  EXPECT_EQ(BackendState(kDns4A).health, HR_HEALTHY);
}

TEST_F(IcmpTest, OtherErrorsOfTheBackendAreTranslated) {
  Split(DnsRequest4(1));
  const RunResult run =
      Reply(PacketBuilder(kA4, kClient4).IcmpError(12, 0, Quote(Sent4(kA4))).Build());  // parameter problem
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.icmp_translated", 1)));
  EXPECT_EQ(Read(run.packet).source, kDns4);
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_EQ(QuotedHeaderFault(Read(run.packet).payload), "");
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
}

// A router's error keeps its source; no route leads there through the proxy interface, so that strict
// reverse-path filtering would drop it there: it goes on where it came in.
TEST_F(IcmpTest, ARoutersErrorIsTranslatedInPlace) {
  Split(DnsRequest4(1));
  const RunResult run4 =
      Reply(PacketBuilder(kRouter4, kClient4).IcmpError(3, 4, Quote(Sent4(kA4)), 1400).Build());  // too big
  EXPECT_EQ(run4.verdict, kUntouched);
  EXPECT_EQ(ChecksumFault(run4.packet), "");
  EXPECT_EQ(QuotedHeaderFault(Read(run4.packet).payload), "");
  EXPECT_EQ(Read(run4.packet).source, kRouter4);
  Bytes inner(kEthernetBytes);
  const Bytes quoted = Read(run4.packet).payload;
  inner.insert(inner.end(), quoted.begin(), quoted.end());
  EXPECT_EQ(Read(inner).destination, kDns4);

  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  const RunResult run6 =
      Reply(PacketBuilder(kRouter6, kClient6).IcmpError(2, 0, Quote(Sent6(kA6, kBackendDnsPort6)), 1280).Build());
  EXPECT_EQ(run6.verdict, kUntouched);
  EXPECT_EQ(ChecksumFault(run6.packet), "");
  EXPECT_EQ(Read(run6.packet).source, kRouter6);
}

TEST_F(IcmpTest, AnErrorAboutAnEstablishedConnectionIsTranslated) {
  Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
  Reply(PacketBuilder(kA4, kClient4).Tcp(kDnsPort, kClientPort, kTcpSynAck).Build());
  const Bytes quote = Quote(PacketBuilder(kClient4, kA4).Tcp(kClientPort, 53, kTcpSyn), 28);
  const RunResult run = Reply(Unreachable4(kA4, quote));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.icmp_translated", 1)));
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_EQ(QuotedHeaderFault(Read(run.packet).payload), "");
}

TEST_F(IcmpTest, ErrorsAboutOthersTrafficStayUntouched) {
  Split(DnsRequest4(1));
  struct {
    const char *what;
    Bytes packet;
  } const cases[] = {
      {"another client port",
       Unreachable4(kA4, Quote(PacketBuilder(kClient4, kA4).Udp(40001, 53, DnsQuery(1, "www.example.org"))))},
      {"no backend", Unreachable4("10.77.0.99", Quote(Sent4("10.77.0.99")))},
      {"an echo request quoted", Unreachable4(kA4, Quote(PacketBuilder(kClient4, kA4).Echo(false, 1, Text("x"))))},
      {"a quotation of 20 bytes", Unreachable4(kA4, Quote(Sent4(kA4), 20))},
      {"no quotation", Unreachable4(kA4, {})},
      {"an echo reply", PacketBuilder(kA4, kClient4).Echo(true, 1, Text("x")).Build()},
      {"a redirect", PacketBuilder(kA4, kClient4).IcmpError(5, 1, Quote(Sent4(kA4))).Build()},
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(each.what);
    const RunResult run = Reply(each.packet);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, each.packet);
    EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
  }
}

}  // namespace
}  // namespace hedgerow::packets
