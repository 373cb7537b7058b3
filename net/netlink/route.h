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
// Of a VIP's route by the proxy interface. A better one (uplink_route.h) may stand before it.
inline constexpr uint32_t kVipRouteMetric = 72;

enum class Reach {
  kRouted,       // leaves through `ifindex`
  kLocal,        // one of this host's own addresses
  kLoopback,     // 127.0.0.0/8 or ::1
  kUnreachable,  // no route, or a route of type unreachable, prohibit or blackhole; `reason` says which
};

struct RouteLookup {
  Reach reach = Reach::kUnreachable;
  int ifindex = 0;                     // kRouted: the uplink. kLocal: the interface that has the address, if known.
  std::optional<IpAddress> gateway{};  // empty: the destination itself is the neighbour
  std::optional<IpAddress> source{};   // the source the kernel would choose
  uint32_t mtu_bytes = 0;              // of the route or the path, where one is known; 0: the interface's holds
  uint32_t table = 0;                  // in which the route was found; 0: not told
  std::string reason{};                // kUnreachable only
  bool broadcast = false;              // kUnreachable: because it is a network's broadcast address
};

// What routing rules tell packets apart by, beside addresses and interfaces. Zeros, and no user: an ordinary socket of
// this process.
struct Sender {
  uint32_t mark = 0;
  std::optional<uint32_t> user{};
  uint8_t protocol = 0;  // IPPROTO_UDP, IPPROTO_TCP
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t tos = 0;

  friend bool operator==(const Sender&, const Sender&) = default;
};

// What is asked of the routing rules and tables. Without a source: as a socket that is not bound sends.
struct RouteQuery {
  IpAddress destination{};
  std::optional<IpAddress> source{};
  int in_ifindex = 0;   // not 0: as for a packet that was received there and is forwarded
  int out_ifindex = 0;  // not 0: as a socket bound to this interface sends
  Sender sender{};
};

struct AddressInfo {
  int ifindex = 0;
  IpAddress address{};
  uint8_t prefix_bits = 0;
  uint32_t flags = 0;  // IFA_F_*
  uint8_t scope = 0;   // RT_SCOPE_*
};
// Every address of the namespace, or those of one interface.
absl::StatusOr<std::vector<AddressInfo>> ListAddresses(int ifindex = 0);

// Asks the kernel as a sender without a mark would. `addresses`: those of the namespace, for callers that ask often.
absl::StatusOr<RouteLookup> LookUpRoute(const IpAddress& destination);
absl::StatusOr<RouteLookup> LookUpRoute(const RouteQuery& query, const std::vector<AddressInfo>& addresses);

// The source for packets that take this route: the kernel's choice, unless that is none of `addresses`, or a temporary
// IPv6 address (RFC 8981), which goes after a day, or one that is tentative or deprecated: then the best other one of
// the interface by RFC 6724 rules 3 and 8. Empty: there is none.
std::optional<IpAddress> StableSource(const IpAddress& destination, const RouteLookup& route,
                                      const std::vector<AddressInfo>& addresses);

struct VipRoute {
  IpAddress vip{};
  int ifindex = 0;  // the proxy interface; in uplink_route.h an uplink
  // `src`: the uplink's address, which clients on this host will use; same family as the VIP. Empty: the route has
  // none.
  std::optional<IpAddress> source{};
  uint32_t mtu_bytes = 0;  // of packets to the VIP; 0: the interface's

  friend bool operator==(const VipRoute&, const VipRoute&) = default;
};

// Adds `VIP/32|128 dev IFINDEX metric 72 src SOURCE proto 72` to the main table. OK when exactly this route is there
// already. AlreadyExists: an equal prefix has another owner's route. FailedPrecondition: the VIP is an address
// of this host, or a routing rule sends it elsewhere although the route is in place (the route is taken back
// then). A leading route by an uplink stays before it.
absl::Status AddVipRoute(const VipRoute& route);
// Gives a route that is ours another source or MTU, in one step: packets to the VIP never miss it.
absl::Status ReplaceVipRoute(const VipRoute& route);
// OK when there is none. Removes only a route of our protocol on this interface.
absl::Status DeleteVipRoute(const VipRoute& route);
// Ours (by protocol) on one interface, or on all with ifindex 0; without those by uplinks (uplink_route.h).
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
// Where IPv6 is disabled on the interface (net.ipv6.conf.default.disable_ipv6=1) it is enabled there, on this interface
// alone, by the sysctl: there is no other way. FailedPrecondition, naming the sysctl, when it may not be written.
absl::Status AddSourceAddress(int ifindex, const IpAddress& address);
// OK when it is not there.
absl::Status DeleteSourceAddress(int ifindex, const IpAddress& address);

// A routing rule of ours: `ip rule add pref PRIORITY to VIP lookup main proto 72`. It stands before rules that would
// send the VIP elsewhere.
struct VipRule {
  IpAddress vip{};
  uint32_t priority = 0;
  friend bool operator==(const VipRule&, const VipRule&) = default;
};
// OK when it is there already.
absl::Status AddVipRule(const VipRule& rule);
absl::Status DeleteVipRule(const VipRule& rule);  // OK when there is none
absl::StatusOr<std::vector<VipRule>> ListVipRules();
// For messages: where the kernel sends a VIP instead of the proxy interface, and by which routing rules (at most
// three).
std::string DescribeDetour(const IpAddress& vip, const RouteLookup& route);

}  // namespace hedgerow::net
