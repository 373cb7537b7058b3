// SPDX-License-Identifier: Apache-2.0
//
// Which addresses may be a VIP or a backend, and how ADDRESS:PORT is written.

#include "config/address.h"

#include <gtest/gtest.h>

namespace hedgerow::config {
namespace {

std::string Reason(const char* text) {
  const auto address = net::IpAddress::Parse(text);
  return address.ok() ? WhyNotUnicast(*address) : "not an address";
}

TEST(WhyNotUnicast, AcceptsUnicastOfBothFamilies) {
  for (const char* text : {"10.99.0.53", "192.168.1.1", "223.255.255.254", "fd99::53", "2001:db8::1"}) {
    EXPECT_EQ(Reason(text), "") << text;
  }
}

TEST(WhyNotUnicast, NamesTheReason) {
  EXPECT_EQ(Reason("0.0.0.0"), "an unspecified address");
  EXPECT_EQ(Reason("::"), "an unspecified address");
  EXPECT_EQ(Reason("127.0.0.53"), "a loopback address");
  EXPECT_EQ(Reason("::1"), "a loopback address");
  EXPECT_EQ(Reason("224.0.0.1"), "a multicast address");
  EXPECT_EQ(Reason("ff02::1"), "a multicast address");
  EXPECT_EQ(Reason("255.255.255.255"), "a broadcast address");
  EXPECT_EQ(Reason("250.0.0.1"), "a reserved address");
  EXPECT_EQ(Reason("169.254.1.1"), "a link-local address");
  EXPECT_EQ(Reason("fe80::1"), "a link-local address");
}

TEST(ParseIp, RefusesWhatIsNotWrittenPlainly) {
  for (const char* text : {"", "10.0.0", "10.0.0.256", "010.0.0.1", " 10.0.0.1", "10.0.0.1 ", "10.0.0.1/24",
                           "fe80::1%eth0", "localhost", "1:2:3:4:5:6:7:8:9"}) {
    EXPECT_FALSE(net::IpAddress::Parse(text).ok()) << text;
  }
}

TEST(ParseEndpoint, IsTheInverseOfFormatting) {
  for (const char* text : {"127.0.0.1:9464", "[::1]:0", "[fd77::b]:65535"}) {
    const auto endpoint = ParseEndpoint(text);
    ASSERT_TRUE(endpoint.has_value()) << text;
    EXPECT_EQ(FormatEndpoint(endpoint->address.ToString(), endpoint->port), text);
  }
}

TEST(ParseEndpoint, RefusesWhatIsNoAddressWithPort) {
  for (const char* text : {"", ":", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                           "127.0.0.1:1x", "::1:9464", "[::1:9464", "[127.0.0.1]:9464", "localhost:9464"}) {
    EXPECT_FALSE(ParseEndpoint(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace hedgerow::config
