// SPDX-License-Identifier: Apache-2.0
//
// From an address to a slot, without a kernel. What the kernel itself chooses is compared in
// group_choice_test.cc.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "bpf/abi/siphash_abi.h"
#include "bpf/steer/bucket.h"
#include "steer/kernel_group.h"

namespace hedgerow::steer {
namespace {

struct Address {
  int family = 0;
  uint8_t bytes[16] = {};
};

Address Of(const std::string& text) {
  Address address;
  address.family = text.find(':') == std::string::npos ? 4 : 6;
  EXPECT_EQ(inet_pton(address.family == 4 ? AF_INET : AF_INET6, text.c_str(), address.bytes), 1) << text;
  return address;
}

Device NetworkOf(const std::string& text, uint32_t bits, uint64_t id, bool gateway = false) {
  const Address address = Of(text);
  Device device;
  device.network.family = static_cast<uint32_t>(address.family);
  device.network.prefix_bits = 32 + bits;
  memcpy(device.network.words, address.bytes, sizeof(device.network.words));
  device.device.id = id;
  device.device.is_gateway = gateway;
  return device;
}

class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() {
    config_.layout = HR_STEER_LAYOUT;
    config_.ipv6_prefix = 128;
    config_.seed = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    for (size_t bucket = 0; bucket < table_.size(); ++bucket) table_[bucket].slot = static_cast<uint8_t>(bucket % 4);
  }
  Choice Explained(const std::string& text, const std::vector<uint8_t>& payload = {}) {
    return Explain(config_, devices_, pins_, table_, *net::IpAddress::Parse(text), payload);
  }

  hr_steer_config config_{};
  std::vector<Device> devices_;
  std::vector<std::pair<hr_steer_source, uint8_t>> pins_;
  std::array<hr_steer_entry, HR_STEER_BUCKETS> table_{};
};

// Running groups rely on it: a change needs another HR_STEER_LAYOUT. SipHash itself is tested with its paper's
// vectors elsewhere.
TEST_F(ExplainTest, TheBucketIsSipHashOfFamilyAndAddress) {
  const unsigned char ipv4[24] = {4, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 7};
  EXPECT_EQ(Explained("192.0.2.7").bucket, hr_siphash(&config_.seed, ipv4, sizeof(ipv4)) % 1024);
  const unsigned char ipv6[24] = {6, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  EXPECT_EQ(Explained("2001:db8::9").bucket, hr_siphash(&config_.seed, ipv6, sizeof(ipv6)) % 1024);
}

TEST_F(ExplainTest, TheSlotIsTheBucketsEntry) {
  const Choice choice = Explained("192.0.2.7");
  EXPECT_EQ(choice.slot, choice.bucket % 4);
  EXPECT_FALSE(choice.pinned);
}

TEST_F(ExplainTest, AddressesInARowSpreadEvenlyOverTheBuckets) {
  constexpr int kAddresses = 102'400;
  std::vector<double> buckets(HR_STEER_BUCKETS);
  for (uint32_t i = 0; i < kAddresses; ++i) {
    const uint32_t number = htonl(0x0a000000 + i);
    const auto address = net::IpAddress::FromBytes(std::span(reinterpret_cast<const uint8_t*>(&number), 4));
    ++buckets[Explain(config_, {}, {}, table_, *address, {}).bucket];
  }
  double chi_square = 0;
  for (const double count : buckets) chi_square += (count - 100) * (count - 100) / 100;
  EXPECT_LT(chi_square, 1131.2) << "99 % of chi-square with 1,023 degrees of freedom";
}

TEST_F(ExplainTest, AnIpv6PrefixIsOneSource) {
  config_.ipv6_prefix = 56;
  EXPECT_EQ(Explained("2001:db8:0:12ff::1").bucket, Explained("2001:db8:0:1234::2").bucket);
  EXPECT_NE(Explained("2001:db8:0:12ff::1").bucket, Explained("2001:db8:0:13ff::1").bucket);
  config_.ipv6_prefix = 100;
  EXPECT_EQ(Explained("2001:db8::1:0fff:ffff").bucket, Explained("2001:db8::1:0000:0001").bucket);
  EXPECT_NE(Explained("2001:db8::1:0fff:ffff").bucket, Explained("2001:db8::1:1fff:ffff").bucket);
}

TEST_F(ExplainTest, TheLongestNetworkGivesTheDevice) {
  devices_ = {NetworkOf("192.0.2.0", 24, 1), NetworkOf("192.0.2.128", 25, 2), NetworkOf("0.0.0.0", 0, 3),
              NetworkOf("2001:db8::", 32, 1)};
  EXPECT_EQ(Explained("192.0.2.7").source.words[0], 1u);
  EXPECT_EQ(Explained("192.0.2.200").source.words[0], 2u);
  EXPECT_EQ(Explained("198.51.100.1").source.words[0], 3u);
  EXPECT_EQ(Explained("2001:db8:77::1").bucket, Explained("192.0.2.7").bucket) << "one device, two families";
  EXPECT_EQ(Explained("2001:db9::1").source.kind, uint64_t{HR_STEER_IPV6});
}

TEST_F(ExplainTest, AGatewaysDatagramNamesItsDevice) {
  devices_ = {NetworkOf("192.0.2.0", 24, 7, true)};
  config_.field_offset = 4;
  config_.field_bytes = 2;
  const Choice a = Explained("192.0.2.1", {0, 0, 0, 0, 0xa, 0xb});
  EXPECT_EQ(a.source.kind, uint64_t{HR_STEER_FIELD});
  EXPECT_EQ(a.bucket, Explained("192.0.2.99", {9, 9, 9, 9, 0xa, 0xb, 1}).bucket);
  EXPECT_NE(a.bucket, Explained("192.0.2.1", {0, 0, 0, 0, 0xa, 0xc}).bucket);
  EXPECT_EQ(Explained("192.0.2.1", {0, 0, 0, 0, 0xa}).source.words[0], 7u) << "too short for the field";
  EXPECT_EQ(Explained("198.51.100.1", {0, 0, 0, 0, 0xa, 0xb}).source.kind, uint64_t{HR_STEER_IPV4}) << "no gateway";
}

TEST_F(ExplainTest, APinWinsOverTheTable) {
  const Choice before = Explained("192.0.2.7");
  pins_ = {{before.source, 3 - before.slot}};
  EXPECT_EQ(Explained("192.0.2.7").slot, 3 - before.slot);
  EXPECT_TRUE(Explained("192.0.2.7").pinned);
  EXPECT_FALSE(Explained("192.0.2.8").pinned);
}

TEST_F(ExplainTest, AVacantSlotsSourcesAreWithTheOther) {
  for (hr_steer_entry& entry : table_) {
    entry.other_slot = 9;
    entry.empty = HR_STEER_OTHER;
  }
  EXPECT_NE(Explained("192.0.2.7").slot, 9);
  for (hr_steer_entry& entry : table_) entry.is_vacant = 1;
  EXPECT_EQ(Explained("192.0.2.7").slot, 9);
}

TEST(NewConfigTest, DrawsAnotherSeedEachTime) {
  const auto a = NewConfig(), b = NewConfig();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->seed.k0, b->seed.k0);
  EXPECT_EQ(a->layout, uint32_t{HR_STEER_LAYOUT});
}

}  // namespace
}  // namespace hedgerow::steer
