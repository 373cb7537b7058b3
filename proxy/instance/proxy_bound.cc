// SPDX-License-Identifier: Apache-2.0
//
// Clients that are bound to an uplink: a route to each VIP by each uplink, kept as the VIPs and uplinks change. Part of
// ProxyInstance, called by the guardian once a second and after what it repairs; see net/netlink/uplink_route.h.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/netlink/uplink_route.h"
#include "proxy/instance/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {
namespace {

bool Contains(const std::vector<net::VipRoute>& routes, const net::VipRoute& route) {
  return std::find(routes.begin(), routes.end(), route) != routes.end();
}

}  // namespace

std::vector<Problem> ProxyInstance::ServeBoundClients() {
  const auto present = net::ListUplinkRoutes();
  if (!present.ok()) return {{ProblemCode::kVipRouteLost, std::string(present.status().message())}};
  std::vector<Problem> problems;
  const auto keep = [&problems](const absl::Status& status) {
    if (!status.ok())
      problems.push_back({ProblemCode::kVipRouteLost, absl::StrCat("for clients bound to an uplink: ", status.message())});
  };
  if (!serves_bound_) {
    serves_bound_ = true;
    undo_.Push("removing the routes of clients bound to an uplink", [this] { return LeaveBoundClients(); });
  }
  std::vector<net::VipRoute> wanted;
  for (const auto& [ifindex, link] : topology_.uplinks) {
    const auto now = net::FindLink(ifindex);
    if (!now.ok() || !now->up() || ifindex == net::kLoopbackIfindex) continue;
    for (const net::VipRoute& route : routes_) {
      wanted.push_back({.vip = route.vip, .ifindex = ifindex, .source = route.source});
      if (!Contains(*present, wanted.back())) keep(net::AddUplinkRoute(wanted.back(), now->mac));
    }
  }
  for (const net::VipRoute& route : *present) {
    const bool ours = std::any_of(routes_.begin(), routes_.end(), [&](const auto& each) { return each.vip == route.vip; }) ||
                      std::any_of(bound_.begin(), bound_.end(), [&](const auto& each) { return each.vip == route.vip; });
    const bool replaced = std::any_of(wanted.begin(), wanted.end(), [&](const auto& each) {
      return each.vip == route.vip && each.ifindex == route.ifindex;
    });
    if (ours && !replaced) keep(net::DeleteUplinkRoute(route));
  }
  bound_ = std::move(wanted);
  return problems;
}

absl::Status ProxyInstance::LeaveBoundClients() {
  absl::Status first;
  const auto present = net::ListUplinkRoutes();
  if (!present.ok()) return present.status();
  for (const net::VipRoute& route : *present) {
    const bool ours = std::any_of(bound_.begin(), bound_.end(), [&](const auto& each) { return each.vip == route.vip; });
    if (!ours) continue;
    if (const absl::Status status = net::DeleteUplinkRoute(route); first.ok()) first = status;
  }
  return first;
}

}  // namespace hedgerow
