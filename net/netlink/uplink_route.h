// SPDX-License-Identifier: Apache-2.0
//
// A VIP's routes by uplinks; the splitter at the uplink's egress takes the packets. One by each uplink is for clients
// that are bound to that device (SO_BINDTODEVICE, IP_UNICAST_IF, IP_PKTINFO, a resolver's `server=VIP@eth0`): the
// kernel asks them for a route by it. Its metric is worse than that of every other route, so nothing else takes it
// while the VIP's own route stands. A permanent neighbour entry goes with it, since no host answers for a VIP. A
// further route, by one of these uplinks, leads all packets there (docs/adr/0055): its metric is better than that of
// the route by the proxy interface, which takes them again where the uplink goes. Called by the daemon and by clean.
//
// All functions act in the network namespace of the calling thread and are thread-safe.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"

namespace hedgerow::net {

// `VIP dev UPLINK metric 2000000072 src SOURCE proto 72`: by protocol and metric it is found again.
inline constexpr uint32_t kUplinkRouteMetric = 2'000'000'072;
// `VIP dev UPLINK metric 71 src SOURCE proto 72`.
inline constexpr uint32_t kLeadingRouteMetric = kVipRouteMetric - 1;

// `route.ifindex` is the uplink, `mac` its own: a packet that nothing takes is sent to the host itself, and ends at the
// next switch. Replaces this uplink's, if there is one; those of other uplinks stay.
absl::Status AddUplinkRoute(const VipRoute& route, const MacAddress& mac);
// OK when there is none. The leading route by this uplink goes first, if there is one.
absl::Status DeleteUplinkRoute(const VipRoute& route);
absl::StatusOr<std::vector<VipRoute>> ListUplinkRoutes();

// Leads packets to the VIP by this uplink, which has its route and neighbour entry (AddUplinkRoute). Replaces the one
// that leads by another uplink, in one step.
absl::Status AddLeadingRoute(const VipRoute& route);
absl::Status DeleteLeadingRoute(const VipRoute& route);  // OK when there is none
absl::StatusOr<std::vector<VipRoute>> ListLeadingRoutes();

}  // namespace hedgerow::net
