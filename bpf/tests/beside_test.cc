// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Life beside others: packets that hold several datagrams, BIG TCP, identifications of fragments that come again, and
// the proxy's test of its own way.
#include <arpa/inet.h>

#include <cstring>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class BesideTest : public PacketTest {
 protected:
  static Bytes Raw(size_t bytes = 1200) {
    return PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(bytes, 1)).Build();
  }
  bool HasTag(const Bytes &frame) {
    return memcmp(frame.data(), &skeleton()->rodata->load_config.clock_tag, HR_CLOCK_TAG_BYTES) == 0;
  }
  static std::string Bytes6(const Bytes &frame, size_t at) { return {frame.begin() + at, frame.begin() + at + 6}; }
};

// ---- Several datagrams in one packet
// ----------------------------------------------------------------------------------

TEST_F(BesideTest, ARequestPacketOfManyGoesToTheClocksLinkAndComesBackAsItWas) {
  for (const uint32_t segments : {3u, 0u}) {  // 0: virtio and tap do not count them
    const RunResult run = Split(Raw(), {.mark = 0x1234567, .gso_segs = segments, .gso_size = 400});
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(run.mark, HR_MARK_SEGMENT_OUT | static_cast<uint32_t>(TestLinks::Get().proxy.ifindex));
    EXPECT_TRUE(HasTag(run.packet));
    EXPECT_EQ(Layer3(run.packet), Layer3(Raw())) << "nothing is rewritten yet";
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("host.segmented", 1))) << "each of its datagrams will count";
    const RunResult back = Clock(run.packet, {.mark = run.mark});
    EXPECT_EQ(back.verdict, kRedirected);
    EXPECT_EQ(back.mark, 0x1234567u) << "the client's own mark";
    EXPECT_FALSE(HasTag(back.packet));
    EXPECT_EQ(Layer3(back.packet), Layer3(Raw()));
  }
}

TEST_F(BesideTest, WhatComesFromTheClocksLinkIsOfThisHost) {
  const uint32_t clock = static_cast<uint32_t>(TestLinks::Get().clock_in.ifindex);
  const RunResult run = Split(Raw(), {.ingress_ifindex = static_cast<int>(clock)});
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("raw4.requests", 1)));
  EXPECT_THAT(Split(Raw(), {.ingress_ifindex = TestLinks::Get().uplink.ifindex}).changes,
              UnorderedElementsAre(Pair("raw4:not_a_client", 1)));
  EXPECT_THAT(
      Split(Raw(), {.gso_segs = 3, .gso_size = 400, .ingress_ifindex = TestLinks::Get().uplink.ifindex}).changes,
      UnorderedElementsAre(Pair("raw4:not_a_client", 1)))
      << "judged before it is on that link";
}

TEST_F(BesideTest, AServiceThatIsNotHedgedKeepsItsPacketsWhole) {
  const Bytes once = PacketBuilder(kClient4, kOnce4).Udp(kClientPort, kRawPort, Pattern(1200, 1)).Build();
  const RunResult run = Split(once, {.gso_segs = 3, .gso_size = 400});
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_THAT(run.changes, Contains(Pair("once:not_hedged", 1)));
}

TEST_F(BesideTest, AnAnswerPacketOfManyIsJudgedDatagramByDatagram) {
  Split(DnsRequest4(1));
  const Bytes answer = DnsReply4(1, kA4);
  const RunResult run = Reply(answer, {.gso_segs = 2, .gso_size = 40});
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(run.mark, HR_MARK_SEGMENT_IN | static_cast<uint32_t>(TestLinks::Get().uplink.ifindex));
  EXPECT_TRUE(HasTag(run.packet));
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("host.segmented", 1)));
  const RunResult back = Clock(run.packet, {.mark = run.mark});
  EXPECT_EQ(back.verdict, kRedirected);
  EXPECT_EQ(back.mark, 0u);
  EXPECT_EQ(Bytes6(back.packet, 0), Bytes6(answer, 0)) << "for the uplink again, not for another host";
  EXPECT_THAT(Reply(back.packet).changes, Contains(Pair("dns4.won_by_first", 1)));
}

TEST_F(BesideTest, WhatTheLinkCouldNotSplitIsDropped) {
  const RunResult run = Clock(DnsReply4(1, kA4), {.mark = HR_MARK_SEGMENT_IN | 7, .gso_segs = 2, .gso_size = 40});
  EXPECT_EQ(run.verdict, kDropped) << "it would go round for ever";
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("host:send_failed", 1)));
}

TEST_F(BesideTest, AStrangersPacketOfManyStaysUntouched) {
  EXPECT_EQ(Reply(DnsReply4(1, kA4), {.gso_segs = 2, .gso_size = 40}).verdict, kUntouched) << "no client here asked";
}

// ---- BIG TCP
// ----------------------------------------------------------------------------------------------------------

TEST_F(BesideTest, ASegmentThatIsTooLongForItsHeaderIsTcpLikeAnyOther) {
  for (const bool ipv6 : {false, true}) {
    const char *client = ipv6 ? kClient6 : kClient4, *vip = ipv6 ? kDns6 : kDns4, *backend = ipv6 ? kA6 : kA4;
    const uint16_t port = ipv6 ? kBackendDnsPort6 : kDnsPort;
    const auto without_length = [ipv6](Bytes frame) {
      const size_t at = kEthernetBytes + (ipv6 ? 4 : 2);
      frame[at] = frame[at + 1] = 0;
      return frame;
    };
    Split(PacketBuilder(client, vip).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
    const RunResult out =
        Split(without_length(PacketBuilder(client, vip).Tcp(kClientPort, kDnsPort, kTcpAck, Pattern(1000, 1)).Build()),
              {.gso_segs = 50, .gso_size = 1400});
    EXPECT_EQ(Read(out.packet).destination, backend);
    const RunResult in =
        Reply(without_length(PacketBuilder(backend, client).Tcp(port, kClientPort, kTcpAck, Pattern(1000, 1)).Build()),
              {.gso_segs = 50, .gso_size = 1400});
    EXPECT_EQ(in.verdict, kRedirected);
    EXPECT_EQ(Read(in.packet).source, vip);
  }
}

TEST_F(BesideTest, WithoutSegmentsALengthOfZeroIsALie) {
  Bytes frame = PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build();
  frame[kEthernetBytes + 2] = frame[kEthernetBytes + 3] = 0;
  EXPECT_THAT(Split(frame).changes, UnorderedElementsAre(Pair("host:malformed", 1)));
}

// ---- An identification that comes again
// -------------------------------------------------------------------------------

TEST_F(BesideTest, TheStateOfAFragmentedAnswerEndsWithItsLastByte) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6);
    const char *client = ipv6 ? kClient6 : kClient4, *vip = ipv6 ? kRaw6 : kRaw4, *backend = ipv6 ? kA6 : kA4;
    Split(PacketBuilder(client, vip).Udp(kClientPort, kRawPort, Pattern(8, 1)).Build());
    Bytes payload = Pattern(3000, 2);
    const Bytes head = Pattern(8, 1);
    std::copy(head.begin(), head.end(), payload.begin());
    const std::vector<Bytes> answer =
        PacketBuilder(backend, client).Udp(kRawPort, kClientPort, payload).BuildFragments(1400, 0x777);
    const std::vector<Bytes> direct =
        PacketBuilder(backend, client).Udp(kRawPort, kClientPort + 1, Pattern(3000, 3)).BuildFragments(1400, 0x777);
    ASSERT_EQ(answer.size(), 3u);
    EXPECT_EQ(Reply(answer[0]).verdict, kRedirected);
    EXPECT_EQ(Reply(answer[2]).verdict, kRedirected) << "the last may overtake one";
    EXPECT_EQ(Reply(answer[1]).verdict, kRedirected);
    EXPECT_EQ(Reply(direct[1]).verdict, kUntouched) << "its first comes later";
    EXPECT_EQ(Reply(direct[2]).verdict, kUntouched);
  }
}

TEST_F(BesideTest, TheStateOfAFragmentedRequestEndsWithItsLastByteToo) {
  const std::vector<Bytes> request =
      PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(3000, 1)).BuildFragments(1400, 9);
  for (const Bytes &fragment : request) EXPECT_EQ(Read(Split(fragment).packet).destination, kA4);
  EXPECT_THAT(Split(request[1]).changes, UnorderedElementsAre(Pair("host:fragment_no_first", 1)));
}

// ---- The test of the own way
// ------------------------------------------------------------------------------------------

TEST_F(BesideTest, TheDaemonsTestComesBackAsAnAnswerOfTheVip) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6);
    const char *client = ipv6 ? kClient6 : kClient4, *vip = ipv6 ? kDns6 : kDns4, *backend = ipv6 ? kB6 : kB4;
    const hr_self_test test = {.tag = skeleton()->rodata->load_config.self_test_tag, .number = 8 * 5 + 1};
    const Bytes payload(reinterpret_cast<const uint8_t *>(&test), reinterpret_cast<const uint8_t *>(&test + 1));
    const std::string service = ipv6 ? "dns6" : "dns4";
    const RunResult out = Split(PacketBuilder(client, vip).Udp(kClientPort, kDnsPort, payload).Build());
    EXPECT_EQ(out.verdict, kRedirected);
    EXPECT_TRUE(HasTag(out.packet)) << "the stack takes it for another host's";
    EXPECT_EQ(
        Layer3(out.packet),
        Layer3(PacketBuilder(backend, client).Udp(ipv6 ? kBackendDnsPort6 : kDnsPort, kClientPort, payload).Build()));
    EXPECT_THAT(out.changes, UnorderedElementsAre(Pair(service + ".self_tests", 1))) << "no request";
    const RunResult back = Reply(out.packet);
    EXPECT_EQ(back.verdict, kRedirected);
    EXPECT_EQ(Layer3(back.packet), Layer3(PacketBuilder(vip, client).Udp(kDnsPort, kClientPort, payload).Build()));
    EXPECT_THAT(back.changes, UnorderedElementsAre(Pair(service + ".self_tests_back", 1)))
        << "no sign of a backend's life";
  }
}

TEST_F(BesideTest, WithoutTheTagADatagramOfItsLengthIsARequest) {
  const hr_self_test test = {.tag = skeleton()->rodata->load_config.self_test_tag ^ 1, .number = 0};
  const Bytes payload(reinterpret_cast<const uint8_t *>(&test), reinterpret_cast<const uint8_t *>(&test + 1));
  EXPECT_THAT(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload).Build()).changes,
              UnorderedElementsAre(Pair("raw4.requests", 1)));
}

// ---- The test of the hedge
// --------------------------------------------------------------------------------------------

class HedgeTestTest : public BesideTest {
 protected:
  // Of kRaw4Service, from this port of kClient4, for a second.
  void Arm(uint16_t port) {
    const hr_address client = *ParseAddress(kClient4);
    ServicePolicy(kRaw4Service).test_client = hr_test_client(&client);
    ServicePolicy(kRaw4Service).test_port_be = htons(port);
    ServicePolicy(kRaw4Service).test_until_ns = NowNs() + 1'000'000'000;
  }
};

TEST_F(HedgeTestTest, TheFirstDatagramIsDroppedAndAHedgeTakesItsPlace) {
  ServiceState(kRaw4Service).budget_micros = 0;
  Arm(kClientPort);
  const RunResult first = Split(Raw());
  EXPECT_EQ(first.verdict, TC_ACT_SHOT);
  EXPECT_THAT(first.changes, UnorderedElementsAre(Pair("raw4.requests", 1), Pair("raw4:hedge_test", 1)))
      << "its backend was sent nothing";
  EXPECT_EQ(ServicePolicy(kRaw4Service).test_until_ns, 0u) << "one request is one test";
  MakeDue(1);
  VisitAll();
  ASSERT_EQ(Clones(HR_MARK_HEDGE, 1).size(), 1u) << "without a token of the budget, which is empty at a start";
  const RunResult back = Reply(PacketBuilder(kB4, kClient4).Udp(9000, kClientPort, Pattern(40, 1)).Build());
  EXPECT_THAT(back.changes, Contains(Pair("raw4.won_by_failover", 1)));
}

TEST_F(HedgeTestTest, NoOtherRequestIsTouched) {
  Arm(kClientPort);
  const auto from = [](const char *client, uint16_t port) {
    return PacketBuilder(client, kRaw4).Udp(port, kRawPort, Pattern(64, 1)).Build();
  };
  EXPECT_EQ(Split(from(kClient4, kClientPort + 1)).verdict, kRedirected);
  EXPECT_EQ(Split(from("10.77.0.9", kClientPort)).verdict, kRedirected);
  EXPECT_EQ(Split(DnsRequest4(1)).verdict, kRedirected) << "another service";
  EXPECT_EQ(Split(from(kClient4, kClientPort)).verdict, TC_ACT_SHOT);
  EXPECT_EQ(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(64, 2)).Build()).verdict,
            kRedirected)
      << "the next one";
}

TEST_F(HedgeTestTest, AnOverdueTestIsClearedAndTakesNothing) {
  Arm(kClientPort);
  Advance(2'000'000'000);
  EXPECT_EQ(Split(Raw()).verdict, kRedirected);
  EXPECT_EQ(ServicePolicy(kRaw4Service).test_until_ns, 0u);
}

TEST_F(HedgeTestTest, WhatIsNotTrackedIsForwarded) {
  Arm(kClientPort);
  ServicePolicy(kRaw4Service).switches = HR_SWITCH_BYPASS;
  EXPECT_EQ(Split(Raw()).verdict, kRedirected) << "no hedge would follow";
}

}  // namespace
}  // namespace hedgerow::packets
