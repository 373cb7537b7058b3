// SPDX-License-Identifier: Apache-2.0
//
// The rules of VIPs in place, as the system's own nft shows them: made, renewed, given back and removed as one.
#include "net/netlink/in_place.h"

#include "absl/strings/str_cat.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

class InPlaceTest : public NamespaceTest {
 protected:
  InPlaceTest() {
    for (const char* vip : {"10.96.0.10", "fd00::a"}) rules_.known.insert({Ip(vip), 53});
    rules_.live = rules_.known;
    for (const char* pod : {"10.244.0.5", "fd44::5"}) rules_.bridged[{Ip(pod), 5353}] = {2, 0, 0, 0, 0, 1};
  }
  static int Lists(const std::string& what, const std::string& line) {
    return Shell("nft list " + what + " | tr -s '\\n\\t ' ' ' | grep -qF '" + line + "'");
  }
  // It lives for kInPlaceLife from when it was put or renewed.
  static bool IsFresh(const std::string& what, const std::string& element) {
    int fresh = 1;
    const auto life = static_cast<int>(absl::ToInt64Seconds(kInPlaceLife));
    for (int seconds = life - 4; seconds < life && fresh != 0; ++seconds)
      fresh = Lists(what, absl::StrCat(element, " expires ", seconds, "s"));
    return fresh == 0;
  }

  InPlaceRules rules_{.instance = "test", .interface = "hr0", .known = {}, .live = {}, .bridged = {}};
};

TEST_F(InPlaceTest, NftShowsTheRulesAndNoOthersChange) {
  InNamespace([&] {
    ASSERT_EQ(Shell("nft add table inet foreign"), 0);
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    for (const char* rule : {"ip daddr . meta l4proto . th dport @live4 fib daddr oifname \"hr0\" notrack",
                             "ip6 daddr . meta l4proto . th dport @live6 fib daddr oifname \"hr0\" notrack"}) {
      EXPECT_EQ(Lists("chain inet hedgerow-test prerouting", rule), 0) << rule;
    }
    EXPECT_EQ(Lists("chain inet hedgerow-test prerouting", "type filter hook prerouting priority raw; policy accept;"),
              0);
    EXPECT_EQ(Lists("chain inet hedgerow-test prerouting",
                    "iifname \"hr0\" ip saddr . meta l4proto . th sport @known4 notrack"),
              0);
    EXPECT_EQ(
        Lists("chain inet hedgerow-test output", "oifname \"hr0\" ip daddr . meta l4proto . th dport @live4 notrack"),
        0);
    EXPECT_EQ(Lists("set inet hedgerow-test live4", "10.96.0.10 . tcp . 53 expires"), 0);
    EXPECT_EQ(Lists("set inet hedgerow-test live6", "fd00::a . udp . 53 expires"), 0);
    EXPECT_EQ(Lists("set inet hedgerow-test known6", "fd00::a . udp . 53"), 0);
    EXPECT_EQ(Lists("chain bridge hedgerow-test prerouting",
                    "ether daddr set ip saddr . meta l4proto . th sport map @live4 meta pkttype set host"),
              0);
    EXPECT_EQ(Lists("map bridge hedgerow-test live4", ": 02:00:00:00:00:01"), 0);
    EXPECT_EQ(Lists("tables", "inet foreign"), 0);
  });
}

TEST_F(InPlaceTest, WhatIsPutAgainReplacesTheFormerRules) {
  InNamespace([&] {
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    rules_.live.clear();
    rules_.bridged.clear();
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    EXPECT_NE(Lists("set inet hedgerow-test live4", "elements"), 0);
    EXPECT_EQ(Shell("test $(nft list chain inet hedgerow-test output | grep -c notrack) = 2"), 0);
    EXPECT_NE(Lists("tables", "bridge hedgerow-test"), 0) << "it has nothing to send up any more";
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk()) << "nor is it missed";
  });
}

TEST_F(InPlaceTest, LentAddressesAreTranslatedForThisHostAndForListedNetworks) {
  InNamespace([&] {
    for (const auto& [asked, vip, clients] :
         {std::tuple("10.78.0.1", "240.78.0.1", "10.78.0.0/23"), std::tuple("fd78::1", "100::1", "fd78::/61")}) {
      rules_.lent[{Ip(asked), 53}] = Ip(vip);
      rules_.lent_to.push_back({Network::Parse(clients).value(), {Ip(asked), 53}});
    }
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    for (const auto& [chain, rule] :
         {std::pair("lent_in", "type nat hook prerouting priority dstnat - 1; policy accept;"),
          std::pair("lent_in",
                    "ip saddr 10.78.0.0/23 ip daddr 10.78.0.1 th dport 53 "
                    "dnat ip to ip daddr . meta l4proto . th dport map @lent4"),
          std::pair("lent_in",
                    "ip6 saddr fd78::/61 ip6 daddr fd78::1 th dport 53 "
                    "dnat ip6 to ip6 daddr . meta l4proto . th dport map @lent6"),
          std::pair("lent_out", "meta mark != 0x48520000 dnat ip to ip daddr . meta l4proto . th dport map @lent4"),
          std::pair("lent_way", "type nat hook postrouting priority srcnat - 1; policy accept;"),
          std::pair("lent_way",
                    "oifname \"hr0\" ct status dnat ip6 daddr . meta l4proto . th dport @behind6 masquerade")})
      EXPECT_EQ(Lists(absl::StrCat("chain inet hedgerow-test ", chain), rule), 0) << rule;
    EXPECT_EQ(Lists("map inet hedgerow-test lent4", "10.78.0.1 . udp . 53 expires"), 0);
    EXPECT_EQ(Lists("map inet hedgerow-test lent6", ": 100::1"), 0);
    EXPECT_EQ(Lists("set inet hedgerow-test behind4", "240.78.0.1 . tcp . 53"), 0);
    EXPECT_THAT(RenewInPlace(rules_), IsOk());
    EXPECT_THAT(GiveBackInPlace("test"), IsOk());
    EXPECT_NE(Lists("map inet hedgerow-test lent4", "elements"), 0);
  });
}

TEST_F(InPlaceTest, AsManyBackendsAsAnInstanceHasFitOneTransaction) {
  InNamespace([&] {
    for (int i = 0; i < 1024; ++i) rules_.bridged[{Ip(absl::StrCat("fd44::", absl::Hex(i))), 53}] = {2, 0, 0, 0, 0, 1};
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    EXPECT_THAT(RenewInPlace(rules_), IsOk());
  });
}

TEST_F(InPlaceTest, WhatIsRenewedLivesAnew) {
  InNamespace([&] {
    EXPECT_TRUE(absl::IsNotFound(RenewInPlace(rules_)));
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    sleep(4);  // for as long the machine may stand still between a renewal and what nft shows of it
    EXPECT_FALSE(IsFresh("set inet hedgerow-test live4", "10.96.0.10 . udp . 53"));
    ASSERT_THAT(RenewInPlace(rules_), IsOk());
    EXPECT_TRUE(IsFresh("set inet hedgerow-test live4", "10.96.0.10 . udp . 53"));
    EXPECT_TRUE(IsFresh("map bridge hedgerow-test live6", "fd44::5 . tcp . 5353"));
    EXPECT_EQ(Shell("nft delete element inet hedgerow-test live4 '{ 10.96.0.10 . udp . 53 }'"), 0);
    ASSERT_THAT(RenewInPlace(rules_), IsOk());
    EXPECT_EQ(Lists("set inet hedgerow-test live4", "10.96.0.10 . udp . 53"), 0);
  });
}

TEST_F(InPlaceTest, WhatIsGivenBackIsNotLiveAndWhatIsRemovedIsGone) {
  InNamespace([&] {
    EXPECT_THAT(GiveBackInPlace("test"), IsOk());
    ASSERT_THAT(PutInPlaceRules(rules_), IsOk());
    EXPECT_THAT(GiveBackInPlace("test"), IsOk());
    EXPECT_NE(Lists("set inet hedgerow-test live4", "elements"), 0);
    EXPECT_NE(Lists("map bridge hedgerow-test live6", "elements"), 0);
    EXPECT_EQ(Lists("set inet hedgerow-test known4", "10.96.0.10 . tcp . 53"), 0);
    EXPECT_TRUE(RemoveInPlaceRules("test").value());
    EXPECT_FALSE(RemoveInPlaceRules("test").value());
    EXPECT_EQ(Shell("test -z \"$(nft list tables)\""), 0);
  });
}

}  // namespace
}  // namespace hedgerow::net
