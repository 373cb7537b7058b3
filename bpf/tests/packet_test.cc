// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The packet tests' own tools are tested first: the checksum checker against known packets, and against every
// single flipped bit, since a checker that never complains would make every other test worthless.
#include "bpf/tests/packet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "bpf/tests/checksum.h"

namespace hedgerow::packets {
namespace {

using ::testing::HasSubstr;

TEST(ChecksumTest, SumsTheExampleOfRfc1071) {
  const Bytes example = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};  // section 3
  EXPECT_EQ(FoldedSum(example), 0xddf2);
  EXPECT_EQ(FoldedSum(Bytes{0x12}), 0x1200) << "an odd last byte is the high half of a word";
}

TEST(ChecksumTest, KnowsTheTextbookHeader) {
  // 172.16.10.99 -> 172.16.10.12, TCP, 60 bytes; its checksum b1e6 is printed in many introductions to IPv4.
  Bytes header = {0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06,
                  0xb1, 0xe6, 0xac, 0x10, 0x0a, 0x63, 0xac, 0x10, 0x0a, 0x0c};
  EXPECT_EQ(QuotedHeaderFault(header), "");
  header[8]--;
  EXPECT_THAT(QuotedHeaderFault(header), HasSubstr("IPv4 checksum is b1e6, should be b2e6"));
}

struct Shape {
  const char *name;
  PacketBuilder builder;
};

std::vector<Shape> Shapes() {
  return {
      {"udp4", PacketBuilder("10.0.0.1", "10.0.0.2").Udp(1000, 53, Text("hello"))},
      {"udp6", PacketBuilder("fd00::1", "fd00::2").Udp(1000, 53, Text("hello!"))},
      {"tcp4", PacketBuilder("10.0.0.1", "10.0.0.2").Tcp(1000, 53, kTcpSyn)},
      {"tcp6", PacketBuilder("fd00::1", "fd00::2").Tcp(1000, 53, kTcpAck, Text("abc"))},
      {"icmp4", PacketBuilder("10.0.0.1", "10.0.0.2").Echo(false, 7, Text("ping"))},
      {"icmp6", PacketBuilder("fd00::1", "fd00::2").Echo(true, 7, Text("ping"))},
      {"options", PacketBuilder("10.0.0.1", "10.0.0.2").Ipv4Options({1, 1, 1}).Udp(1, 2, Text("x"))},
  };
}

TEST(ChecksumTest, AcceptsWhatTheBuilderBuilds) {
  for (const Shape &shape : Shapes()) EXPECT_EQ(ChecksumFault(shape.builder.Build()), "") << shape.name;
}

// Every bit of addresses, layer 4 and payload is covered by some checksum (IPv6's other header fields are not).
TEST(ChecksumTest, FindsEveryFlippedBit) {
  for (const Shape &shape : Shapes()) {
    const Bytes good = shape.builder.Build();
    const bool ipv6 = good[12] == 0x86;
    for (size_t byte = kEthernetBytes + (ipv6 ? 8 : 0); byte < good.size(); ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        Bytes bad = good;
        bad[byte] = static_cast<uint8_t>(bad[byte] ^ 1 << bit);
        EXPECT_NE(ChecksumFault(bad), "") << shape.name << ": byte " << byte << ", bit " << bit;
      }
    }
  }
}

TEST(ChecksumTest, APartialChecksumIsNoChecksum) {
  auto builder = PacketBuilder("10.0.0.1", "10.0.0.2").Udp(1000, 53, Text("hello")).With(Checksum::kPartial);
  EXPECT_THAT(ChecksumFault(builder.Build()), HasSubstr("UDP checksum"));
}

TEST(ChecksumTest, NoUdpChecksumIsRightOverIpv4Only) {
  EXPECT_EQ(ChecksumFault(PacketBuilder("10.0.0.1", "10.0.0.2").Udp(1, 2, {}).With(Checksum::kNone).Build()), "");
  EXPECT_THAT(ChecksumFault(PacketBuilder("fd00::1", "fd00::2").Udp(1, 2, {}).With(Checksum::kNone).Build()),
              HasSubstr("IPv6 forbids"));
}

TEST(ChecksumTest, ASumOfZeroIsSentAsAllOnes) {
  // The payload word is chosen so that the sum comes out as zero.
  const Bytes plain = PacketBuilder("10.0.0.1", "10.0.0.2").Udp(1, 2, {0, 0}).Build();
  const uint16_t check = Read(plain).udp_checksum;
  const Bytes zero = PacketBuilder("10.0.0.1", "10.0.0.2")
                         .Udp(1, 2, {static_cast<uint8_t>(check >> 8), static_cast<uint8_t>(check)})
                         .Build();
  EXPECT_EQ(Read(zero).udp_checksum, 0xffff);
  EXPECT_EQ(ChecksumFault(zero), "");
}

TEST(PacketTest, ReadsBackWhatWasBuilt) {
  const PacketView view = Read(PacketBuilder("fd00::1", "fd00::2").Ttl(9).Udp(1000, 53, Text("hello")).Build());
  EXPECT_EQ(view.source, "fd00::1");
  EXPECT_EQ(view.destination, "fd00::2");
  EXPECT_EQ(view.protocol, IPPROTO_UDP);
  EXPECT_EQ(view.ttl, 9);
  EXPECT_EQ(view.source_port, 1000);
  EXPECT_EQ(view.destination_port, 53);
  EXPECT_EQ(view.payload, Text("hello"));
}

TEST(PacketTest, FragmentsTogetherAreThePacket) {
  for (const char *peer : {"10.0.0.2", "fd00::2"}) {
    const bool ipv6 = std::string_view(peer).find(':') != std::string_view::npos;
    const size_t header_bytes = kEthernetBytes + (ipv6 ? 48 : 20);
    auto builder = PacketBuilder(ipv6 ? "fd00::1" : "10.0.0.1", peer).Udp(1000, 53, Pattern(100, 1));
    const std::vector<Bytes> fragments = builder.BuildFragments(48, 0x1234);
    ASSERT_EQ(fragments.size(), 3u);
    Bytes joined;
    for (const Bytes &fragment : fragments) {
      EXPECT_EQ(ChecksumFault(fragment), "");
      joined.insert(joined.end(), fragment.begin() + static_cast<ptrdiff_t>(header_bytes), fragment.end());
    }
    const Bytes whole = builder.Build();
    EXPECT_EQ(joined, Bytes(whole.begin() + static_cast<ptrdiff_t>(kEthernetBytes + (ipv6 ? 40 : 20)), whole.end()));
  }
}

TEST(PacketTest, ADnsAnswerRepeatsIdAndQuestion) {
  const Bytes query = DnsQuery(0xbeef, "www.example.org");
  EXPECT_EQ(query.size(), 12u + 17 + 4);
  const Bytes answer = DnsAnswer(query);
  EXPECT_EQ(Bytes(answer.begin(), answer.begin() + 2), (Bytes{0xbe, 0xef}));
  EXPECT_EQ(answer[2] & 0x80, 0x80) << "QR";
  EXPECT_TRUE(std::equal(query.begin() + 12, query.end(), answer.begin() + 12));
  EXPECT_EQ(DnsAnswer(query, 2)[3] & 0xf, 2) << "SERVFAIL";
}

TEST(PacketTest, PatternsDiffer) {
  EXPECT_NE(Pattern(16, 1), Pattern(16, 2));
  EXPECT_EQ(Pattern(16, 1), Pattern(16, 1));
}

}  // namespace
}  // namespace hedgerow::packets
