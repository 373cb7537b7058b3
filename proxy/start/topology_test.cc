// SPDX-License-Identifier: Apache-2.0
//
// What is found before anything is made: backends on this host, without a
// route, behind a link without Ethernet; a VIP that is somebody's address.

#include "proxy/start/topology.h"
#include "proxy/start/vips.h"

#include <linux/if_addr.h>
#include <linux/if_arp.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A made-up host: routes by destination, links by number.
struct FakeHost {
  std::map<std::string, net::RouteLookup> routes;
  std::map<int, net::LinkInfo> links;
  std::vector<net::AddressInfo> addresses;
  std::vector<net::IpsecPolicy> ipsec;
  std::vector<net::SenderRule> sender_rules;

  FakeHost() {
    AddLink(2, "eth0", 1500);
    AddLink(3, "eth1", 1400);
    for (const char* address : {"10.77.0.1", "fd77::1"}) AddAddress(address, 2);
    for (const char* address : {"10.78.0.1", "fd78::1"}) AddAddress(address, 3);
    for (const char* address : {"10.77.0.11", "10.77.0.12"}) AddRoute(address, 2, "10.77.0.1");
    AddRoute("fd77::b", 2, "fd77::1");
    AddRoute("10.99.0.53", 2, "10.77.0.1");  // the default route, as for any unknown address
    AddRoute("fd99::1", 2, "fd77::1");
  }
  void AddLink(int ifindex, const std::string& name, uint32_t mtu_bytes, uint16_t type = ARPHRD_ETHER) {
    net::LinkInfo link;
    link.ifindex = ifindex;
    link.name = name;
    link.mtu_bytes = mtu_bytes;
    link.hardware_type = type;
    link.flags = IFF_UP | IFF_RUNNING;
    links[ifindex] = link;
  }
  void AddAddress(const std::string& address, int ifindex) {
    addresses.push_back({.ifindex = ifindex, .address = *net::IpAddress::Parse(address)});
  }
  void AddRoute(const std::string& address, int ifindex, const std::string& source,
                net::Reach reach = net::Reach::kRouted) {
    net::RouteLookup route;
    route.reach = reach;
    route.ifindex = ifindex;
    route.source = *net::IpAddress::Parse(source);
    if (reach == net::Reach::kUnreachable) route.reason = "no route";
    routes[address] = route;
  }
  NetworkView View() const {
    NetworkView view;
    view.look_up_route = [this](const net::RouteQuery& query) -> absl::StatusOr<net::RouteLookup> {
      const std::string bound = query.out_ifindex == 0 ? "" : " by " + links.at(query.out_ifindex).name;
      const std::string from = query.source ? " from " + query.source->ToString() : "";
      const std::string whose =
          query.sender.user ? absl::StrCat(" user ", *query.sender.user, " port ", query.sender.destination_port) : "";
      for (const std::string& key :
           {query.destination.ToString() + from + bound + whose, query.destination.ToString() + from + bound,
            query.destination.ToString() + bound}) {
        const auto found = routes.find(key);
        if (found != routes.end()) return found->second;
      }
      net::RouteLookup none;
      none.reason = "no route";
      return none;
    };
    view.find_link = [this](int ifindex) -> absl::StatusOr<net::LinkInfo> {
      const auto found = links.find(ifindex);
      if (found == links.end()) return absl::NotFoundError("no such interface");
      return found->second;
    };
    for (const auto& [ifindex, link] : links) view.links.push_back(link);
    view.addresses = addresses;
    view.ipsec = ipsec;
    view.sender_rules = sender_rules;
    return view;
  }
};

std::vector<std::string> Texts(const Topology& topology) {
  std::vector<std::string> texts;
  for (const Problem& problem : topology.problems) texts.push_back(problem.ToString());
  return texts;
}

std::vector<int> Uplinks(const Topology& topology, size_t service) {
  std::vector<int> uplinks;
  for (const BackendPath& backend : topology.services.at(service).backends) uplinks.push_back(backend.uplink);
  return uplinks;
}

TEST(Resolve, FindsUplinksSourcesAndMtus) {
  FakeHost host;
  host.AddRoute("fd77::b", 3, "fd78::1");
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(topology.problems, IsEmpty());
  EXPECT_TRUE(topology.ToStatus().ok());
  ASSERT_EQ(topology.services.size(), 2u);
  EXPECT_THAT(Uplinks(topology, 0), ElementsAre(2, 2));
  EXPECT_THAT(Uplinks(topology, 1), ElementsAre(3));
  EXPECT_EQ(topology.services[0].source->ToString(), "10.77.0.1");  // towards the primary, a
  EXPECT_EQ(topology.services[1].source->ToString(), "fd78::1");
  EXPECT_EQ(topology.uplinks.size(), 2u);
  EXPECT_EQ(topology.mtu_bytes, 1500u);
  EXPECT_EQ(topology.RouteMtu(*net::IpAddress::Parse("10.99.0.53"), 1500), 0u) << "the proxy interface's own";
  EXPECT_EQ(topology.RouteMtu(*net::IpAddress::Parse("fd99::1"), 1500), 1400u);
}

TEST(Resolve, ABackendBehindAnotherUplinkThanTheSourceIsAnsweredByEither) {
  FakeHost host;
  host.AddRoute("10.77.0.12", 3, "10.78.0.1");
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(topology.problems, IsEmpty());
  EXPECT_EQ(topology.services[0].source->ToString(), "10.77.0.1");
  EXPECT_EQ(topology.services[0].backends[0].also, 0);
  EXPECT_EQ(topology.services[0].backends[1].uplink, 3);
  EXPECT_EQ(topology.services[0].backends[1].also, 2);
}

TEST(Resolve, ARuleThatNamesTheSourceDecides) {
  FakeHost host;
  host.AddRoute("10.77.0.11 from 10.77.0.1", 3, "10.77.0.1");
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_EQ(topology.services[0].backends[0].uplink, 3);
  EXPECT_EQ(topology.services[0].source->ToString(), "10.77.0.1");
}

TEST(Resolve, AVrfIsNamed) {
  FakeHost host;
  host.AddLink(5, "blue", 1500);
  host.links[5].kind = "vrf";
  host.AddRoute("10.77.0.11", 0, "::", net::Reach::kUnreachable);
  host.AddRoute("10.77.0.11 by blue", 3, "10.78.0.1");
  host.AddRoute("10.77.0.12", 5, "10.78.0.1");
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())),
              ElementsAre(HasSubstr("vrf: service dns: backend a (10.77.0.11) is reached through the VRF blue only"),
                          HasSubstr("vrf: service dns: backend b (10.77.0.12) is reached through the VRF blue only")));
}

TEST(Resolve, ATemporaryAddressAloneIsNoSource) {
  FakeHost host;
  host.addresses[1].flags = IFA_F_TEMPORARY;
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())),
              ElementsAre(HasSubstr("no_source: service echo: backend only")));
}

TEST(Resolve, ARuleThatWouldTakeAVipAwayIsNamedUnlessOursComesBefore) {
  FakeHost host;
  host.routes["10.99.0.53"].table = 52;
  v1::Config config = FakeConfig();
  EXPECT_THAT(Texts(Resolve(config, host.View())), ElementsAre(HasSubstr("vip_routed_elsewhere: service dns")));
  config.set_rule_priority(5000);
  EXPECT_THAT(Texts(Resolve(config, host.View())), IsEmpty());
}

TEST(Resolve, ABackendThatAnIpsecPolicyNamesIsRefused) {
  FakeHost host;
  host.ipsec = {{.source = *net::Network::Parse("10.77.0.0/24"),
                 .destination = *net::Network::Parse("10.77.0.12/32"),
                 .priority = 7}};
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(
      Texts(topology),
      ElementsAre(HasSubstr(
          "ipsec: service dns: backend b (10.77.0.12): the IPsec policy \"src 10.77.0.0/24 dst 10.77.0.12/32\"")));
  EXPECT_FALSE(topology.ToStatus().ok());
}

TEST(Resolve, IpsecIsAskedWithTheSourceThatPacketsHave) {
  FakeHost host;
  host.AddRoute("10.77.0.12", 3, "10.78.0.1");  // b by another uplink, whose own address no packet has
  host.ipsec = {{.source = *net::Network::Parse("10.78.0.1/32"), .destination = *net::Network::Parse("10.77.0.12/32")}};
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())), IsEmpty());
  host.ipsec = {{.source = *net::Network::Parse("10.77.0.1/32"), .destination = *net::Network::Parse("10.77.0.12/32")}};
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())), ElementsAre(HasSubstr("ipsec: service dns: backend b")));
}

TEST(Resolve, TheServicesOfAVipHaveOneSourceAndItIsOneThatOtherHostsKnow) {
  FakeHost host;
  host.AddLink(net::kLoopbackIfindex, "lo", 65536, ARPHRD_LOOPBACK);
  host.AddAddress("192.168.200.1", 3);
  host.AddRoute("192.168.200.1", 1, "192.168.200.1", net::Reach::kLocal);
  v1::Config config = FakeConfig();
  config.mutable_services()->DeleteSubrange(1, 1);
  v1::Service& here = *config.add_services();
  here = config.services(0);
  here.set_name("here");
  here.set_port(153);
  here.mutable_backends()->DeleteSubrange(1, 1);
  here.mutable_backends(0)->set_address("192.168.200.1");
  config.mutable_services()->SwapElements(0, 1);
  const Topology topology = Resolve(config, host.View());
  EXPECT_THAT(Texts(topology), IsEmpty());
  EXPECT_EQ(topology.services[0].source->ToString(), "10.77.0.1");
  EXPECT_EQ(topology.services[1].source->ToString(), "10.77.0.1");
}

TEST(Resolve, AnAddressThatProxiesAloneStillHaveIsNoBackendHere) {
  FakeHost host;
  host.AddLink(net::kLoopbackIfindex, "lo", 65536, ARPHRD_LOOPBACK);
  host.AddLink(9, "hr9", 1500);  // another instance's
  host.links[9].alias = "hedgerow:other";
  host.AddAddress("10.77.0.12", 9);
  host.AddRoute("10.77.0.12", 1, "10.77.0.12", net::Reach::kLocal);
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())),
              ElementsAre(HasSubstr("no_route: service dns: backend b (10.77.0.12) was an address of this host")));
  host.AddAddress("10.77.0.12", 3);
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())), IsEmpty());
}

TEST(Resolve, ASmallPathIsItsOwnVipsAlone) {
  const net::IpAddress four = *net::IpAddress::Parse("10.99.0.53"), six = *net::IpAddress::Parse("fd99::1");
  FakeHost host;
  host.routes["10.77.0.11"].mtu_bytes = 600;
  Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_EQ(topology.mtu_bytes, 1500u);
  EXPECT_EQ(topology.RouteMtu(four, topology.mtu_bytes), 600u);
  EXPECT_EQ(topology.RouteMtu(six, topology.mtu_bytes), 0u);
  host.routes["fd77::b"].mtu_bytes = 600;
  topology = Resolve(FakeConfig(), host.View());
  EXPECT_EQ(topology.mtu_bytes, 1280u) << "the least of IPv6";
  EXPECT_EQ(topology.RouteMtu(four, topology.mtu_bytes), 600u);
  v1::Config ipv4 = FakeConfig();
  ipv4.mutable_services()->RemoveLast();
  topology = Resolve(ipv4, host.View());
  EXPECT_EQ(topology.mtu_bytes, 600u);
  EXPECT_EQ(topology.RouteMtu(four, topology.mtu_bytes), 0u);
}

TEST(Resolve, AVipWithoutAWayKeepsItsMtu) {
  FakeHost host;
  const net::IpAddress six = *net::IpAddress::Parse("fd99::1");
  host.AddRoute("fd77::b", 3, "fd78::1");
  const Topology before = Resolve(FakeConfig(), host.View());
  host.AddRoute("fd77::b", 0, "fd78::1", net::Reach::kUnreachable);
  const Topology after = Succeed(before, Resolve(FakeConfig(), host.View()), host.View());
  EXPECT_EQ(after.RouteMtu(six, after.mtu_bytes), 1400u);
  EXPECT_EQ(after.unrouted.size(), 1u);
}

TEST(CheckVips, ASourceThatAnotherTableTakesIsNamed) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddRoute("10.99.0.53", 9, "10.77.0.1");
  host.AddRoute("fd99::1", 9, "fd77::1");
  const v1::Config config = FakeConfig();
  EXPECT_THAT(CheckVips(config, host.View(), 9), IsEmpty());
  host.AddRoute("10.99.0.53 from 10.78.0.1", 3, "10.78.0.1");
  const auto problems = CheckVips(config, host.View(), 9);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].code, ProblemCode::kVipRoutedElsewhere);
  EXPECT_THAT(problems[0].text, HasSubstr("from 10.78.0.1 the kernel sends the VIP to "));
}

TEST(CheckVips, ABroadcastAddressIsRefused) {
  FakeHost host;
  host.AddRoute("10.99.0.53", 0, "10.77.0.1", net::Reach::kUnreachable);
  EXPECT_THAT(CheckVips(FakeConfig(), host.View(), 0), IsEmpty());
  host.routes.at("10.99.0.53").broadcast = true;
  const auto problems = CheckVips(FakeConfig(), host.View(), 0);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].code, ProblemCode::kVipLocal);
  EXPECT_THAT(problems[0].text, HasSubstr("the vip 10.99.0.53 is a broadcast address of a network of this host"));
}

TEST(CheckVips, ARuleForSomeSendersIsNamedWhereAServicesPortIsMeantAndRefusesNoStart) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddRoute("10.99.0.53", 9, "10.77.0.1");
  host.AddRoute("fd99::1", 9, "fd77::1");
  host.AddRoute("10.99.0.53 user 1000 port 53", 3, "10.78.0.1");
  const v1::Config config = FakeConfig();
  net::SenderRule rule{.family = AF_INET, .sender = {.user = 1000}};
  host.sender_rules = {rule};
  const auto problems = CheckVips(config, host.View(), 9);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].code, ProblemCode::kVipRoutedElsewhere);
  EXPECT_THAT(problems[0].text, HasSubstr("for packets of user 1000 the kernel sends the VIP to "));
  EXPECT_THAT(CheckVips(config, host.View(), 0), IsEmpty());
  const net::VipRoute bound{.vip = *net::IpAddress::Parse("10.99.0.53"), .ifindex = 3};
  EXPECT_THAT(CheckVips(config, host.View(), 9, {}, {}, {bound}), IsEmpty());
  rule.first_port = 54;
  host.sender_rules = {rule};
  EXPECT_THAT(CheckVips(config, host.View(), 9), IsEmpty());
  rule.first_port = 0;
  rule.sender.protocol = 1;  // ICMP
  host.sender_rules = {rule};
  EXPECT_THAT(CheckVips(config, host.View(), 9), IsEmpty());
}

TEST(CheckVips, ARuleForSocketsOfAnUplinkIsNamedAndNotOneForThoseOfAnotherInterface) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddRoute("10.99.0.53", 9, "10.77.0.1");
  host.AddRoute("fd99::1", 9, "fd77::1");
  host.AddRoute("10.99.0.53 by eth0", 0, "10.77.0.1", net::Reach::kUnreachable);
  host.sender_rules = {{.family = AF_INET, .device = "eth0"}};
  const net::VipRoute bound{.vip = *net::IpAddress::Parse("10.99.0.53"), .ifindex = 2};
  const auto problems = CheckVips(FakeConfig(), host.View(), 9, {}, {}, {bound});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].text, HasSubstr("for packets of sockets bound to eth0 the kernel has no route to it"));
  EXPECT_THAT(CheckVips(FakeConfig(), host.View(), 9), IsEmpty())
      << "no clients are bound to an interface without a route to the VIP";
}

TEST(CheckVips, ARuleForANetworkOfClientsIsNamed) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddLink(4, "docker0", 1500);
  host.AddRoute("10.99.0.53", 9, "10.77.0.1");
  host.AddRoute("fd99::1", 9, "fd77::1");
  for (const char* client : {"172.16.0.1", "172.20.0.1"}) host.AddRoute(client, 4, "172.20.0.1");
  v1::Config config = FakeConfig();
  config.mutable_services(0)->add_clients("172.16.0.0/12");
  EXPECT_THAT(CheckVips(config, host.View(), 9), IsEmpty());
  host.AddRoute("10.99.0.53 from 172.20.0.1", 3, "10.78.0.1");
  EXPECT_THAT(CheckVips(config, host.View(), 9), IsEmpty()) << "no rule tells that address from others";
  host.sender_rules = {
      {.family = AF_INET, .from = net::Network{.address = *net::IpAddress::Parse("172.20.0.0"), .bits = 16}}};
  const auto problems = CheckVips(config, host.View(), 9);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].text,
              HasSubstr("for packets that are forwarded from 172.20.0.0/16 the kernel sends the VIP to "));
  host.routes.erase("10.77.0.11");
  EXPECT_THAT(CheckVips(config, host.View(), 9), IsEmpty()) << "nor would it forward them to a backend";
}

TEST(CheckVips, AVipOfTwoServicesIsToldOnceAndNotWhereItIsKnown) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddRoute("fd99::1", 9, "fd77::1");
  host.AddRoute("10.99.0.53", 3, "10.78.0.1");
  host.AddRoute("10.99.0.54", 3, "10.78.0.1");
  v1::Config config = FakeConfig();
  v1::Service& again = *config.add_services();
  again = config.services(0);
  again.set_name("again");
  again.set_port(54);
  EXPECT_THAT(CheckVips(config, host.View(), 9), testing::SizeIs(1));
  EXPECT_THAT(CheckVips(config, host.View(), 9, {*net::IpAddress::Parse("10.99.0.53")}), IsEmpty());
  again.set_vip("10.99.0.54");
  const auto other = CheckVips(config, host.View(), 9, {*net::IpAddress::Parse("10.99.0.53")});
  ASSERT_EQ(other.size(), 1u);
  EXPECT_THAT(other[0].text, HasSubstr("service again"));
}

TEST(CheckUplinks, NoCarrierIsAProblemOfAnUplinkInUseOnly) {
  FakeHost host;
  host.links[2].flags = IFF_UP;
  host.links[3].flags = 0;
  const Topology topology = Resolve(FakeConfig(), host.View());
  const auto problems = CheckUplinks(topology);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].ToString(), "uplink_down: uplink eth0 has no carrier");
}

TEST(Succeed, ABackendThatCannotBeReachedKeepsItsUplinkAndItsServiceTheSource) {
  FakeHost host;
  const Topology before = Resolve(FakeConfig(), host.View());
  for (const char* address : {"10.77.0.11", "10.77.0.12"}) host.AddRoute(address, 0, "::", net::Reach::kUnreachable);
  Topology found = ResolveBackends(FakeConfig(), host.View());
  EXPECT_EQ(found.services[0].backends[0].uplink, 0);
  const Topology next = Succeed(before, std::move(found), host.View());
  EXPECT_THAT(Uplinks(next, 0), ElementsAre(2, 2));
  EXPECT_EQ(next.services[0].source->ToString(), "10.77.0.1");
  EXPECT_TRUE(next.uplinks.contains(2));
}

TEST(Succeed, AfterAMoveRepliesComeByTheFormerUplinkAsLongAsItExists) {
  FakeHost host;
  const Topology before = Resolve(FakeConfig(), host.View());
  for (const char* address : {"10.77.0.11", "10.77.0.12"}) host.AddRoute(address, 3, "10.78.0.1");
  const Topology moved = Succeed(before, ResolveBackends(FakeConfig(), host.View()), host.View());
  EXPECT_THAT(Uplinks(moved, 0), ElementsAre(3, 3));
  EXPECT_EQ(moved.services[0].source->ToString(), "10.78.0.1");
  EXPECT_EQ(moved.services[0].backends[0].also, 2);
  EXPECT_TRUE(moved.uplinks.contains(2));
  EXPECT_FALSE(moved.services[0].backends[0].uplink == 2);
  const Topology later = Succeed(moved, ResolveBackends(FakeConfig(), host.View()), host.View());
  EXPECT_EQ(later.services[0].backends[0].also, 2) << "sockets that connected before the move keep their source";
  host.links.erase(2);
  const Topology without = Succeed(later, ResolveBackends(FakeConfig(), host.View()), host.View());
  EXPECT_EQ(without.services[0].backends[0].also, 0);
  EXPECT_FALSE(without.uplinks.contains(2));
}

TEST(Resolve, ABackendOnThisHostIsReachedByTheLoopbackInterface) {
  FakeHost host;
  host.AddLink(net::kLoopbackIfindex, "lo", 65536, ARPHRD_LOOPBACK);
  host.AddRoute("10.77.0.11", 1, "10.77.0.11", net::Reach::kLocal);
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(Texts(topology), IsEmpty());
  EXPECT_THAT(Uplinks(topology, 0), ElementsAre(1, 2));
  EXPECT_EQ(topology.services[0].source->ToString(), "10.77.0.1")
      << "that of the way to the other host, though this one is the primary";
  EXPECT_EQ(topology.services[0].backends[0].also, 0);
  EXPECT_EQ(topology.services[0].backends[1].also, 0);
  EXPECT_EQ(topology.mtu_bytes, 1500u) << "the loopback interface's is no bound";
}

TEST(Resolve, WithBackendsOnThisHostAloneItsOwnAddressIsTheSource) {
  FakeHost host;
  host.AddLink(net::kLoopbackIfindex, "lo", 65536, ARPHRD_LOOPBACK);
  v1::Config config = FakeConfig();
  config.mutable_services()->DeleteSubrange(1, 1);
  config.mutable_services(0)->mutable_backends(0)->set_address("127.0.0.1");
  host.AddRoute("127.0.0.1", 1, "127.0.0.1", net::Reach::kLoopback);
  host.AddRoute("10.77.0.12", 1, "10.77.0.12", net::Reach::kLocal);
  host.AddAddress("127.0.0.1", 1);
  host.AddAddress("10.77.0.12", 2);
  config.mutable_services(0)->set_primary("b");
  EXPECT_EQ(Resolve(config, host.View()).services[0].source->ToString(), "10.77.0.12");
  config.mutable_services(0)->mutable_backends()->DeleteSubrange(1, 1);
  EXPECT_EQ(Resolve(config, host.View()).services[0].source->ToString(), "10.77.0.1")
      << "the first that is none of lo's";
  host.addresses.clear();
  EXPECT_THAT(Texts(Resolve(config, host.View())),
              ElementsAre(HasSubstr("no_source: service dns: backend a (127.0.0.1) is on this host")));
}

TEST(Resolve, EveryProblemIsListed) {
  FakeHost host;
  host.AddRoute("10.77.0.11", 0, "::", net::Reach::kUnreachable);
  host.AddAddress("10.99.0.53", 2);
  host.AddLink(4, "wg0", 1420, ARPHRD_NONE);
  host.AddRoute("fd77::b", 4, "fd77::1");
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(Texts(topology),
              ElementsAre(HasSubstr("the vip 10.99.0.53 is an address of this host"),
                          HasSubstr("no route to backend a (10.77.0.11): no route"),
                          HasSubstr("backend only (fd77::b) is reached through wg0, which carries no Ethernet")));
}

TEST(Resolve, AnAddressOfKubeProxysModeIpvsCannotBeTakenOverInPlace) {
  FakeHost host;
  v1::Config config = FakeConfig();
  config.mutable_services(0)->set_in_place(true);
  EXPECT_THAT(Texts(Resolve(config, host.View())), IsEmpty());
  host.AddAddress("10.99.0.53", 2);
  EXPECT_THAT(Texts(Resolve(config, host.View())),
              ElementsAre(HasSubstr("list it in `also_at` beside a VIP that no host has")));
  host.AddLink(9, "kube-ipvs0", 1500);
  host.addresses.back().ifindex = 9;
  EXPECT_THAT(Texts(Resolve(config, host.View())), ElementsAre(HasSubstr("kube-proxy's mode ipvs")));
}

TEST(Resolve, TranslatedQuestionsNeedTheOneSourceOfTheirFamily) {
  FakeHost host;
  host.AddRoute("10.78.0.11", 3, "10.78.0.1");
  v1::Config config = FakeConfig();
  v1::Service& other = *config.add_services();
  other = config.services(0);
  other.set_name("other");
  other.set_vip("10.99.0.54");
  other.mutable_backends()->DeleteSubrange(1, 1);
  other.mutable_backends(0)->set_address("10.78.0.11");
  EXPECT_THAT(Texts(Resolve(config, host.View())), IsEmpty());
  config.mutable_services(0)->add_also_at("10.99.0.1");
  EXPECT_THAT(
      Texts(Resolve(config, host.View())),
      ElementsAre(HasSubstr("uplink_unfit: service dns: with `also_at` it needs the one source of its instance, "
                            "and gets 10.77.0.1, service other 10.78.0.1")));
  host.AddRoute("10.78.0.11", 2, "10.77.0.1");
  EXPECT_THAT(Texts(Resolve(config, host.View())), IsEmpty());
}

TEST(MoveOwnAddresses, HiddenVipsTellAddressesApartAndTwoServicesOfOneAreRefused) {
  const auto behind = [](const char* own) { return VipBehind(*net::IpAddress::Parse(own)); };
  EXPECT_EQ(behind("10.78.0.1"), "250.78.0.1");
  EXPECT_NE(behind("10.78.0.1"), behind("26.78.0.1"));
  EXPECT_EQ(behind("fd78::1"), "100::fd78:0:0:1");
  EXPECT_NE(behind("fd78::1"), behind("2001:db8:78::1"));
  v1::Config config = FakeConfig();
  *config.add_services() = config.services(0);
  config.mutable_services(2)->set_name("second");
  EXPECT_THAT(
      Texts(Resolve(config, FakeHost().View())),
      ElementsAre(HasSubstr("vip_local: service second: the hidden VIP 10.99.0.53 of its address is service dns's")));
  config.mutable_services(2)->set_port(5353);
  EXPECT_THAT(Texts(Resolve(config, FakeHost().View())), IsEmpty());
}

TEST(MoveOwnAddresses, WhatWasMovedIsAgainWhileTheHostIsWithoutTheAddress) {
  v1::Config config = FakeConfig();
  v1::Service& service = *config.mutable_services(0);
  service.set_vip("192.0.2.78");
  service.set_in_place(true);
  v1::Config moved = config;
  MoveOwnAddresses(moved);
  EXPECT_EQ(moved.services(0).vip(), "192.0.2.78") << "the control: it is no address of this host";
  v1::Service& before = *moved.mutable_services(0);
  before.set_in_place(false);
  before.set_vip(VipBehind(*net::IpAddress::Parse("192.0.2.78")));
  before.add_also_at("192.0.2.78");
  MoveOwnAddresses(config, moved);
  EXPECT_EQ(config.SerializeAsString(), moved.SerializeAsString());
}

TEST(Resolve, ABackendBehindTheProxyInterfaceIsRefused) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddRoute("10.77.0.12", 9, "10.77.0.1");
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())), ElementsAre(HasSubstr("the proxy interface hr0 itself")));
}

}  // namespace
}  // namespace hedgerow
