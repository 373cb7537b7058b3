// SPDX-License-Identifier: Apache-2.0
//
// Clients that are bound to an uplink: the splitter and a route to each VIP at each uplink, kept as the VIPs and uplinks change. Part of
// ProxyInstance, called by the guardian when it has followed a change of the network; see net/netlink/uplink_route.h.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/netlink/uplink_route.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {

// Before anything is added: what stands of an earlier daemon, so that it goes with this instance, whatever becomes of it.
absl::Status ProxyInstance::KnowBoundRoutes() {
  if (serves_bound_) return absl::OkStatus();
  const auto present = net::ListUplinkRoutes();
  if (!present.ok()) return present.status();
  for (const net::VipRoute& route : *present) {
    const bool ours = std::any_of(routes_.begin(), routes_.end(), [&](const auto& each) { return each.vip == route.vip; });
    if (ours) bound_.push_back({route, {}});
  }
  serves_bound_ = true;
  undo_.Push("removing the routes of clients bound to an uplink", [this] { return LeaveBoundClients(); });
  return absl::OkStatus();
}

std::vector<Problem> ProxyInstance::ServeBoundClients() {
  std::vector<Problem> problems;
  const auto keep = [&problems](const absl::Status& status) {
    if (!status.ok())
      problems.push_back({ProblemCode::kVipRouteLost, absl::StrCat("for clients bound to an uplink: ", status.message())});
    return status.ok();
  };
  if (!keep(KnowBoundRoutes())) return problems;
  const auto present = net::ListUplinkRoutes();
  if (!keep(present.status())) return problems;
  const ProgramInfo splitter = ProgramNamed(kSplitterProgram);
  std::vector<BoundRoute> wanted;
  for (const auto& [ifindex, link] : topology_.uplinks) {
    const auto now = net::FindLink(ifindex);
    if (!now.ok() || !now->up() || ifindex == net::kLoopbackIfindex) continue;
    const absl::Status attached = AttachmentOn(ifindex, kSplitterProgram) != nullptr
                                      ? absl::OkStatus()
                                      : AttachProgram(splitter, ifindex, net::Direction::kEgress);
    if (!attached.ok()) {
      problems.push_back({ProblemCode::kAttachFailed, absl::StrCat("for clients bound to ", link.name, ": ", attached.message())});
      continue;  // without a route they get an error instead of silence
    }
    for (const net::VipRoute& route : routes_) {
      if (AnyBackendHere(route.vip)) continue;  // its answers come by lo, where no socket that is bound to an uplink is found
      const BoundRoute one = {{.vip = route.vip, .ifindex = ifindex, .source = route.source}, now->mac};
      // A new MAC address has taken the neighbour entry along, and left the route.
      const bool stands = std::find(present->begin(), present->end(), one.route) != present->end() &&
                          std::find(bound_.begin(), bound_.end(), one) != bound_.end();
      if (stands || keep(net::AddUplinkRoute(one.route, one.mac))) wanted.push_back(one);
    }
  }
  for (const BoundRoute& former : bound_) {
    const bool stays = std::any_of(wanted.begin(), wanted.end(), [&](const BoundRoute& each) {
      return each.route.vip == former.route.vip && each.route.ifindex == former.route.ifindex;
    });
    if (!stays && !keep(net::DeleteUplinkRoute(former.route))) wanted.push_back(former);
  }
  bound_ = std::move(wanted);
  return problems;
}

bool ProxyInstance::AnyBackendHere(const net::IpAddress& vip) const {
  for (size_t i = 0; i < topology_.services.size(); ++i) {
    const auto& backends = topology_.services[i].backends;
    const auto of = net::IpAddress::Parse(config_.services(static_cast<int>(i)).vip());
    const bool here = std::any_of(backends.begin(), backends.end(), [](const auto& each) { return each.uplink == net::kLoopbackIfindex; });
    if (here && of.ok() && *of == vip) return true;
  }
  return false;
}

absl::Status ProxyInstance::LeaveBoundClients() {
  absl::Status first;
  for (const BoundRoute& bound : bound_) {
    if (const absl::Status status = net::DeleteUplinkRoute(bound.route); first.ok()) first = status;
  }
  return first;
}

}  // namespace hedgerow
