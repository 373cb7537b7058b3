// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER, what it does with what it hedges: the packet that leaves, the flow, the request, the parked bytes
// and the wheel, and what a key that comes again means. Why it does not hedge is in splitter_reasons_test.cc;
// TCP, pings, fragments and foreign packets are in splitter_other_test.cc.
#include <netinet/in.h>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

class SplitterTest : public PacketTest {
 protected:
  static PacketBuilder Query(uint16_t id, std::string_view name = "www.example.org") {
    return PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, name));
  }
  static PacketBuilder Query6(uint16_t id) {
    return PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org"));
  }
};

TEST_F(SplitterTest, AnIpv4RequestGoesToTheLeader) {
  const RunResult run = Split(Query(0x1234).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet),
            Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, 53, DnsQuery(0x1234, "www.example.org")).Build()));
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.requests", 1)));
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A));
  EXPECT_FALSE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4B)) << "nothing was sent there";
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 1'000'000);
}

TEST_F(SplitterTest, AnIpv6RequestGoesToTheLeadersPort) {
  const RunResult run = Split(Query6(0x1234).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet), Layer3(PacketBuilder(kClient6, kA6)
                                           .Udp(kClientPort, kBackendDnsPort6, DnsQuery(0x1234, "www.example.org"))
                                           .Build()));
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns6.requests", 1)));
  EXPECT_TRUE(HasFlow(kClient6, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns6A));
}

TEST_F(SplitterTest, TheRequestKeepsWhatAHedgeNeeds) {
  const uint64_t before_ns = NowNs();
  const Bytes packet = Query(0x1234).Build();
  Split(packet, {.mark = 0x77});
  const uint32_t index = FindDns(0x1234);
  ASSERT_NE(index, 0u);
  volatile hr_request &request = Request(index);
  EXPECT_EQ(StateOf(index), HR_STATE_PENDING);
  EXPECT_EQ(WinnerOf(index), HR_NO_BACKEND);
  EXPECT_EQ(request.key.service, kDns4Service);
  EXPECT_EQ(request.mark, 0x77u);
  EXPECT_EQ(request.attempts, 1u);
  EXPECT_EQ(request.first, 0);
  EXPECT_EQ(SentTo(index), 0b01u);
  EXPECT_EQ(request.parked_bytes, packet.size() - kEthernetBytes);
  EXPECT_GE(request.sent_ns, before_ns);
  EXPECT_LE(request.sent_ns, NowNs());
  EXPECT_EQ(request.due_ns, request.sent_ns + ServicePolicy(kDns4Service).delay_ns);
  EXPECT_EQ(RequestsInUse(), 1u);
}

TEST_F(SplitterTest, TheParkedBytesAreThePacketAsTheClientSentIt) {
  const Bytes packet4 = Query(1).With(Checksum::kPartial).Build();
  Split(packet4);
  const hr_parked parked4 = Parked(FindDns(1));
  const Bytes l3_4 = Layer3(packet4);
  EXPECT_EQ(Bytes(parked4.l3 + 20, parked4.l3 + 40), Bytes(l3_4.begin(), l3_4.begin() + 20));
  EXPECT_EQ(Bytes(parked4.l4, parked4.l4 + l3_4.size() - 20), Bytes(l3_4.begin() + 20, l3_4.end()));

  const Bytes packet6 = Query6(1).With(Checksum::kPartial).Build();
  Split(packet6);
  const hr_parked parked6 = Parked(FindRequest(kDns6Service, kClient6, kClientPort, {0, 1}));
  const Bytes l3_6 = Layer3(packet6);
  EXPECT_EQ(Bytes(parked6.l3, parked6.l3 + 40), Bytes(l3_6.begin(), l3_6.begin() + 40));
  EXPECT_EQ(Bytes(parked6.l4, parked6.l4 + l3_6.size() - 40), Bytes(l3_6.begin() + 40, l3_6.end()));
}

TEST_F(SplitterTest, ARequestWaitsInTheWheelSlotOfItsDueTime) {
  Split(Query(1).Build());
  const uint32_t index = FindDns(1);
  const uint32_t slot = (Request(index).due_ns >> HR_FINE_SHIFT) & (HR_FINE_SLOTS - 1);
  EXPECT_EQ(Wheel().fine[slot].head, index);
  EXPECT_EQ(Wheel().fine[slot].live, 1u);
  EXPECT_EQ(Request(index).armed, slot + 1);
}

TEST_F(SplitterTest, ADelayBeyondTheFineWheelWaitsInTheCoarseOne) {
  ServicePolicy(kDns4Service).delay_ns = 3 * kSecond;
  Split(Query(1).Build());
  const uint32_t index = FindDns(1);
  uint32_t found = 0;
  for (uint32_t slot = 0; slot < HR_COARSE_SLOTS; ++slot) {
    if (Wheel().coarse[slot] != index) continue;
    ++found;
    // Looked at before it is due, never after: the fine wheel does the rest.
    const uint64_t due_tick = Request(index).due_ns >> HR_COARSE_SHIFT;
    EXPECT_LE((due_tick - slot) & (HR_COARSE_SLOTS - 1), 8u) << "slot " << slot << ", due tick " << due_tick;
  }
  EXPECT_EQ(found, 1u);
}

TEST_F(SplitterTest, TheFirstRequestSetsTheClockGoingOnce) {
  Split(Query(1).Build());
  Split(Query(2).Build());
  const std::vector<Captured> laps = Clones(HR_MARK_LAP, 1);
  ASSERT_EQ(laps.size(), 1u);
  EXPECT_EQ(HR_MARK_VALUE(laps[0].mark), Wheel().epoch);
  EXPECT_TRUE(laps[0].checksum_ready) << "the carrier must not be CHECKSUM_PARTIAL";
  EXPECT_EQ(Wheel().running, 1u);
  EXPECT_EQ(Wheel().kicks, 1u);
}

TEST_F(SplitterTest, TheClientsMarkAndPriorityStay) {
  const RunResult run = Split(Query(1).Build(), {.mark = 0xabcd, .priority = 6});
  EXPECT_EQ(run.mark, 0xabcdu) << "also when the packet was cloned for the clock";
  EXPECT_EQ(run.priority, 6u);
}

TEST_F(SplitterTest, NoUdpChecksumStaysNone) {
  const RunResult run = Split(Query(1).With(Checksum::kNone).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).udp_checksum, 0);
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_EQ(ChecksumFault(run.packet), "");
}

// Incremental updates carry and borrow: many different sums, also those that come out as zero.
TEST_F(SplitterTest, EveryRewrittenChecksumIsRight) {
  ServicePolicy(kRaw4Service).switches = HR_SWITCH_BYPASS;
  ServicePolicy(kRaw6Service).switches = HR_SWITCH_BYPASS;
  for (uint32_t i = 0; i < 600; ++i) {
    const Bytes payload = Pattern(4 + i % 37, i);
    const auto port = static_cast<uint16_t>(1024 + i * 97);
    const RunResult run4 = Split(PacketBuilder(kClient4, kRaw4).Udp(port, kRawPort, payload).Build());
    EXPECT_EQ(ChecksumFault(run4.packet), "") << i;
    EXPECT_NE(Read(run4.packet).udp_checksum, 0) << "0 would say that there is none";
    EXPECT_EQ(Read(run4.packet).payload, payload);
    const RunResult run6 = Split(PacketBuilder(kClient6, kRaw6).Udp(port, kRawPort, payload).Build());
    EXPECT_EQ(ChecksumFault(run6.packet), "") << i;
  }
}

TEST_F(SplitterTest, ASumOfZeroLeavesAsAllOnes) {
  // The last payload word makes the rewritten packet's sum zero.
  Bytes payload = {0, 0, 0, 1, 0, 0};
  const uint16_t check = Read(PacketBuilder(kClient4, kA4).Udp(kClientPort, kRawPort, payload).Build()).udp_checksum;
  payload[4] = static_cast<uint8_t>(check >> 8);
  payload[5] = static_cast<uint8_t>(check);
  const RunResult run = Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload).Build());
  EXPECT_EQ(Read(run.packet).udp_checksum, 0xffff);
  EXPECT_EQ(ChecksumFault(run.packet), "");
}

TEST_F(SplitterTest, ARawRequestIsKnownByItsConfiguredBytes) {
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {9, 8, 7, 6, 5, 5}).Build());
  EXPECT_NE(FindRequest(kRaw4Service, kClient4, kClientPort, {9, 8, 7, 6}), 0u);
  EXPECT_EQ(FindRequest(kRaw4Service, kClient4, kClientPort, {9, 8, 7, 6, 5}), 0u);
}

TEST_F(SplitterTest, TwoClientsWithTheSameIdAreTwoRequests) {
  Split(DnsRequest4(7, "www.example.org", 40001));
  const RunResult run = Split(DnsRequest4(7, "www.example.org", 40002));
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.requests", 1)));
  EXPECT_NE(FindDns(7, 40001), FindDns(7, 40002));
  EXPECT_EQ(RequestsInUse(), 2u);
}

TEST_F(SplitterTest, AnotherPayloadUnderAKeyThatWaitsIsForwardedOnce) {
  Split(Query(7, "old.example.org").Build());
  const uint32_t old = FindDns(7);
  const RunResult run = Split(Query(7, "new.example.org").Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.requests", 1), std::pair("dns4.passed_through", 1),
                                                std::pair("dns4:key_busy", 1)));
  EXPECT_EQ(FindDns(7), old);
  EXPECT_EQ(StateOf(old), HR_STATE_PENDING);
}

TEST_F(SplitterTest, OnlyTheLastByteTellsARetransmissionFromANewRequest) {
  Bytes payload = Pattern(100, 1);
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload).Build());
  payload.back() ^= 1;
  const RunResult run = Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload).Build());
  EXPECT_EQ(run.changes.at("raw4:key_busy"), 1);
}

TEST_F(SplitterTest, AKeyOfAnAnsweredRequestIsTakenOverWithItsOutstandingReplies) {
  Split(Query(7).Build());
  const uint32_t old = FindDns(7);
  FireNow(old);
  Reply(DnsReply4(7, kB4));
  ASSERT_EQ(StateOf(old), HR_STATE_ANSWERED);
  const RunResult run = Split(Query(7).Build());
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.requests", 1)));
  EXPECT_NE(FindDns(7), old);
  EXPECT_EQ(Outstanding(FindDns(7)), 0b01u) << "a was asked and has not answered; b has";
}

}  // namespace
}  // namespace hedgerow::packets
