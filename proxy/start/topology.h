// SPDX-License-Identifier: Apache-2.0
//
// How the configured backends are reached on this host: which interface is
// each one's uplink, which source address clients will use, what MTU the proxy
// interface may have. Everything that would make the proxy impossible here and
// now (a backend on this very host, no route, a VIP of this host) is found by
// it, all at once, before anything is made. Used by the daemon, plan, doctor.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/api/config.pb.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "proxy/problems/problem.h"

namespace hedgerow {

struct Topology {
  struct ServicePath {
    std::vector<int> uplinks;              // ifindex, by backend
    std::optional<net::IpAddress> source;  // towards the primary
  };
  std::vector<ServicePath> services;
  std::map<int, net::LinkInfo> uplinks;  // by ifindex
  uint32_t mtu_bytes = 0;                // the smallest of the uplinks
  std::vector<Problem> problems;         // empty means that it can work

  absl::Status ToStatus() const;  // FailedPrecondition with every problem
};

// What Resolve asks the kernel; tests answer in its place.
struct NetworkView {
  std::function<absl::StatusOr<net::RouteLookup>(const net::IpAddress&)> look_up_route;
  std::function<absl::StatusOr<net::LinkInfo>(int ifindex)> find_link;
};
NetworkView KernelNetworkView();

Topology Resolve(const v1::Config& config, const NetworkView& network);

}  // namespace hedgerow
