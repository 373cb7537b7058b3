// SPDX-License-Identifier: Apache-2.0
//
// Host routes (/32, /128) of the main table in netlink's words: what route.cc and uplink_route.cc share.
#pragma once

#include <cstdint>
#include <optional>
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

// A request about one route of ours; its source is not part of it, and its MTU only of one that is added. `metric` 0:
// the kernel's own choice.
netlink::Request HostRouteRequest(uint16_t type, uint16_t flags, const VipRoute& route, uint32_t metric = 0);

}  // namespace hedgerow::net
