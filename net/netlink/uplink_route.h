// SPDX-License-Identifier: Apache-2.0
//
// A VIP's second route, by an uplink, for clients that are bound to that device (SO_BINDTODEVICE, IP_UNICAST_IF, IP_PKTINFO,
// a resolver's `server=VIP@eth0`): the kernel asks them for a route by it. Its metric is worse than that of every other route,
// so nothing else takes it while the VIP's own route stands. A permanent neighbour entry goes with it, since no host answers for a VIP; the splitter at the
// uplink's egress takes the packets. Called by the daemon and by clean.
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

// `route.ifindex` is the uplink, `mac` its own: a packet that nothing takes is sent to the host itself, and ends at the next switch.
// Replaces this uplink's, if there is one; those of other uplinks stay.
absl::Status AddUplinkRoute(const VipRoute& route, const MacAddress& mac);
// OK when there is none.
absl::Status DeleteUplinkRoute(const VipRoute& route);
absl::StatusOr<std::vector<VipRoute>> ListUplinkRoutes();

}  // namespace hedgerow::net
