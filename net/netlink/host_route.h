// SPDX-License-Identifier: Apache-2.0
//
// Host routes (/32, /128) of the main table in netlink's words: what route.cc and uplink_route.cc share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/ip_address.h"
#include "net/netlink/netlink.h"
#include "net/netlink/route.h"

namespace hedgerow::net {

// One of them, as a dump shows it.
struct TableRoute {
  IpAddress destination;
  int ifindex = 0;
  uint8_t protocol = 0;
  uint32_t metric = 0;
  std::optional<IpAddress> source;
  uint32_t mtu_bytes = 0;
};

// An attribute that is an address; empty where it is absent or none.
std::optional<IpAddress> AddressAttribute(const netlink::Attributes& attributes, uint16_t type);

// Those of an interface (0: of all) and of a protocol (RTPROT_UNSPEC: of all). Where the kernel filters dumps itself
// (4.20 and later) only matching ones travel.
absl::StatusOr<std::vector<TableRoute>> ListHostRoutes(int family, int ifindex, uint8_t protocol);

// Those of ours whose metric `is_wanted`.
absl::StatusOr<std::vector<VipRoute>> ListRoutesOfOurs(int ifindex,
                                                       const std::function<bool(uint32_t metric)>& is_wanted);

// Puts a route of ours, as `flags` say (NLM_F_...), or removes it; OK where there is none. `metric` 0: any.
absl::Status PutHostRoute(uint16_t flags, const VipRoute& route, uint32_t metric);
absl::Status DeleteHostRoute(const VipRoute& route, uint32_t metric);

// "10.99.0.53/32 dev hr0 src 10.77.0.1"
std::string ToString(const VipRoute& route);

}  // namespace hedgerow::net
