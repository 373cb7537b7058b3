// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/topology.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

class Resolver {
 public:
  Resolver(const v1::Config& config, const NetworkView& network) : config_(config), network_(network) {}

  Topology Run() {
    for (const v1::Service& service : config_.services()) {
      CheckVip(service);
      topology_.services.push_back(Path(service));
    }
    for (const auto& [ifindex, link] : topology_.uplinks) {
      topology_.mtu_bytes =
          topology_.mtu_bytes == 0 ? link.mtu_bytes : std::min(topology_.mtu_bytes, link.mtu_bytes);
    }
    return std::move(topology_);
  }

 private:
  void Add(ProblemCode code, const v1::Service& service, absl::string_view text) {
    topology_.problems.push_back({code, absl::StrCat("service ", service.name(), ": ", text)});
  }

  void CheckVip(const v1::Service& service) {
    const auto vip = net::IpAddress::Parse(service.vip());
    if (!vip.ok()) return;
    const auto route = network_.look_up_route(*vip);
    if (route.ok() && route->reach == net::Reach::kLocal) {
      Add(ProblemCode::kVipLocal, service, absl::StrCat("the vip ", service.vip(),
                                    " is an address of this host; a VIP must belong to nobody"));
    }
  }

  Topology::ServicePath Path(const v1::Service& service) {
    Topology::ServicePath path;
    for (const v1::Backend& backend : service.backends()) {
      const std::optional<net::RouteLookup> route = Route(service, backend);
      path.uplinks.push_back(route.has_value() ? route->ifindex : 0);
      if (route.has_value() && backend.name() == service.primary()) path.source = route->source;
    }
    CheckOneUplink(service, path);
    return path;
  }

  // A client's packet has one source address, that of the uplink towards the primary. The reply to a copy that leaves
  // through another uplink comes in on the first one, where the programs accept no reply of that backend.
  void CheckOneUplink(const v1::Service& service, const Topology::ServicePath& path) {
    for (size_t i = 1; i < path.uplinks.size(); ++i) {
      if (path.uplinks[i] == path.uplinks[0] || path.uplinks[i] == 0 || path.uplinks[0] == 0) continue;
      Add(ProblemCode::kUplinkUnfit, service, absl::StrCat("backends ", service.backends(0).name(), " and ",
                                    service.backends(static_cast<int>(i)).name(),
                                    " are reached through different uplinks; a service's backends must be behind "
                                    "one, since a request has one source address"));
    }
  }

  // The route to a backend, or nothing and a problem.
  std::optional<net::RouteLookup> Route(const v1::Service& service, const v1::Backend& backend) {
    const std::string who = absl::StrCat("backend ", backend.name(), " (", backend.address(), ")");
    const auto address = net::IpAddress::Parse(backend.address());
    if (!address.ok()) return std::nullopt;
    const auto route = network_.look_up_route(*address);
    if (!route.ok()) {
      Add(ProblemCode::kNoRoute, service, absl::StrCat(who, ": ", std::string(route.status().message())));
      return std::nullopt;
    }
    if (route->reach == net::Reach::kUnreachable) {
      Add(ProblemCode::kNoRoute, service, absl::StrCat("no route to ", who, ": ", route->reason));
    } else if (route->reach != net::Reach::kRouted) {
      Add(ProblemCode::kBackendLocal, service,
              absl::StrCat(who,
                           " is on this host: its replies never cross an uplink, so no program could "
                           "give them the VIP's address; run the proxy on the clients' host, or the "
                           "backend in a network namespace of its own"));
    } else if (AddUplink(service, who, *route)) {
      return *route;
    }
    return std::nullopt;
  }

  bool AddUplink(const v1::Service& service, const std::string& who, const net::RouteLookup& route) {
    if (topology_.uplinks.contains(route.ifindex)) return true;
    const auto link = network_.find_link(route.ifindex);
    if (!link.ok()) {
      Add(ProblemCode::kUplinkDown, service, absl::StrCat(who, ": its uplink: ", std::string(link.status().message())));
      return false;
    }
    if (!link->ethernet()) {
      Add(ProblemCode::kUplinkUnfit, service, absl::StrCat(who, " is reached through ", link->name,
                                    ", which carries no Ethernet frames; the reply program needs them"));
      return false;
    }
    if (link->name == config_.interface()) {
      Add(ProblemCode::kUplinkUnfit, service, absl::StrCat(who, " is reached through the proxy interface ", link->name, " itself"));
      return false;
    }
    topology_.uplinks.emplace(route.ifindex, *link);
    return true;
  }

  const v1::Config& config_;
  const NetworkView& network_;
  Topology topology_;
};

}  // namespace

absl::Status Topology::ToStatus() const {
  if (problems.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(JoinProblems(problems, "\n"));
}

NetworkView KernelNetworkView() {
  return {[](const net::IpAddress& address) { return net::LookUpRoute(address); },
          [](int ifindex) { return net::FindLink(ifindex); }};
}

Topology Resolve(const v1::Config& config, const NetworkView& network) {
  return Resolver(config, network).Run();
}

}  // namespace hedgerow
