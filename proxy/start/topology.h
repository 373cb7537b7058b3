// SPDX-License-Identifier: Apache-2.0
//
// How the configured backends are reached on this host: which interface is each one's uplink, which source address
// clients will use, what MTU the proxy interface may have. With vips.h everything that would make the proxy impossible
// here and now is found by it, all at once, before anything is made, and again whenever the network changes
// (daemon/network_follower.h). Used by the daemon, plan, doctor.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/api/config.pb.h"
#include "net/netlink/ipsec.h"
#include "net/netlink/link.h"
#include "net/netlink/neighbour.h"
#include "net/netlink/route.h"
#include "net/netlink/rule.h"
#include "proxy/problems/problem.h"

namespace hedgerow {

struct BackendPath {
  std::string name;
  int uplink = 0;  // ifindex; 0: no interface leads there, and never has
  // Another interface by which its replies may come; 0: none. The one with the source address, where that is another
  // (asymmetric routes), else the uplink before the last move: sockets that connected earlier keep their source.
  int also = 0;
  std::optional<net::IpAddress> next_hop{};  // empty: the backend is the neighbour

  friend bool operator==(const BackendPath&, const BackendPath&) = default;
};

struct Topology {
  struct ServicePath {
    std::string name;
    std::vector<BackendPath> backends;  // in the configuration's order
    std::optional<net::IpAddress>
        source;  // of packets to its VIP: towards the primary, else the first backend that has one

    friend bool operator==(const ServicePath&, const ServicePath&) = default;
  };
  std::vector<ServicePath> services;                       // in the configuration's order
  std::map<int, net::LinkInfo> uplinks;                    // by ifindex: all that replies may come by and that exist
  std::set<std::pair<std::string, std::string>> unrouted;  // service and backend: the host cannot reach it now
  // By VIP, the smallest of the uplinks and routes to its backends. The proxy interface has the largest of them:
  // `mtu_bytes`, 0 where there is none.
  std::map<net::IpAddress, uint32_t> vip_mtu_bytes;
  uint32_t mtu_bytes = 0;
  std::vector<Problem> problems;  // empty means that all of it can work

  bool IsUplink(int ifindex) const;                                                       // of a backend, now
  const BackendPath* Find(const std::string& service, const std::string& backend) const;  // null: there is none
  // Of a route to the VIP by an interface of this MTU; 0: the interface's own is right.
  uint32_t RouteMtu(const net::IpAddress& vip, uint32_t interface_mtu_bytes) const;
  // FailedPrecondition with every problem, where a start is refused: one that does not go by itself.
  absl::Status ToStatus() const;
};

// What Resolve asks the kernel; tests answer in its place.
struct NetworkView {
  std::function<absl::StatusOr<net::RouteLookup>(const net::RouteQuery&)> look_up_route;
  std::function<absl::StatusOr<net::LinkInfo>(int ifindex)> find_link;
  std::vector<net::LinkInfo> links;         // of the namespace
  std::vector<net::AddressInfo> addresses;  // of the namespace
  std::vector<net::IpsecPolicy> ipsec;      // for packets that leave; empty where this process may not read them
  std::vector<net::SenderRule> sender_rules;
  net::UnresolvedNeighbours neighbours;
  // What listens at this address and port, in words; may be null.
  std::function<std::string(const net::IpAddress&, uint16_t port)> find_holders{};
  // Is it the interface of a proxy, of whatever instance? Those have copies of the host's addresses.
  bool IsOfAProxy(int ifindex, const v1::Config& config) const;
  bool ipv6_off_for_new_links = false;  // and it cannot be switched on for one of them
};
// Of this moment: links and addresses are read once.
absl::StatusOr<NetworkView> KernelNetworkView();

// For what is about to run: backends, and VIPs (CheckVips).
Topology Resolve(const v1::Config& config, const NetworkView& network);
// The same with the kernel's view; a view that cannot be had is a problem.
Topology ResolveHere(const v1::Config& config);
// Backends alone, for what runs.
Topology ResolveBackends(const v1::Config& config, const NetworkView& network);

// Uplinks by which no packet can leave.
std::vector<Problem> CheckUplinks(const Topology& topology);

// What holds after `found` was seen, where `before` held: a backend that cannot be reached now keeps its former uplink,
// and a service its source, until there is another; and a backend that has moved keeps `also`. By name, so that both
// may be of different configurations.
Topology Succeed(const Topology& before, Topology found, const NetworkView& network);

}  // namespace hedgerow
