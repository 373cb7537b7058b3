// SPDX-License-Identifier: Apache-2.0
#include "bench/flood/frame.h"

#include <gtest/gtest.h>

#include <set>

namespace hedgerow::bench {
namespace {

uint16_t At16(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

uint32_t Folded(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

FrameSpec Spec() {
  FrameSpec spec;
  spec.source_mac = {2, 0, 0, 0, 0, 1};
  spec.destination_mac = {2, 0, 0, 0, 0, 2};
  spec.source = 0x0ac80000;
  spec.sources = 1000;
  spec.destination = 0x0a630035;
  spec.destination_port = 53;
  spec.payload = {0, 0, 1, 2, 3};
  spec.vary_bytes = 2;
  return spec;
}

TEST(FrameTest, EveryFrameHasRightChecksumsAndLengths) {
  FrameMaker maker(Spec(), 7);
  std::vector<uint8_t> frame(maker.FrameBytes());
  for (int i = 0; i < 2000; ++i) {
    maker.Make(frame);
    const std::span<const uint8_t> ip = std::span(frame).subspan(14, 20), udp = std::span(frame).subspan(34);
    EXPECT_EQ(Folded(InternetSum(ip)), 0xffffu);
    EXPECT_EQ(Folded(InternetSum(udp, InternetSum(ip.subspan(12, 8), 17 + static_cast<uint32_t>(udp.size())))),
              0xffffu);
    EXPECT_NE(At16(udp, 6), 0) << "no checksum is no right checksum";
    EXPECT_EQ(At16(ip, 2), 20 + udp.size());
    EXPECT_EQ(At16(udp, 4), udp.size());
    EXPECT_EQ(At16(udp, 2), 53);
    EXPECT_GE(At16(udp, 0), 1024);
    EXPECT_EQ((std::vector<uint8_t>(udp.begin() + 10, udp.end())), (std::vector<uint8_t>{1, 2, 3}));
  }
}

TEST(FrameTest, SourcesPortsAndVaryingBytesAreMany) {
  FrameMaker maker(Spec(), 7);
  std::vector<uint8_t> frame(maker.FrameBytes());
  std::set<uint32_t> sources;
  std::set<uint16_t> ports, ids;
  for (int i = 0; i < 20'000; ++i) {
    maker.Make(frame);
    const uint32_t source = static_cast<uint32_t>(At16(frame, 26)) << 16 | At16(frame, 28);
    EXPECT_GE(source, 0x0ac80000u);
    EXPECT_LT(source, 0x0ac80000u + 1000);
    sources.insert(source);
    ports.insert(At16(frame, 34));
    ids.insert(At16(frame, 42));
  }
  EXPECT_EQ(sources.size(), 1000u);
  EXPECT_GT(ports.size(), 10'000u);
  EXPECT_GT(ids.size(), 10'000u);
}

TEST(FrameTest, TheSameSeedMakesTheSameFrames) {
  FrameMaker one(Spec(), 7), two(Spec(), 7), other(Spec(), 9);
  std::vector<uint8_t> a(one.FrameBytes()), b(a), c(a);
  one.Make(a);
  two.Make(b);
  other.Make(c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(FrameTest, TextIsReadStrictly) {
  EXPECT_EQ(*ParseMac("02:00:0a:ff:00:01"), (Mac{2, 0, 10, 255, 0, 1}));
  EXPECT_FALSE(ParseMac("02:00:0a:ff:00").ok());
  EXPECT_FALSE(ParseMac("02:00:0a:ff:00:01:02").ok());
  EXPECT_EQ(*ParseIpv4("10.0.0.1"), 0x0a000001u);
  EXPECT_FALSE(ParseIpv4("10.0.0").ok());
}

}  // namespace
}  // namespace hedgerow::bench
