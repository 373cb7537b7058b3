// SPDX-License-Identifier: Apache-2.0
//
// What stands at uplinks beside the reply program: the splitter, a route to each VIP for clients that are bound to the uplink, and where
// VIPs are routed by it the route that leads there. Kept as VIPs and uplinks change. Part of
// ProxyInstance, called by the guardian when it has followed a change of the network; see net/netlink/uplink_route.h.

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/netlink/link.h"
#include "net/netlink/uplink_route.h"
#include "operate/event_loop.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {
namespace {

constexpr int64_t kOtherRouteEveryNs = 60'000'000'000;

}  // namespace

// Before anything is added: what stands of an earlier daemon, so that it goes with this instance, whatever becomes of it.
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
  by_uplink_ = std::any_of(leading->begin(), leading->end(), is_ours);  // `auto` goes on as it was
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
  keep(KeepLeadingRoutes());
  return problems;
}

std::vector<Problem> ProxyInstance::RouteByUplink(bool by_uplink) {
  if (const absl::Status known = KnowUplinkRoutes(); !known.ok())
    return {{ProblemCode::kVipRouteLost, absl::StrCat("by an uplink: ", std::string(known.message()))}};
  by_uplink_ = by_uplink;
  return KeepUplinkRoutes();
}

std::string ProxyInstance::TryOtherRoute() {
  const int64_t now_ns = MonotonicNs();
  const bool lately = tried_other_route_ns_ != 0 && now_ns - tried_other_route_ns_ < kOtherRouteEveryNs;
  if (config_.vip_route() != v1::VIP_ROUTE_AUTO || lately) return "";
  tried_other_route_ns_ = now_ns;
  for (const Problem& problem : RouteByUplink(!by_uplink_)) LogError(problem.ToString());
  std::vector<std::string> ways;
  for (const net::VipRoute& route : routes_) ways.push_back(absl::StrCat(route.vip.ToString(), " by ", RouteOf(route.vip)));
  return absl::StrCat("rules of this host end packets of VIPs by the way that they took; routed now: ", absl::StrJoin(ways, ", "));
}

std::string ProxyInstance::RouteOf(const net::IpAddress& vip) const {
  const auto leading = leading_.find(vip);
  if (leading == leading_.end() || leading->second.ifindex == 0) return links_.proxy.link.name;
  const auto link = net::FindLink(leading->second.ifindex);
  return link.ok() ? link->name : absl::StrCat("interface number ", leading->second.ifindex);
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
  for (const auto& [vip, route] : leading_)
    if (route.ifindex != 0) routes.push_back(route);
  return routes;
}

// That of the primary, else of the first backend that is reached by one with a route to the VIP; 0: there is none.
int ProxyInstance::UplinkToLeadBy(const net::IpAddress& vip) const {
  const auto has_route = [&](int ifindex) {
    return std::any_of(bound_.begin(), bound_.end(), [&](const auto& each) { return each.route.vip == vip && each.route.ifindex == ifindex; });
  };
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

// The kernel programs are told of a leading route when it stands, and that it goes before it does: in between answers enter by the
// proxy interface, whose loose filter lets them in either way.
absl::Status ProxyInstance::KeepLeadingRoutes() {
  if (config_.vip_route() == v1::VIP_ROUTE_UPLINK) by_uplink_ = true;
  if (config_.vip_route() == v1::VIP_ROUTE_INTERFACE) by_uplink_ = false;
  const auto present = net::ListLeadingRoutes();
  if (!present.ok()) return present.status();
  absl::Status first;
  const auto note = [&first](const absl::Status& status) {
    if (first.ok()) first = status;
    return status.ok();
  };
  if (by_uplink_ && loosened_ifindex_ != links_.proxy.link.ifindex) {
    if (!note(net::LoosenReversePathFilter(links_.proxy.link.ifindex))) return first;
    loosened_ifindex_ = links_.proxy.link.ifindex;
  }
  std::set<net::IpAddress> led;
  for (const net::VipRoute& route : routes_) {
    const int uplink = by_uplink_ ? UplinkToLeadBy(route.vip) : 0;
    const net::VipRoute wanted = {.vip = route.vip, .ifindex = uplink, .source = uplink == 0 ? std::nullopt : route.source};
    if (uplink != 0) {
      const bool stands = std::find(present->begin(), present->end(), wanted) != present->end();
      if (!stands && !note(net::AddLeadingRoute(wanted))) continue;
      led.insert(route.vip);
    }
    const auto known = leading_.find(route.vip);
    if (known != leading_.end() && known->second == wanted) continue;
    const std::string source = wanted.source.has_value() ? wanted.source->ToString() : "";
    if (note(data_plane_->config().RouteVip(route.vip.ToString(), static_cast<uint32_t>(uplink), source))) leading_[route.vip] = wanted;
  }
  for (const net::VipRoute& former : *present) {
    const bool ours = leading_.contains(former.vip);
    if (!ours) continue;
    const bool stays = led.contains(former.vip) && leading_[former.vip].ifindex == former.ifindex;
    if (!stays) note(net::DeleteLeadingRoute(former));
  }
  std::erase_if(leading_, [&](const auto& each) {
    return std::none_of(routes_.begin(), routes_.end(), [&](const auto& route) { return route.vip == each.first; });
  });
  return first;
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

absl::Status ProxyInstance::LeaveUplinks() {
  absl::Status first;
  for (const BoundRoute& bound : bound_) {
    if (const absl::Status status = net::DeleteUplinkRoute(bound.route); first.ok()) first = status;
  }
  return first;
}

}  // namespace hedgerow
