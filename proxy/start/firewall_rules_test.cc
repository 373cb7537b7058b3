// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/firewall_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

net::IpAddress Address(const char* text) { return *net::IpAddress::Parse(text); }

constexpr char kRules[] = R"(table inet filter {
	set replicas {
		elements = { 10.77.0.11, 10.77.0.99 }
	}
	chain output {
		type filter hook output priority filter; policy accept;
		ip daddr 10.77.0.12 udp dport 53 drop
		ip daddr 10.77.0.120 drop
		ip daddr 10.77.0.0/24 counter
		ip6 daddr fd77:0::b drop
	}
}
-A OUTPUT -d 10.77.0.12/32 -j DROP
)";

TEST(RulesThatName, FindsAnAddressAsAWholeWordInEverySyntax) {
  EXPECT_THAT(RulesThatName(kRules, {Address("10.77.0.11"), Address("10.77.0.12"), Address("fd77::b")}),
              ElementsAre("elements = { 10.77.0.11, 10.77.0.99 }", "ip daddr 10.77.0.12 udp dport 53 drop",
                          "ip6 daddr fd77:0::b drop", "-A OUTPUT -d 10.77.0.12/32 -j DROP"));
  EXPECT_THAT(RulesThatName(kRules, {Address("10.77.0.1")}), IsEmpty());
  EXPECT_THAT(RulesThatName(kRules, {Address("10.77.0.0")}), IsEmpty()) << "a network is not a backend";
  EXPECT_THAT(RulesThatName(kRules, {}), IsEmpty());
}

TEST(RulesThatNameAlone, FindsAnUplinkWhereTheProxyInterfaceIsNotNamedToo) {
  constexpr char kNames[] = R"(chain out {
		type filter hook output priority filter; policy drop;
		oifname "eth0" udp dport 53 accept
		oifname "eth0" udp dport 123 accept
		oifname "hr0" udp dport 123 accept
		iifname { "eth0", "hr0" } accept
		ip daddr 10.0.0.1 comment "eth0"
		oifname "eth01" accept
	}
-A OUTPUT -o eth0 -p udp -j ACCEPT
)";
  EXPECT_THAT(RulesThatNameAlone(kNames, "eth0", "hr0"),
              ElementsAre("oifname \"eth0\" udp dport 53 accept", "-A OUTPUT -o eth0 -p udp -j ACCEPT"));
  EXPECT_THAT(RulesThatNameAlone(kNames, "eth1", "hr0"), IsEmpty());
}

}  // namespace
}  // namespace hedgerow
