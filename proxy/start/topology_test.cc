// SPDX-License-Identifier: Apache-2.0
//
// What is found before anything is made: backends on this host, without a
// route, behind a link without Ethernet; a VIP that is somebody's address.

#include "proxy/start/topology.h"

#include <linux/if_arp.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

  FakeHost() {
    AddLink(2, "eth0", 1500);
    AddLink(3, "eth1", 1400);
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
    link.flags = IFF_UP;
    links[ifindex] = link;
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
    return {[this](const net::IpAddress& address) -> absl::StatusOr<net::RouteLookup> {
              const auto found = routes.find(address.ToString());
              if (found == routes.end())
                return absl::InternalError("the fake host has no " + address.ToString());
              return found->second;
            },
            [this](int ifindex) -> absl::StatusOr<net::LinkInfo> { return links.at(ifindex); }};
  }
};

std::vector<std::string> Texts(const Topology& topology) {
  std::vector<std::string> texts;
  for (const Problem& problem : topology.problems) texts.push_back(problem.ToString());
  return texts;
}

TEST(Resolve, FindsUplinksSourcesAndTheSmallestMtu) {
  FakeHost host;
  host.AddRoute("fd77::b", 3, "fd78::1");
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(topology.problems, IsEmpty());
  EXPECT_TRUE(topology.ToStatus().ok());
  ASSERT_EQ(topology.services.size(), 2u);
  EXPECT_THAT(topology.services[0].uplinks, ElementsAre(2, 2));
  EXPECT_THAT(topology.services[1].uplinks, ElementsAre(3));
  EXPECT_EQ(topology.services[0].source->ToString(), "10.77.0.1");  // towards the primary, a
  EXPECT_EQ(topology.services[1].source->ToString(), "fd78::1");
  EXPECT_EQ(topology.uplinks.size(), 2u);
  EXPECT_EQ(topology.mtu_bytes, 1400u);
}

TEST(Resolve, BackendsOfOneServiceBehindDifferentUplinksAreRefused) {
  FakeHost host;
  host.AddRoute("10.77.0.12", 3, "10.78.0.1");
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())),
              ElementsAre(HasSubstr("service dns: backends a and b are reached through different uplinks")));
}

TEST(Resolve, ABackendOnThisHostIsRefusedWithTheReason) {
  FakeHost host;
  host.AddRoute("10.77.0.12", 2, "10.77.0.12", net::Reach::kLocal);
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(Texts(topology),
              ElementsAre(HasSubstr("service dns: backend b (10.77.0.12) is on this host: its "
                                    "replies never cross an uplink")));
  EXPECT_EQ(topology.ToStatus().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Resolve, EveryProblemIsListed) {
  FakeHost host;
  host.AddRoute("10.77.0.11", 0, "::", net::Reach::kUnreachable);
  host.AddRoute("10.99.0.53", 0, "10.99.0.53", net::Reach::kLocal);
  host.AddLink(4, "wg0", 1420, ARPHRD_NONE);
  host.AddRoute("fd77::b", 4, "fd77::1");
  const Topology topology = Resolve(FakeConfig(), host.View());
  EXPECT_THAT(
      Texts(topology),
      ElementsAre(HasSubstr("the vip 10.99.0.53 is an address of this host"),
                  HasSubstr("no route to backend a (10.77.0.11): no route"),
                  HasSubstr("backend only (fd77::b) is reached through wg0, which carries no Ethernet")));
}

TEST(Resolve, ABackendBehindTheProxyInterfaceIsRefused) {
  FakeHost host;
  host.AddLink(9, "hr0", 1500);
  host.AddRoute("10.77.0.12", 9, "10.77.0.1");
  EXPECT_THAT(Texts(Resolve(FakeConfig(), host.View())),
              ElementsAre(HasSubstr("the proxy interface hr0 itself")));
}

}  // namespace
}  // namespace hedgerow
