// SPDX-License-Identifier: Apache-2.0
#include "net/networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::net {
namespace {

using testing::HasSubstr;

Networks ListOf(std::initializer_list<const char*> texts) {
  std::vector<Network> list;
  for (const char* text : texts) list.push_back(*Network::Parse(text));
  return Networks(std::move(list));
}

bool Has(const Networks& networks, const char* address) {
  return networks.Contains(IpAddress::Parse(address)->mapped());
}

TEST(Networks, APrefixDecidesToTheBit) {
  const Networks networks = ListOf({"10.16.0.0/12", "192.0.2.7", "fd00:1:2:8000::/49", "2001:db8::1/128"});
  EXPECT_TRUE(Has(networks, "10.16.0.0"));
  EXPECT_TRUE(Has(networks, "10.31.255.255"));
  EXPECT_FALSE(Has(networks, "10.15.255.255"));
  EXPECT_FALSE(Has(networks, "10.32.0.0"));
  EXPECT_TRUE(Has(networks, "192.0.2.7"));
  EXPECT_FALSE(Has(networks, "192.0.2.6"));
  EXPECT_TRUE(Has(networks, "fd00:1:2:ffff::1"));
  EXPECT_FALSE(Has(networks, "fd00:1:2:7fff::1"));
  EXPECT_TRUE(Has(networks, "2001:db8::1"));
  EXPECT_FALSE(Has(networks, "2001:db8::2"));
}

TEST(Networks, EachFamilyIsListedForItself) {
  const Networks all4 = ListOf({"0.0.0.0/0"}), all6 = ListOf({"::/0"});
  EXPECT_TRUE(Has(all4, "203.0.113.1"));
  EXPECT_FALSE(Has(all4, "2001:db8::1"));
  EXPECT_TRUE(Has(all6, "2001:db8::1"));
  EXPECT_TRUE(Has(all6, "::"));
  EXPECT_FALSE(Has(all6, "203.0.113.1"));
  EXPECT_FALSE(Has(all6, "::ffff:203.0.113.1")) << "how sockets for both families name an IPv4 source";
}

TEST(Networks, NothingIsInAnEmptyList) { EXPECT_FALSE(Has(Networks(), "127.0.0.1")); }

TEST(Networks, PrivateOnesAreThoseThatNoPacketOfTheInternetComesFrom) {
  for (const char* inside : {"127.0.0.1", "127.8.9.10", "10.77.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
                             "169.254.1.1", "::1", "fd77::1", "fc00::1", "fe80::1"}) {
    EXPECT_TRUE(Has(PrivateNetworks(), inside)) << inside;
  }
  for (const char* outside :
       {"0.0.0.0", "8.8.8.8", "100.64.0.1", "172.15.255.255", "172.32.0.0", "192.169.0.1", "192.0.2.1",
        "255.255.255.255", "::", "::2", "2001:db8::1", "fec0::1", "::ffff:8.8.8.8"}) {
    EXPECT_FALSE(Has(PrivateNetworks(), outside)) << outside;
  }
}

TEST(Network, IsWrittenWithItsPrefix) {
  EXPECT_EQ(Network::Parse("10.0.0.0/8")->ToString(), "10.0.0.0/8");
  EXPECT_EQ(Network::Parse("10.0.0.1")->ToString(), "10.0.0.1/32");
  EXPECT_EQ(Network::Parse("FD00:0::/8")->ToString(), "fd00::/8");
  EXPECT_EQ(Network::Parse("::ffff:10.0.0.0/8")->ToString(), "10.0.0.0/8");
}

TEST(Network, OtherTextsAreRefusedWithWhatWasMeant) {
  const auto why = [](const char* text) { return std::string(Network::Parse(text).status().message()); };
  EXPECT_THAT(why("10.0.0.1/8"), HasSubstr("did you mean 10.0.0.0/8?"));
  EXPECT_THAT(why("fd77::1/64"), HasSubstr("did you mean fd77::/64?"));
  EXPECT_THAT(why("10.0.0.0/33"), HasSubstr("IPv4 has 0 to 32 bits"));
  EXPECT_THAT(why("::/129"), HasSubstr("IPv6 has 0 to 128 bits"));
  EXPECT_THAT(why("::ffff:0.0.0.0/96"), HasSubstr("IPv4 has 0 to 32 bits"));
  for (const char* text : {"", "/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/ 8", "10.0.0.0/8/8",
                           "10.0.0/8", "10.0.0.0/0x8", "any", "10.0.0.0/4294967304"}) {
    EXPECT_FALSE(Network::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace hedgerow::net
