// SPDX-License-Identifier: Apache-2.0
//
// Routes: how a backend is reached, the VIPs' routes into the proxy interface, and the uplink's address on the
// proxy interface for forwarded clients. Called by the daemon at up, when netlink reports a loss, and by doctor
// and plan.
//
// All functions act in the network namespace of the calling thread and are thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/ip_address.h"

namespace hedgerow::net {

// The origin of our routes, rtm_protocol: `ip route show proto 72`. Not assigned to any routing daemon we know.
inline constexpr uint8_t kRouteProtocol = 72;

enum class Reach {
  kRouted,       // leaves through `ifindex`
  kLocal,        // one of this host's own addresses
  kLoopback,     // 127.0.0.0/8 or ::1
  kUnreachable,  // no route, or a route of type unreachable, prohibit or blackhole; `reason` says which
};

struct RouteLookup {
  Reach reach = Reach::kUnreachable;
  int ifindex = 0;  // kRouted: the uplink. kLocal: the interface that has the address, if known.
  std::optional<IpAddress> gateway{};  // empty: the destination itself is the neighbour
  std::optional<IpAddress> source{};   // the source the kernel would choose
  std::string reason{};                // kUnreachable only
};

// Asks the kernel as a local sender without a mark would.
absl::StatusOr<RouteLookup> LookUpRoute(const IpAddress& destination);

struct VipRoute {
  IpAddress vip{};
  int ifindex = 0;  // the proxy interface
  IpAddress
      source{};  // `src`: the uplink's address, which clients on this host will use; same family as the VIP

  friend bool operator==(const VipRoute&, const VipRoute&) = default;
};

// Adds `VIP/32|128 dev IFINDEX src SOURCE proto 72` to the main table. OK when exactly this route is there
// already. AlreadyExists: an equal prefix has another owner's route. FailedPrecondition: the VIP is an address
// of this host, or a routing rule sends it elsewhere although the route is in place (the route is taken back
// then).
absl::Status AddVipRoute(const VipRoute& route);
// Gives a route that is ours another source, in one step: packets to the VIP never miss it.
absl::Status ReplaceVipRoute(const VipRoute& route);
// OK when there is none. Removes only a route of our protocol on this interface.
absl::Status DeleteVipRoute(const VipRoute& route);
// Our routes (by protocol) on one interface, or on all with ifindex 0.
absl::StatusOr<std::vector<VipRoute>> ListVipRoutes(int ifindex = 0);

// Puts the uplink's address on the proxy interface as well (`ADDRESS/32|128 dev IFINDEX noprefixroute`). It
// exists for forwarded clients behind MASQUERADE (containers): the kernel then takes the source from the
// *output interface's* addresses, ignoring the route's `src`. Measured on 6.18, host with two uplinks: without
// it IPv4 took the first interface's address and IPv6 the longest common prefix's; with it both took the
// uplink's. What else it changes: one more `local ADDRESS` entry in the local table, beside the uplink's own,
// and nothing else; a VIP route whose `src` it is then survives the uplink losing that address, so watch the
// uplink's address, not only the route. OK when it is there already.
// Its loss makes the kernel drop every IPv4 route through the interface, our VIPs' too; and 6.1 (not 6.18) takes the
// `src` out of IPv6 routes. AddVipRoute mends both.
absl::Status AddSourceAddress(int ifindex, const IpAddress& address);

struct AddressInfo {
  int ifindex = 0;
  IpAddress address{};
  uint8_t prefix_bits = 0;
};
// Every address of the namespace, or those of one interface.
absl::StatusOr<std::vector<AddressInfo>> ListAddresses(int ifindex = 0);

}  // namespace hedgerow::net
