// SPDX-License-Identifier: Apache-2.0
//
// What stands at uplinks beside the reply program: the splitter, a route to each VIP for clients that are bound to the
// uplink, and where VIPs are routed by it the route that leads there. Kept as VIPs and uplinks change. Part of
// ProxyInstance, called by the guardian when it has followed a change of the network; see net/netlink/uplink_route.h.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"
#include "net/netlink/uplink_route.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {

// Before anything is added: what stands of an earlier daemon, so that it goes with this instance, whatever becomes of
// it.
absl::Status ProxyInstance::KnowUplinkRoutes() {
  if (knows_uplink_routes_) return absl::OkStatus();
  const auto present = net::ListUplinkRoutes();
  if (!present.ok()) return present.status();
  const auto leading = net::ListLeadingRoutes();
  if (!leading.ok()) return leading.status();
  const auto is_ours = [this](const net::VipRoute& route) {
    return std::any_of(routes_.begin(), routes_.end(), [&](const auto& each) { return each.vip == route.vip; });
  };
  for (const net::VipRoute& route : *present)
    if (is_ours(route)) bound_.push_back({route, {}});
  for (const net::VipRoute& route : *leading)
    if (is_ours(route)) by_uplink_.insert(route.vip);  // `auto` goes on as it was
  knows_uplink_routes_ = true;
  undo_.Push("removing the routes by uplinks", [this] { return LeaveUplinks(); });
  return absl::OkStatus();
}

std::vector<Problem> ProxyInstance::KeepUplinkRoutes() {
  std::vector<Problem> problems;
  const auto keep = [&problems](const absl::Status& status) {
    if (!status.ok())
      problems.push_back({ProblemCode::kVipRouteLost, absl::StrCat("by an uplink: ", status.message())});
    return status.ok();
  };
  if (!keep(KnowUplinkRoutes())) return problems;
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
      problems.push_back(
          {ProblemCode::kAttachFailed, absl::StrCat("for clients bound to ", link.name, ": ", attached.message())});
      continue;  // without a route they get an error instead of silence
    }
    for (const net::VipRoute& route : routes_) {
      if (AnyBackendHere(route.vip))
        continue;  // its answers come by lo, where no socket that is bound to an uplink is found
      const BoundRoute one = {{.vip = route.vip,
                               .ifindex = ifindex,
                               .source = route.source,
                               .mtu_bytes = topology_.RouteMtu(route.vip, now->mtu_bytes)},
                              now->mac};
      // A new MAC address has taken the neighbour entry along, and left the route.
      const bool stands = std::find(present->begin(), present->end(), one.route) != present->end() &&
                          std::find(bound_.begin(), bound_.end(), one) != bound_.end();
      if (stands || keep(net::AddUplinkRoute(one.route, one.mac))) wanted.push_back(one);
    }
  }
  std::vector<BoundRoute> former = std::exchange(bound_, std::move(wanted));
  keep(KeepLeadingRoutes());
  for (const BoundRoute& route : former) {
    const bool stays = std::any_of(bound_.begin(), bound_.end(), [&](const BoundRoute& each) {
      return each.route.vip == route.route.vip && each.route.ifindex == route.route.ifindex;
    });
    if (!stays && !keep(net::DeleteUplinkRoute(route.route))) bound_.push_back(route);
  }
  return problems;
}

std::vector<net::VipRoute> ProxyInstance::BoundRoutes() const {
  std::vector<net::VipRoute> routes;
  for (const BoundRoute& each : bound_) routes.push_back(each.route);
  return routes;
}

std::set<net::IpAddress> ProxyInstance::Vips() const {
  std::set<net::IpAddress> vips;
  for (const v1::Service& service : config_.services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    if (vip.ok()) vips.insert(*vip);
  }
  return vips;
}

std::vector<Problem> ProxyInstance::RouteByUplink(const std::set<net::IpAddress>& vips, bool by_uplink) {
  if (const absl::Status known = KnowUplinkRoutes(); !known.ok())
    return {{ProblemCode::kVipRouteLost, absl::StrCat("by an uplink: ", std::string(known.message()))}};
  for (const net::IpAddress& vip : vips) {
    if (by_uplink) by_uplink_.insert(vip);
    if (!by_uplink) by_uplink_.erase(vip);
  }
  return KeepUplinkRoutes();
}

bool ProxyInstance::IsLedByUplink(const net::IpAddress& vip) const {
  const auto lead = leads_.find(vip);
  return lead != leads_.end() && lead->second.ifindex != 0;
}

std::string ProxyInstance::RouteOf(const net::IpAddress& vip) const {
  if (!IsLedByUplink(vip)) return links_.proxy.link.name;
  return net::LinkName(leads_.at(vip).ifindex);
}

void ProxyInstance::NoteRoutes(DaemonFacts& facts) const {
  for (ServicePathFacts& path : facts.paths) {
    for (const v1::Service& service : config_.services()) {
      const auto vip = net::IpAddress::Parse(service.vip());
      if (service.name() == path.name && vip.ok()) path.vip_route = RouteOf(*vip);
    }
  }
}

std::vector<net::VipRoute> ProxyInstance::LeadingRoutes() const {
  std::vector<net::VipRoute> routes;
  for (const auto& [vip, lead] : leads_)
    if (lead.ifindex != 0) routes.push_back(lead);
  return routes;
}

// That of the primary, else of the first backend that is reached by one with a route to the VIP; 0: there is none. The
// VIP of a service that a reload has removed keeps its own while its last answers come.
int ProxyInstance::UplinkToLeadBy(const net::IpAddress& vip) const {
  const auto has_route = [&](int ifindex) {
    return std::any_of(bound_.begin(), bound_.end(),
                       [&](const auto& each) { return each.route.vip == vip && each.route.ifindex == ifindex; });
  };
  if (!Vips().contains(vip))
    return IsLedByUplink(vip) && has_route(leads_.at(vip).ifindex) ? leads_.at(vip).ifindex : 0;
  // Packets to a VIP in place are told from its owner's by the interface that they leave by.
  if (config_.vip_route() == v1::VIP_ROUTE_INTERFACE || IsInPlace(vip)) return 0;
  if (config_.vip_route() == v1::VIP_ROUTE_AUTO && !by_uplink_.contains(vip)) return 0;
  for (size_t i = 0; i < topology_.services.size(); ++i) {
    const v1::Service& service = config_.services(static_cast<int>(i));
    const auto of = net::IpAddress::Parse(service.vip());
    if (!of.ok() || *of != vip) continue;
    const auto& backends = topology_.services[i].backends;
    for (const bool primary : {true, false}) {
      for (const BackendPath& backend : backends)
        if ((backend.name == service.primary() || !primary) && has_route(backend.uplink)) return backend.uplink;
    }
  }
  return 0;
}

// By which the kernel part knows what is this host's (docs/adr/0056), and known before a route leads by an uplink. The
// copies on interfaces of proxies are addresses of uplinks, too.
absl::Status ProxyInstance::KeepOwnAddresses() {
  const auto present = net::ListAddresses();
  if (!present.ok()) return present.status();
  std::set<std::string> addresses;
  for (const net::AddressInfo& each : *present)
    if (!each.address.is_loopback()) addresses.insert(each.address.ToString());
  if (addresses == own_addresses_) return absl::OkStatus();
  const absl::Status status = data_plane_->config().SetOwnAddresses(addresses);
  if (status.ok()) own_addresses_ = std::move(addresses);
  return status;
}

// The kernel programs are told of a leading route when it stands, and that it goes before it does: in between answers
// enter by the proxy interface, whose loose filter lets them in either way.
absl::Status ProxyInstance::KeepLeadingRoutes() {
  constexpr int kLoose = 2;
  const auto present = net::ListLeadingRoutes();
  if (!present.ok()) return present.status();
  absl::Status first;
  const auto note = [&first](const absl::Status& status) {
    if (first.ok()) first = status;
    return status.ok();
  };
  std::map<net::IpAddress, net::VipRoute> wanted;
  for (const net::VipRoute& route : routes_) {
    const int uplink = UplinkToLeadBy(route.vip);
    const auto bound = std::find_if(bound_.begin(), bound_.end(), [&](const BoundRoute& each) {
      return each.route.vip == route.vip && each.route.ifindex == uplink;
    });
    // UplinkToLeadBy() names one of those with a route for bound clients, which the leading one is like.
    wanted[route.vip] = bound == bound_.end() ? net::VipRoute{.vip = route.vip} : bound->route;
  }
  const bool any = std::any_of(wanted.begin(), wanted.end(), [](const auto& each) { return each.second.ifindex != 0; });
  if (!note(KeepOwnAddresses())) return first;
  if (any && net::ReversePathFilterOf(links_.proxy.link.name) != kLoose &&
      !note(net::LoosenReversePathFilter(links_.proxy.link.ifindex)))
    return first;
  for (const auto& [vip, lead] : wanted) {
    const bool stands = std::find(present->begin(), present->end(), lead) != present->end();
    if (lead.ifindex != 0 && !stands && !note(net::AddLeadingRoute(lead))) continue;
    const auto known = leads_.find(vip);
    if (known != leads_.end() && known->second == lead) continue;
    const absl::Status told = data_plane_->config().RouteVip(vip.ToString(), static_cast<uint32_t>(lead.ifindex));
    // The kernel part has forgotten a service that is gone, and with it the route.
    if (told.ok() || absl::IsNotFound(told)) leads_[vip] = lead;
    if (!absl::IsNotFound(told)) note(told);
  }
  for (const net::VipRoute& former : *present) {
    const auto lead = leads_.find(former.vip);
    if (lead != leads_.end() && lead->second.ifindex != former.ifindex) note(net::DeleteLeadingRoute(former));
  }
  std::erase_if(leads_, [&](const auto& each) { return !wanted.contains(each.first); });
  return first;
}

bool ProxyInstance::AnyBackendHere(const net::IpAddress& vip) const {
  for (size_t i = 0; i < topology_.services.size(); ++i) {
    const auto& backends = topology_.services[i].backends;
    const auto of = net::IpAddress::Parse(config_.services(static_cast<int>(i)).vip());
    const bool here = std::any_of(backends.begin(), backends.end(),
                                  [](const auto& each) { return each.uplink == net::kLoopbackIfindex; });
    if (here && of.ok() && *of == vip) return true;
  }
  return false;
}

absl::Status ProxyInstance::LeaveUplinks() {
  absl::Status first;
  for (const BoundRoute& bound : bound_) {
    if (const absl::Status status = net::DeleteUplinkRoute(bound.route); first.ok()) first = status;
  }
  return first;
}

}  // namespace hedgerow
