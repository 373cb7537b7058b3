// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// CLOCK, the bytes of a hedge: for every payload length from 0 to 1472, over IPv4 and IPv6, and whatever state
// the client's checksum was in, the copy is the client's packet to another backend with a complete and right
// checksum.
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

class HedgeTest : public PacketTest {
 protected:
  static constexpr size_t kBatch = 32;  // as many as may be parked

  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // One byte is enough to be known by; the client's port tells the lengths apart.
    for (const uint32_t service : {kRaw4Service, kRaw6Service}) {
      ServiceConfig(service).profile.request_correlation.length = 1;
      ServiceConfig(service).profile.request_correlation.mask[0] = 0xff;
      ServiceConfig(service).profile.request_min_bytes = 1;
    }
  }

  // Sends one request of each length, lets all fall due, and compares what is sent to the standby.
  void ExpectHedged(const std::vector<size_t> &lengths, bool ipv6, Checksum checksum) {
    const char *client = ipv6 ? kClient6 : kClient4;
    const char *vip = ipv6 ? kRaw6 : kRaw4;
    std::map<uint16_t, size_t> length_of_port;
    for (size_t from = 0; from < lengths.size(); from += kBatch) {
      const size_t count = std::min(kBatch, lengths.size() - from);
      for (size_t i = 0; i < count; ++i) {
        const size_t length = lengths[from + i];
        const auto port = static_cast<uint16_t>(20000 + length);
        length_of_port[port] = length;
        Split(PacketBuilder(client, vip)
                  .Udp(port, kRawPort, Pattern(length, static_cast<uint32_t>(length)))
                  .With(checksum)
                  .Build());
      }
      const StateView view = View();
      for (uint32_t i = 1; i < view.requests.size(); ++i)
        if (HR_WORD_STATE(view.requests[i].word) == HR_STATE_PENDING) MakeDue(i);
      VisitAll();
      for (const Captured &copy : Clones(HR_MARK_HEDGE, count)) {
        const uint16_t port = Read(copy.packet).source_port;
        ASSERT_TRUE(length_of_port.contains(port));
        const size_t length = length_of_port[port];
        EXPECT_EQ(Layer3(copy.packet), Layer3(PacketBuilder(client, ipv6 ? kB6 : kB4)
                                                  .Udp(port, 9000, Pattern(length, static_cast<uint32_t>(length)))
                                                  .Build()))
            << "payload of " << length << " bytes";
        EXPECT_EQ(ChecksumFault(copy.packet), "") << "payload of " << length << " bytes";
        EXPECT_NE(Read(copy.packet).udp_checksum, 0) << "never zeroed as a shortcut";
        EXPECT_TRUE(copy.checksum_ready);
        length_of_port.erase(port);
      }
      Forget();
    }
    EXPECT_THAT(length_of_port, IsEmpty()) << "lengths that were not hedged";
  }

  // All requests end and their places are free again.
  void Forget() {
    for (int round = 0; round < 2; ++round) {
      const StateView view = View();
      for (uint32_t i = 1; i < view.requests.size(); ++i) {
        if (HR_WORD_STATE(view.requests[i].word) == HR_STATE_PENDING) MakeExpired(i);
        if (HR_WORD_STATE(view.requests[i].word) == HR_STATE_EXPIRED) EndRetention(i);
      }
      VisitAll();
    }
    ASSERT_EQ(RequestsInUse(), 0u);
  }

  static std::vector<size_t> EveryLength(size_t last) {
    std::vector<size_t> lengths;
    for (size_t length = 1; length <= last; ++length) lengths.push_back(length);
    return lengths;
  }
  // Around the borders of the sum's 512-byte pieces (8 bytes of UDP header come first) and odd lengths.
  static std::vector<size_t> BorderLengths(size_t last) {
    std::vector<size_t> lengths;
    for (const size_t border : {size_t{8}, size_t{504}, size_t{1016}, last})
      for (size_t length = border - 7; length <= std::min(border + 5, last); ++length) lengths.push_back(length);
    return lengths;
  }
};

TEST_F(HedgeTest, EveryPayloadLengthOverIpv4) { ExpectHedged(EveryLength(1472), false, Checksum::kPartial); }

TEST_F(HedgeTest, EveryPayloadLengthOverIpv6) { ExpectHedged(EveryLength(1452), true, Checksum::kPartial); }

TEST_F(HedgeTest, WhateverStateTheClientsChecksumIsIn) {
  ExpectHedged(BorderLengths(1472), false, Checksum::kNone);
  ExpectHedged(BorderLengths(1472), false, Checksum::kRight);
  ExpectHedged(BorderLengths(1452), true, Checksum::kRight);
  ExpectHedged(BorderLengths(1452), true, Checksum::kNone);  // RFC 6936 tunnels send so
}

// The shortest of all lengths is never parked: every profile wants at least one byte of correlation.
TEST_F(HedgeTest, AnEmptyPayloadIsForwardedUnhedged) {
  const RunResult run = Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {}).Build());
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_EQ(run.changes.at("raw4:unknown_operation"), 1) << "there are no bytes to know it by";
}

TEST_F(HedgeTest, ASumOfZeroIsSentAsAllOnes) {
  Bytes payload = {1, 0, 0, 1, 0, 0};
  const uint16_t check = Read(PacketBuilder(kClient4, kB4).Udp(kClientPort, 9000, payload).Build()).udp_checksum;
  payload[4] = static_cast<uint8_t>(check >> 8);
  payload[5] = static_cast<uint8_t>(check);
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload).Build());
  FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {1}));
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).udp_checksum, 0xffff);
}

// A longer copy was in the slot before: nothing of it may leak into a shorter one, nor into its sum.
TEST_F(HedgeTest, AUsedSlotLeaksNothing) {
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Bytes(1400, 0xff)).Build());
  Forget();
  const Bytes packet = PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 2, 3, 4, 5}).Build();
  Split(packet);
  const uint32_t request = FindRequest(kRaw4Service, kClient4, kClientPort, {1});
  ASSERT_EQ(Request(request).parked, 1u) << "the same slot";
  FireNow(request);
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) {
    EXPECT_EQ(copy.packet.size(), packet.size());
    EXPECT_EQ(ChecksumFault(copy.packet), "");
  }
}

TEST_F(HedgeTest, TheClientsHopLimitAndIdentificationStay) {
  Split(PacketBuilder(kClient4, kRaw4).Ttl(37).Id(0xbeef).Udp(kClientPort, kRawPort, {1, 2, 3, 4}).Build());
  FireNow(FindRequest(kRaw4Service, kClient4, kClientPort, {1}));
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1))
    EXPECT_EQ(Layer3(copy.packet),
              Layer3(PacketBuilder(kClient4, kB4).Ttl(37).Id(0xbeef).Udp(kClientPort, 9000, {1, 2, 3, 4}).Build()));
}

}  // namespace
}  // namespace hedgerow::packets
