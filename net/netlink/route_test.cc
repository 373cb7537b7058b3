// SPDX-License-Identifier: Apache-2.0
//
// Routes: look-ups tell the four cases apart, VIP routes are exclusive, and the address on the proxy interface
// changes what it is for and nothing else.
#include "net/netlink/route.h"

#include <linux/if_addr.h>
#include <netinet/in.h>

#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"
#include "net/netlink/rule.h"
#include "net/netlink/uplink_route.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

class RouteTest : public NamespaceTest {
 protected:
  // A host with an uplink `eth0`, an unrelated older interface `eth1`, and the proxy interface hr0.
  void InHost(const std::function<void()>& body) {
    InNamespace([&] {
      for (const char* command :
           {"ip link add eth1 type veth peer name eth1p", "ip link add eth0 type veth peer name eth0p",
            "ip link set eth1 up", "ip link set eth1p up", "ip link set eth0 up", "ip link set eth0p up",
            "ip addr add 192.168.50.1/24 dev eth1", "ip addr add 10.77.0.1/24 dev eth0",
            "ip addr add fd99:50::1/64 dev eth1 nodad", "ip addr add fd77::1/64 dev eth0 nodad"}) {
        ASSERT_EQ(Shell(command), 0) << command;
      }
      const auto pair = CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = "default"});
      ASSERT_THAT(pair.status(), IsOk());
      hr0_ = pair->link.ifindex;
      eth0_ = FindLink("eth0")->ifindex;
      body();
    });
  }
  VipRoute V4() const { return {.vip = Ip("10.99.0.53"), .ifindex = hr0_, .source = Ip("10.77.0.1")}; }
  VipRoute V6() const { return {.vip = Ip("fd99::53"), .ifindex = hr0_, .source = Ip("fd77::1")}; }

  int hr0_ = 0;
  int eth0_ = 0;
};

TEST(IpAddressTest, ParsesPrintsAndRefuses) {
  EXPECT_EQ(Ip("10.0.0.1").ToString(), "10.0.0.1");
  EXPECT_EQ(Ip("fd77::1").ToString(), "fd77::1");
  EXPECT_EQ(Ip("::ffff:10.0.0.1"), Ip("10.0.0.1"));
  EXPECT_TRUE(Ip("127.8.9.1").is_loopback());
  EXPECT_TRUE(Ip("::1").is_loopback());
  EXPECT_FALSE(Ip("::").is_loopback());
  EXPECT_EQ(Ip("10.0.0.1").wire().size(), 4u);
  EXPECT_EQ(Ip("10.0.0.1").mapped()[10], 0xff);
  for (const char* bad : {"", "10.0.0", "10.0.0.256", "fd77:::1", "fd77::1/64", " 10.0.0.1", "name"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(IpAddress::Parse(bad).status())) << bad;
  }
}

TEST_F(RouteTest, LookUpTellsRoutedLocalLoopbackAndUnreachableApart) {
  InHost([&] {
    for (const auto& [backend, source] : {std::pair("10.77.0.11", "10.77.0.1"), std::pair("fd77::11", "fd77::1")}) {
      const auto routed = LookUpRoute(Ip(backend));
      ASSERT_THAT(routed.status(), IsOk());
      EXPECT_EQ(routed->reach, Reach::kRouted) << backend;
      EXPECT_EQ(routed->ifindex, eth0_) << backend;
      EXPECT_EQ(routed->gateway, std::nullopt) << backend;
      EXPECT_EQ(routed->source, Ip(source)) << backend;
    }
    for (const char* own : {"10.77.0.1", "fd77::1"}) {
      const auto local = LookUpRoute(Ip(own));
      ASSERT_THAT(local.status(), IsOk());
      EXPECT_EQ(local->reach, Reach::kLocal) << own;
      EXPECT_EQ(local->ifindex, eth0_) << own;
    }
    for (const char* loop : {"127.0.0.1", "127.3.2.1", "::1"})
      EXPECT_EQ(LookUpRoute(Ip(loop))->reach, Reach::kLoopback);
    for (const char* nowhere : {"8.8.8.8", "2001:db8::1"}) {
      const auto lookup = LookUpRoute(Ip(nowhere));
      ASSERT_THAT(lookup.status(), IsOk());
      EXPECT_EQ(lookup->reach, Reach::kUnreachable) << nowhere;
      EXPECT_FALSE(lookup->reason.empty()) << nowhere;
      EXPECT_FALSE(lookup->broadcast) << nowhere;
    }
    EXPECT_EQ(LookUpRoute(Ip("10.77.0.255"))->reach, Reach::kUnreachable);
    EXPECT_TRUE(LookUpRoute(Ip("10.77.0.255"))->broadcast);
  });
}

TEST_F(RouteTest, LookUpSeesGatewaysAndRefusingRoutes) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route add default via 10.77.0.254"), 0);
    ASSERT_EQ(Shell("ip -6 route add default via fd77::fe"), 0);
    ASSERT_EQ(Shell("ip route add 10.5.0.0/16 via inet6 fd77::fe dev eth0"), 0);
    EXPECT_EQ(LookUpRoute(Ip("8.8.8.8"))->gateway, Ip("10.77.0.254"));
    EXPECT_EQ(LookUpRoute(Ip("2001:db8::1"))->gateway, Ip("fd77::fe"));
    EXPECT_EQ(LookUpRoute(Ip("10.5.1.1"))->gateway, Ip("fd77::fe"));
    for (const char* type : {"unreachable", "prohibit", "blackhole"}) {
      ASSERT_EQ(Shell(std::string("ip route add ") + type + " 10.6.0.0/16; ip -6 route add " + type + " fd06::/64"), 0);
      for (const char* refused : {"10.6.0.1", "fd06::1"}) {
        const auto lookup = LookUpRoute(Ip(refused));
        ASSERT_THAT(lookup.status(), IsOk()) << type;
        EXPECT_EQ(lookup->reach, Reach::kUnreachable) << type << " " << refused;
        EXPECT_NE(lookup->reason.find(std::string(type) == "unreachable" ? "No route to host" : type),
                  std::string::npos)
            << refused << " " << lookup->reason;
      }
      ASSERT_EQ(Shell("ip route del 10.6.0.0/16; ip -6 route del fd06::/64"), 0);
    }
  });
}

TEST_F(RouteTest, VipRouteSendsToTheProxyInterfaceFromTheUplinksAddress) {
  InHost([&] {
    for (const VipRoute& route : {V4(), V6()}) {
      ASSERT_THAT(AddVipRoute(route), IsOk());
      EXPECT_THAT(AddVipRoute(route), IsOk()) << "adding twice is fine";
      const auto lookup = LookUpRoute(route.vip);
      ASSERT_THAT(lookup.status(), IsOk());
      EXPECT_EQ(lookup->ifindex, hr0_);
      EXPECT_EQ(lookup->source, route.source);
    }
    EXPECT_THAT(*ListVipRoutes(hr0_), ::testing::ElementsAre(V4(), V6()));
    EXPECT_THAT(*ListVipRoutes(), ::testing::ElementsAre(V4(), V6()));
    EXPECT_TRUE(ListVipRoutes(eth0_)->empty());
    for (const VipRoute& route : {V4(), V6()}) {
      EXPECT_THAT(DeleteVipRoute(route), IsOk());
      EXPECT_THAT(DeleteVipRoute(route), IsOk()) << "removing twice is fine";
    }
    EXPECT_TRUE(ListVipRoutes()->empty());
  });
}

TEST_F(RouteTest, VipRouteWithAnotherSourceIsReplaced) {
  InHost([&] {
    ASSERT_EQ(Shell("ip addr add 10.77.0.2/24 dev eth0; ip addr add fd77::2/64 dev eth0 nodad"), 0);
    for (auto [route, source] : {std::pair(V4(), Ip("10.77.0.2")), std::pair(V6(), Ip("fd77::2"))}) {
      ASSERT_THAT(AddVipRoute(route), IsOk());
      route.source = source;
      ASSERT_THAT(AddVipRoute(route), IsOk());
      EXPECT_EQ(LookUpRoute(route.vip)->source, source);
    }
    EXPECT_EQ(ListVipRoutes()->size(), 2u);
  });
}

TEST_F(RouteTest, ARouteGetsAnotherSourceInOneStep) {
  InHost([&] {
    ASSERT_EQ(Shell("ip addr add 10.77.0.2/24 dev eth0; ip addr add fd77::2/64 dev eth0 nodad"), 0);
    for (auto [route, source] : {std::pair(V4(), Ip("10.77.0.2")), std::pair(V6(), Ip("fd77::2"))}) {
      ASSERT_THAT(AddVipRoute(route), IsOk());
      route.source = source;
      ASSERT_THAT(ReplaceVipRoute(route), IsOk());
      EXPECT_EQ(LookUpRoute(route.vip)->source, source);
      EXPECT_EQ(LookUpRoute(route.vip)->ifindex, route.ifindex);
    }
    EXPECT_EQ(ListVipRoutes()->size(), 2u) << "one each, and not one beside the other";
  });
}

TEST_F(RouteTest, VipThatIsTakenIsRefused) {
  InHost([&] {
    for (VipRoute own : {V4(), V6()}) {
      own.vip = *own.source;
      EXPECT_THAT(AddVipRoute(own), FailsWith(absl::StatusCode::kFailedPrecondition, "address of this host"));
    }
    ASSERT_EQ(Shell("ip route add 10.99.0.53/32 dev eth0; ip -6 route add fd99::53/128 dev eth0 metric 77"), 0);
    for (const VipRoute& route : {V4(), V6()}) {
      EXPECT_THAT(AddVipRoute(route), FailsWith(absl::StatusCode::kAlreadyExists, "routed already: dev eth0 proto 3"));
      EXPECT_THAT(DeleteVipRoute(route), IsOk());
      EXPECT_EQ(LookUpRoute(route.vip)->ifindex, eth0_) << "the foreign route was touched";
    }
    // An instance beside ours.
    ASSERT_EQ(Shell("ip route replace 10.99.0.53/32 dev eth0 proto 72"), 0);
    EXPECT_THAT(AddVipRoute(V4()), FailsWith(absl::StatusCode::kAlreadyExists, "another hedgerow instance"));
    EXPECT_THAT(DeleteVipRoute(V4()), IsOk());
    EXPECT_EQ(LookUpRoute(V4().vip)->ifindex, eth0_) << "the other instance's route was touched";
  });
}

TEST_F(RouteTest, RuleThatOverridesTheVipRouteIsAnErrorAndNothingStays) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route add default dev eth0 table 100; ip rule add to 10.99.0.0/16 lookup 100 priority 10"), 0);
    EXPECT_THAT(AddVipRoute(V4()),
                FailsWith(absl::StatusCode::kFailedPrecondition,
                          "sends the VIP to eth0 by the routing rule `10: from all to 10.99.0.0/16 lookup 100`"));
    EXPECT_TRUE(ListVipRoutes()->empty());
  });
}

TEST_F(RouteTest, BadRoutesAreRefused) {
  InHost([&] {
    VipRoute mixed = V4();
    mixed.source = Ip("fd77::1");
    EXPECT_THAT(AddVipRoute(mixed), FailsWith(absl::StatusCode::kInvalidArgument, "different families"));
    VipRoute stranger = V4();
    stranger.source = Ip("1.2.3.4");
    EXPECT_THAT(AddVipRoute(stranger), FailsWith(absl::StatusCode::kInvalidArgument, "prefsrc"));
    VipRoute nowhere = V4();
    nowhere.ifindex = 4711;
    EXPECT_FALSE(AddVipRoute(nowhere).ok());
    ASSERT_THAT(SetLinkDown("hr0"), IsOk());
    EXPECT_FALSE(AddVipRoute(V4()).ok()) << "the interface is down";
    EXPECT_TRUE(ListVipRoutes()->empty());
  });
}

TEST_F(RouteTest, LosingTheUplinksAddressTakesTheVipRoute) {
  InHost([&] {
    ASSERT_THAT(AddVipRoute(V4()), IsOk());
    ASSERT_EQ(Shell("ip addr del 10.77.0.1/24 dev eth0"), 0);
    EXPECT_TRUE(ListVipRoutes()->empty());
  });
}

TEST_F(RouteTest, SourceAddressKeepsTheUplinksOwnEntriesWhenItGoes) {
  InHost([&] {
    ASSERT_TRUE(WaitFor("test $(ip -6 route show table local | grep -c 'local fd') = 2"));
    const std::string snapshot =
        "(ip addr show dev eth0 | grep -v lft; ip route show; ip -6 route show; ip route show table local; "
        "ip -6 route show table local) | grep -vE 'hr0|fe80|ff00' | sort > ";
    char directory[] = "/tmp/hedgerow-route-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    const std::string base = directory;
    ASSERT_EQ(Shell(snapshot + base + "/before"), 0);
    for (const IpAddress& address : {Ip("10.77.0.1"), Ip("fd77::1")}) {
      ASSERT_THAT(AddSourceAddress(hr0_, address), IsOk());
      EXPECT_THAT(AddSourceAddress(hr0_, address), IsOk()) << "adding twice is fine";
      EXPECT_EQ(LookUpRoute(address)->reach, Reach::kLocal);
    }
    EXPECT_EQ(LookUpRoute(Ip("10.77.0.11"))->ifindex, eth0_);
    EXPECT_EQ(LookUpRoute(Ip("fd77::11"))->ifindex, eth0_);
    ASSERT_TRUE(WaitFor("ip -6 route show table local | grep -q 'fd77::1 dev hr0'"));
    ASSERT_EQ(Shell(snapshot + base + "/with"), 0);
    EXPECT_EQ(Shell("diff " + base + "/before " + base + "/with"), 0) << "only hr0's own entries may be new";
    for (const IpAddress& address : {Ip("10.77.0.1"), Ip("fd77::1")}) {
      ASSERT_EQ(Shell("ip addr del " + address.ToString() + " dev hr0"), 0);
      EXPECT_EQ(LookUpRoute(address)->reach, Reach::kLocal) << "the uplink still has it";
    }
    ASSERT_EQ(Shell(snapshot + base + "/after"), 0);
    EXPECT_EQ(Shell("diff " + base + "/before " + base + "/after"), 0);
    Shell("rm -r " + base);
  });
}

TEST_F(RouteTest, VipRoutesHurtByRemovingTheSourceAddressAreMendedByAddingThemAgain) {
  InHost([&] {
    for (const VipRoute& route : {V4(), V6()}) {
      ASSERT_THAT(AddSourceAddress(hr0_, *route.source), IsOk());
      ASSERT_THAT(AddVipRoute(route), IsOk());
      ASSERT_EQ(Shell("ip addr del " + route.source->ToString() + " dev hr0"), 0);
    }
    const auto left = ListVipRoutes();
    ASSERT_THAT(left.status(), IsOk());
    ASSERT_EQ(left->size(), 1u) << "IPv4's is gone";
    EXPECT_EQ(left->front().vip, V6().vip);  // Its source is gone on 6.1, and there on 6.18.
    for (const VipRoute& route : {V4(), V6()}) EXPECT_THAT(AddVipRoute(route), IsOk());
    EXPECT_THAT(*ListVipRoutes(), ::testing::ElementsAre(V4(), V6()));
  });
}

// What names the device finds it, and nothing else does: with the proxy interface's route gone as well.
TEST_F(RouteTest, AnUplinkRouteIsForWhatNamesTheUplink) {
  InHost([&] {
    for (const VipRoute& vip : {V4(), V6()}) {
      VipRoute bound = vip;
      bound.ifindex = eth0_;
      ASSERT_THAT(AddVipRoute(vip), IsOk());
      ASSERT_THAT(AddUplinkRoute(bound, FindLink("eth0")->mac), IsOk());
      ASSERT_THAT(AddUplinkRoute(bound, FindLink("eth0")->mac), IsOk()) << "again";
      EXPECT_EQ(LookUpRoute({.destination = vip.vip}, *ListAddresses())->ifindex, hr0_);
      EXPECT_THAT(AddVipRoute(vip), IsOk()) << "no other owner's";
      EXPECT_THAT(*ListUplinkRoutes(), testing::Contains(bound));
      EXPECT_THAT(*ListVipRoutes(hr0_), testing::Contains(vip));
      const std::string address = vip.vip.ToString();
      EXPECT_EQ(Shell(absl::StrCat("ip route get ", address, " oif eth0 | grep -q 'dev eth0 .*src ",
                                   vip.source->ToString(), "'")),
                0);
      EXPECT_EQ(Shell(absl::StrCat("ip neigh show dev eth0 nud permanent | grep -q '^", address, " '")), 0);
    }
    const auto listed = ListUplinkRoutes();
    ASSERT_THAT(listed.status(), IsOk());
    for (const VipRoute& route : *listed) ASSERT_THAT(DeleteUplinkRoute(route), IsOk());
    EXPECT_THAT(*ListUplinkRoutes(), testing::IsEmpty());
    EXPECT_EQ(Shell("test -z \"$(ip neigh show nud permanent)\""), 0);
    VipRoute gone = V4();
    gone.ifindex = eth0_;
    EXPECT_THAT(DeleteUplinkRoute(gone), IsOk()) << "there is none";
  });
}

TEST_F(RouteTest, EveryUplinkHasARouteOfItsOwn) {
  InHost([&] {
    const int eth1 = FindLink("eth1")->ifindex;
    for (const VipRoute& vip : {V4(), V6()}) {
      VipRoute by_eth0 = vip, by_eth1 = vip;
      by_eth0.ifindex = eth0_;
      by_eth1.ifindex = eth1;
      ASSERT_THAT(AddVipRoute(vip), IsOk());
      for (int round = 0; round < 2; ++round) {
        ASSERT_THAT(AddUplinkRoute(by_eth0, FindLink("eth0")->mac), IsOk());
        ASSERT_THAT(AddUplinkRoute(by_eth1, FindLink("eth1")->mac), IsOk());
        EXPECT_THAT(*ListUplinkRoutes(), testing::IsSupersetOf({by_eth0, by_eth1}));
      }
      for (const char* device : {"eth0", "eth1"})
        EXPECT_EQ(
            Shell(absl::StrCat("ip route get ", vip.vip.ToString(), " oif ", device, " | grep -q 'dev ", device, " '")),
            0)
            << device;
      EXPECT_THAT(DeleteUplinkRoute(by_eth1), IsOk());
      EXPECT_THAT(*ListUplinkRoutes(), testing::Contains(by_eth0));
    }
    EXPECT_THAT(*ListUplinkRoutes(), testing::SizeIs(2));
  });
}

TEST_F(RouteTest, ALookUpFollowsRulesThatNameASource) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route add 10.77.0.0/24 dev eth1 table 9; ip rule add pref 100 from 192.168.50.1 lookup 9"), 0);
    const auto addresses = ListAddresses();
    ASSERT_THAT(addresses.status(), IsOk());
    const auto any = LookUpRoute({.destination = Ip("10.77.0.11")}, *addresses);
    const auto from = LookUpRoute({.destination = Ip("10.77.0.11"), .source = Ip("192.168.50.1")}, *addresses);
    ASSERT_THAT(any.status(), IsOk());
    ASSERT_THAT(from.status(), IsOk());
    EXPECT_EQ(any->ifindex, eth0_);
    EXPECT_EQ(any->table, 254u);
    EXPECT_EQ(from->ifindex, FindLink("eth1")->ifindex);
    EXPECT_EQ(from->table, 9u);
  });
}

TEST_F(RouteTest, RulesForSomeSendersAreReadAndALookUpFollowsThem) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route add 10.77.0.0/24 dev eth1 table 9; ip -6 route add fd77::/64 dev eth1 table 9"), 0);
    const std::vector<std::pair<const char*, SenderRule>> rules = {
        {"uidrange 1000-2000", {.sender = {.user = 1000}}},
        {"fwmark 0x7/0xff", {.sender = {.mark = 7}}},
        {"ipproto udp sport 4000-5000", {.sender = {.protocol = IPPROTO_UDP, .source_port = 4000}}},
        {"ipproto udp dport 53", {.sender = {.protocol = IPPROTO_UDP}, .first_port = 53, .last_port = 53}},
        {"tos 0x10", {.sender = {.tos = 0x10}}},
    };
    const auto addresses = ListAddresses();
    ASSERT_THAT(addresses.status(), IsOk());
    for (const auto& [backend, family] : {std::pair("10.77.0.11", AF_INET), std::pair("fd77::11", AF_INET6)}) {
      const std::string ip = family == AF_INET ? "ip " : "ip -6 ";
      for (const auto& [selector, wanted] : rules) {
        ASSERT_EQ(Shell(absl::StrCat(ip, "rule add pref 100 ", selector, " lookup 9")), 0) << selector;
        const auto found = ListSenderRules();
        ASSERT_THAT(found.status(), IsOk());
        ASSERT_EQ(found->size(), 1u) << selector;
        const SenderRule& rule = found->front();
        EXPECT_EQ(rule.family, family) << selector;
        EXPECT_EQ(rule.sender, wanted.sender) << selector;
        EXPECT_EQ(std::pair(rule.first_port, rule.last_port), std::pair(wanted.first_port, wanted.last_port))
            << selector;
        EXPECT_NE(rule.Describe(), "") << selector;
        Sender sender = rule.sender;
        if (rule.first_port != 0) sender.destination_port = rule.first_port;
        EXPECT_EQ(LookUpRoute({.destination = Ip(backend), .sender = sender}, *addresses)->ifindex,
                  FindLink("eth1")->ifindex)
            << selector;
        EXPECT_EQ(LookUpRoute(Ip(backend))->ifindex, eth0_) << selector;
        EXPECT_EQ(RulesTo(family, 9), absl::StrCat("100: from all ", selector, " lookup 9"));
        ASSERT_EQ(Shell(ip + "rule del pref 100"), 0);
      }
    }
    ASSERT_EQ(Shell("ip rule add pref 101 not fwmark 5 lookup 9; ip rule add pref 102 iif eth1 uidrange 1-2 lookup 9"),
              0);
    EXPECT_TRUE(ListSenderRules()->empty());
    ASSERT_EQ(Shell("ip rule add pref 103 from 10.0.0.0/8 lookup 9; ip rule add pref 104 oif eth0 lookup 9"), 0);
    const auto found = ListSenderRules();
    ASSERT_EQ(found->size(), 2u);
    EXPECT_EQ((*found)[0].from->ToString(), "10.0.0.0/8");
    EXPECT_EQ((*found)[0].Describe(), "");
    EXPECT_EQ((*found)[1].device, "eth0");
    EXPECT_EQ((*found)[1].Describe(), "sockets bound to eth0");
  });
}

TEST_F(RouteTest, ARoutesMtuIsTold) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route add 10.77.0.11 dev eth0 mtu 1300"), 0);
    EXPECT_EQ(LookUpRoute(Ip("10.77.0.11"))->mtu_bytes, 1300u);
    EXPECT_EQ(LookUpRoute(Ip("10.77.0.12"))->mtu_bytes, 0u);
  });
}

TEST_F(RouteTest, AVipRuleComesBeforeARuleThatTakesTheVipAway) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route add 10.0.0.0/8 dev eth0 table 52; ip rule add pref 5270 lookup 52"), 0);
    const absl::Status refused = AddVipRoute(V4());
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, "5270: from all lookup 52"));
    const VipRule rule = {.vip = V4().vip, .priority = 5000};
    EXPECT_THAT(AddVipRule(rule), IsOk());
    EXPECT_THAT(AddVipRule(rule), IsOk()) << "it is there already";
    EXPECT_THAT(AddVipRoute(V4()), IsOk());
    EXPECT_THAT(ListVipRules().value(), ::testing::ElementsAre(rule));
    EXPECT_THAT(DeleteVipRule(rule), IsOk());
    EXPECT_THAT(DeleteVipRule(rule), IsOk()) << "it is gone already";
    EXPECT_THAT(ListVipRules().value(), ::testing::IsEmpty());
    EXPECT_EQ(Shell("ip rule show | grep -q 5270"), 0) << "others' rules stay";
  });
}

TEST_F(RouteTest, ASourceAddressEnablesIpv6OnItsOwnInterfaceOnly) {
  InNamespace([&] {
    ASSERT_EQ(Shell("sysctl -qw net.ipv6.conf.default.disable_ipv6=1"), 0);
    const auto pair = CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = "default"});
    ASSERT_THAT(pair.status(), IsOk());
    EXPECT_THAT(AddSourceAddress(pair->link.ifindex, Ip("fd77::1")), IsOk());
    EXPECT_EQ(Shell("test $(sysctl -n net.ipv6.conf.hr0.disable_ipv6) = 0"), 0);
    EXPECT_EQ(Shell("test $(sysctl -n net.ipv6.conf.hr0p.disable_ipv6) = 1"), 0);
    EXPECT_EQ(Shell("test $(sysctl -n net.ipv6.conf.default.disable_ipv6) = 1"), 0);
    EXPECT_THAT(DeleteSourceAddress(pair->link.ifindex, Ip("fd77::1")), IsOk());
    EXPECT_THAT(DeleteSourceAddress(pair->link.ifindex, Ip("fd77::1")), IsOk()) << "it is gone already";
  });
}

// What the kernel chose, and what the interface has: address, ifindex, flags.
std::string Chosen(const std::string& kernels, const std::vector<AddressInfo>& addresses) {
  RouteLookup route{.reach = Reach::kRouted, .ifindex = 2};
  if (!kernels.empty()) route.source = Ip(kernels);
  const auto source =
      StableSource(Ip(kernels.find(':') == std::string::npos ? "10.77.0.11" : "fd77::b"), route, addresses);
  return source ? source->ToString() : "none";
}

TEST(StableSourceTest, TemporaryTentativeAndDeprecatedAddressesAreNotTaken) {
  const AddressInfo stable{.ifindex = 2, .address = Ip("fd77::1"), .prefix_bits = 64};
  const AddressInfo other{.ifindex = 3, .address = Ip("fd77::3"), .prefix_bits = 64};
  const auto with = [](uint32_t flags) {
    return AddressInfo{.ifindex = 2, .address = Ip("fd77::abcd"), .prefix_bits = 64, .flags = flags};
  };
  EXPECT_EQ(Chosen("fd77::abcd", {with(0), stable}), "fd77::abcd");
  EXPECT_EQ(Chosen("fd77::abcd", {with(IFA_F_TEMPORARY), stable}), "fd77::1");
  EXPECT_EQ(Chosen("fd77::abcd", {with(IFA_F_TENTATIVE), stable}), "fd77::1");
  EXPECT_EQ(Chosen("fd77::abcd", {with(IFA_F_TENTATIVE | IFA_F_OPTIMISTIC), stable}), "fd77::abcd");
  EXPECT_EQ(Chosen("fd77::abcd", {with(IFA_F_DEPRECATED), stable}), "fd77::1");
  EXPECT_EQ(Chosen("fd77::abcd", {with(IFA_F_DEPRECATED)}), "fd77::abcd") << "better than none";
  EXPECT_EQ(Chosen("fd77::abcd", {with(IFA_F_TEMPORARY), other}), "none")
      << "another interface's is the kernel's to choose";
  EXPECT_EQ(Chosen("fd77::3", {stable, other}), "fd77::3");
}

TEST(StableSourceTest, AnAddressThatOnlyTheProxyInterfaceStillHasIsNoSource) {
  EXPECT_EQ(Chosen("10.77.0.1", {}), "none");
  EXPECT_EQ(Chosen("10.77.0.1", {{.ifindex = 2, .address = Ip("10.77.0.9"), .prefix_bits = 24}}), "10.77.0.9");
}

}  // namespace
}  // namespace hedgerow::net
