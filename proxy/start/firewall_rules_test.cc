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

constexpr char kForwarding[] = R"(table inet filter {
	set wan {
		type ifname
		elements = { "ppp0", "eth3" }
	}
	chain input {
		type filter hook input priority filter; policy drop;
		iifname "eth0" tcp dport 22 accept
		iifname @wan accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		oifname "eth0" udp dport 53 drop
		oifname "eth1" accept
		oifname @wan ct state new accept
		iifname "wlan*" accept
	}
	chain user {
		oifname "eth2" accept
	}
}
table ip nat {
	chain post {
		type nat hook postrouting priority srcnat;
		oifname != "eth0" masquerade
		oifname "ppp0" masquerade
	}
}
-A INPUT -i ens1 -j ACCEPT
-A FORWARD -o ens1 -j ACCEPT
-A POSTROUTING ! -o ens2 -j MASQUERADE
-A POSTROUTING -o ens+ -j MASQUERADE
)";

TEST(RulesForForwarded, AreThoseThatLetPacketsPassOrHideThem) {
  const auto of = [](const char* uplink) { return RulesForForwarded(kForwarding, uplink, "hr0"); };
  EXPECT_THAT(of("eth0"), IsEmpty()) << "input, a drop, and what is not for it";
  EXPECT_THAT(of("eth1"), ElementsAre("oifname \"eth1\" accept"));
  EXPECT_THAT(of("eth2"), ElementsAre("oifname \"eth2\" accept"));
  EXPECT_THAT(of("eth3"), ElementsAre("oifname @wan ct state new accept"));
  EXPECT_THAT(of("ppp0"), ElementsAre("oifname @wan ct state new accept", "oifname \"ppp0\" masquerade"));
  EXPECT_THAT(of("wlan0"), ElementsAre("iifname \"wlan*\" accept"));
  EXPECT_THAT(of("ens1"), ElementsAre("-A FORWARD -o ens1 -j ACCEPT", "-A POSTROUTING -o ens+ -j MASQUERADE"));
  EXPECT_THAT(of("ens2"), ElementsAre("-A POSTROUTING -o ens+ -j MASQUERADE"));
}

TEST(RulesThatNameAlone, KnowsPatternsAndNamedSets) {
  EXPECT_THAT(RulesThatNameAlone(kForwarding, "eth3", "hr0"),
              ElementsAre("iifname @wan accept", "oifname @wan ct state new accept"));
  EXPECT_THAT(RulesThatNameAlone("oifname \"*\" accept\noifname \"h*\" accept", "h1", "hr0"), IsEmpty())
      << "they name the proxy's as well";
}

}  // namespace
}  // namespace hedgerow
