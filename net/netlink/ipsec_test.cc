// SPDX-License-Identifier: Apache-2.0
//
// IPsec policies are read as `ip xfrm` wrote them, and the one that the kernel would obey is found.
#include "net/netlink/ipsec.h"

#include <netinet/in.h>

#include <string>

#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

constexpr char kTunnel[] = " tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel";

class IpsecTest : public NamespaceTest {
 protected:
  void Policy(const std::string& words) { ASSERT_EQ(Shell("ip xfrm policy add " + words), 0) << words; }
  // Of the policy that a packet to 10.77.0.11 port 53 by interface 7 has to obey; empty: of none.
  static std::string Found(const std::string& source = "10.77.0.1", const std::string& destination = "10.77.0.11") {
    const auto policies = ListIpsecPolicies();
    EXPECT_THAT(policies.status(), IsOk());
    const IpsecPolicy* policy = FindIpsecPolicy(*policies, Ip(source), Ip(destination), 53, 7);
    return policy == nullptr ? "" : policy->ToString();
  }
};

TEST_F(IpsecTest, NoPolicySelectsNothing) {
  InNamespace([&] { EXPECT_EQ(Found(), ""); });
}

TEST_F(IpsecTest, APolicyIsForItsNetworksOnly) {
  InNamespace([&] {
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.8/29") + kTunnel);
    Policy(std::string("dir out src fd77::/64 dst fd77::/64") +
           " tmpl src fd00::1 dst fd00::2 proto esp mode transport");
    EXPECT_EQ(Found(), "src 10.77.0.0/24 dst 10.77.0.8/29");
    EXPECT_EQ(Found("10.78.0.1"), "");
    EXPECT_EQ(Found("10.77.0.1", "10.77.0.16"), "");
    EXPECT_EQ(Found("fd77::1", "fd77::b"), "src fd77::/64 dst fd77::/64");
  });
}

TEST_F(IpsecTest, EveryAddressMeansEveryAddress) {
  InNamespace([&] {
    Policy(std::string("dir out src 0.0.0.0/0 dst 0.0.0.0/0") + kTunnel);
    EXPECT_EQ(Found(), "src 0.0.0.0/0 dst 0.0.0.0/0");
    EXPECT_EQ(Found("fd77::1", "fd77::b"), "");
  });
}

TEST_F(IpsecTest, ProtocolPortAndInterfaceAreLookedAt) {
  InNamespace([&] {
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.0/24 proto icmp") + kTunnel);
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.0/24 proto udp dport 500") + kTunnel);
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.0/24 dev lo") + kTunnel);
    EXPECT_EQ(Found(), "");
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.0/24 proto udp dport 53") + kTunnel);
    EXPECT_EQ(Found(), "src 10.77.0.0/24 dst 10.77.0.0/24 dport 53");
  });
}

TEST_F(IpsecTest, AnExceptionThatComesFirstCounts) {
  InNamespace([&] {
    Policy(std::string("dir out src 10.0.0.0/8 dst 10.0.0.0/8 priority 100") + kTunnel);
    EXPECT_EQ(Found(), "src 10.0.0.0/8 dst 10.0.0.0/8");
    Policy("dir out src 10.77.0.0/24 dst 10.77.0.0/24 priority 50");
    EXPECT_EQ(Found(), "");
  });
}

TEST_F(IpsecTest, APolicyThatBlocksIsOneToo) {
  InNamespace([&] {
    Policy("dir out src 10.77.0.0/24 dst 10.77.0.0/24 action block");
    EXPECT_NE(Found(), "");
  });
}

TEST_F(IpsecTest, IncomingAndMarkedOnesAreOfOthers) {
  InNamespace([&] {
    Policy(std::string("dir in src 10.77.0.0/24 dst 10.77.0.0/24") + kTunnel);
    Policy(std::string("dir fwd src 10.77.0.0/24 dst 10.77.0.0/24") + kTunnel);
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.0/24 mark 5 mask 0xff") + kTunnel);
    Policy(std::string("dir out src 10.77.0.0/24 dst 10.77.0.0/24 if_id 9") + kTunnel);
    EXPECT_EQ(Found(), "");
  });
}

}  // namespace
}  // namespace hedgerow::net
