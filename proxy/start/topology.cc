// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/topology.h"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proxy/start/vips.h"

namespace hedgerow {
namespace {

constexpr uint32_t kIpv6LeastMtuBytes = 1280;  // RFC 8200, section 5

class Resolver {
 public:
  Resolver(const v1::Config& config, const NetworkView& network) : config_(config), network_(network) {
    for (const net::AddressInfo& each : network.addresses)
      if (!network.IsOfAProxy(each.ifindex, config)) addresses_.push_back(each);
  }

  Topology Run() {
    for (const v1::Service& service : config_.services()) topology_.services.push_back(Path(service));
    for (const auto& [vip, mtu_bytes] : topology_.vip_mtu_bytes)
      topology_.mtu_bytes = std::max(topology_.mtu_bytes, mtu_bytes);
    for (int i = 0; i < config_.services_size(); ++i)
      Settle(config_.services(i), topology_.services[static_cast<size_t>(i)]);
    CheckTranslated();
    return std::move(topology_);
  }

 private:
  void Add(ProblemCode code, const v1::Service& service, absl::string_view text) {
    topology_.problems.push_back({code, absl::StrCat("service ", service.name(), ": ", text)});
  }

  // The source of a service, and by which uplink the backend is reached that it is for.
  struct Source {
    std::optional<net::IpAddress> address;
    int uplink = 0;
    // What a backend on this host is asked from may be an address that no other host knows.
    bool IsOfHere() const { return uplink == net::kLoopbackIfindex; }
  };

  Topology::ServicePath Path(const v1::Service& service) {
    Topology::ServicePath path{.name = service.name(), .backends = {}, .source = {}};
    Source source;
    for (const v1::Backend& backend : service.backends()) {
      const std::optional<net::RouteLookup> route = Route(service, backend);
      BackendPath& reached = path.backends.emplace_back();
      reached.name = backend.name();
      if (!route.has_value()) continue;
      reached.uplink = route->ifindex;
      reached.next_hop = route->gateway;
      if (!route->source.has_value()) continue;
      const Source found{route->source, route->ifindex};
      const bool primary = backend.name() == service.primary();
      if (!source.address.has_value() || (found.IsOfHere() == source.IsOfHere() ? primary : source.IsOfHere()))
        source = found;
    }
    // One route leads to a VIP, so all its services have one source.
    Source& of_vip = sources_[service.vip()];
    if (source.address.has_value() && (!of_vip.address.has_value() || (of_vip.IsOfHere() && !source.IsOfHere())))
      of_vip = source;
    return path;
  }

  // What is masqueraded gets the proxy interface's first source of the family, and the splitter serves its own.
  void CheckTranslated() {
    for (int i = 0; i < config_.services_size(); ++i) {
      const auto& source = topology_.services[static_cast<size_t>(i)].source;
      if (config_.services(i).also_at_size() == 0 || !source.has_value()) continue;
      for (const Topology::ServicePath& other : topology_.services) {
        if (!other.source.has_value() || other.source->is_v4() != source->is_v4() || *other.source == *source) continue;
        Add(ProblemCode::kUplinkUnfit, config_.services(i),
            absl::StrCat("with `also_at` it needs the one source of its instance, and gets ", source->ToString(),
                         ", service ", other.name, " ", other.source->ToString(),
                         ": give it an `instance` of its own"));
        break;
      }
    }
  }

  // With the source that packets to the VIP have.
  void Settle(const v1::Service& service, Topology::ServicePath& path) {
    const Source& source = sources_[service.vip()];
    path.source = source.address;
    for (int i = 0; i < service.backends_size(); ++i) {
      BackendPath& backend = path.backends[static_cast<size_t>(i)];
      if (backend.uplink == 0 || backend.uplink == net::kLoopbackIfindex) continue;
      // Replies to a copy that leaves by another uplink come in by either.
      if (backend.uplink != source.uplink && !source.IsOfHere()) backend.also = source.uplink;
      if (source.address.has_value()) CheckIpsec(service, service.backends(i), *source.address, backend.uplink);
    }
    const bool ipv6 = path.source.has_value() && !path.source->is_v4();
    if (ipv6 && network_.ipv6_off_for_new_links) {
      Add(ProblemCode::kIpv6Disabled, service,
          "new interfaces have IPv6 disabled (net.ipv6.conf.default.disable_ipv6 is 1), and this process may not enable it on "
          "the proxy interface; set it to 0 before `up`");
    }
  }

  // The route to a backend, with the source that requests get, or nothing and a problem. As a socket does that
  // connects: a route chooses the source, and the routing rules are asked again with it.
  std::optional<net::RouteLookup> Route(const v1::Service& service, const v1::Backend& backend) {
    const std::string subject = absl::StrCat("backend ", backend.name(), " (", backend.address(), ")");
    const auto address = net::IpAddress::Parse(backend.address());
    if (!address.ok()) return std::nullopt;
    absl::StatusOr<net::RouteLookup> route = network_.look_up_route({.destination = *address});
    std::optional<net::IpAddress> source;
    if (route.ok() && route->reach == net::Reach::kRouted) {
      source = net::StableSource(*address, *route, addresses_);
      if (source.has_value()) route = network_.look_up_route({.destination = *address, .source = source});
    }
    if (!route.ok()) {
      Add(ProblemCode::kNoRoute, service, absl::StrCat(subject, ": ", std::string(route.status().message())));
      return std::nullopt;
    }
    if (route->reach == net::Reach::kUnreachable) {
      topology_.unrouted.emplace(service.name(), backend.name());
      Unreachable(service, subject, *address, route->reason);
      return std::nullopt;
    }
    if (route->reach != net::Reach::kRouted) return OnThisHost(service, subject, *address);
    if (!AddUplink(service, subject, *route)) return std::nullopt;
    if (!source.has_value()) {
      Add(ProblemCode::kNoSource, service,
          absl::StrCat(
              subject, ": ", topology_.uplinks.at(route->ifindex).name,
              " has no address that requests can come from; temporary and tentative IPv6 addresses are not taken"));
    }
    route->source = source;
    return *route;
  }

  // The loopback interface is its uplink. A request to an address of this host comes from that very address, as the
  // kernel has it, but not from one of 127.0.0.0/8 or ::1, which does not pass through the proxy interface: any other
  // one of the host, then.
  std::optional<net::RouteLookup> OnThisHost(const v1::Service& service, const std::string& subject,
                                             const net::IpAddress& address) {
    // Another host may have it by now: what a proxy interface still has as a source is about to be taken off it.
    const bool given_up =
        !address.is_loopback() &&
        std::any_of(
            network_.addresses.begin(), network_.addresses.end(),
            [&](const auto& each) { return each.address == address && network_.IsOfAProxy(each.ifindex, config_); }) &&
        std::none_of(addresses_.begin(), addresses_.end(), [&](const auto& each) { return each.address == address; });
    if (given_up) {
      Add(ProblemCode::kNoRoute, service, absl::StrCat(subject, " was an address of this host, which has given it up"));
      return std::nullopt;
    }
    const auto lo = network_.find_link(net::kLoopbackIfindex);
    if (!lo.ok()) {
      Add(ProblemCode::kUplinkDown, service,
          absl::StrCat(subject, ": its uplink: ", std::string(lo.status().message())));
      return std::nullopt;
    }
    topology_.uplinks.emplace(net::kLoopbackIfindex, *lo);
    net::RouteLookup route{.reach = net::Reach::kLocal, .ifindex = net::kLoopbackIfindex};
    route.source = address.is_loopback() ? AnyAddress(address.family()) : address;
    if (!route.source.has_value())
      Add(ProblemCode::kNoSource, service,
          absl::StrCat(subject, " is on this host, which has no address but those of lo that requests can come from"));
    return route;
  }

  std::optional<net::IpAddress> AnyAddress(int family) const {
    constexpr uint32_t kUnfit = IFA_F_TEMPORARY | IFA_F_TENTATIVE | IFA_F_DEPRECATED | IFA_F_DADFAILED;
    for (const net::AddressInfo& each : addresses_) {
      const bool fit = each.address.is_v4() || (each.flags & kUnfit) == 0;
      if (each.address.family() == family && each.scope < RT_SCOPE_LINK && !each.address.is_loopback() && fit)
        return each.address;
    }
    return std::nullopt;
  }

  void CheckIpsec(const v1::Service& service, const v1::Backend& backend, const net::IpAddress& source, int uplink) {
    const auto address = net::IpAddress::Parse(backend.address());
    const net::IpsecPolicy* policy = address.ok() ? net::FindIpsecPolicy(network_.ipsec, source, *address,
                                                                         static_cast<uint16_t>(backend.port()), uplink)
                                                  : nullptr;
    if (policy == nullptr) return;
    Add(ProblemCode::kIpsec, service,
        absl::StrCat(
            "backend ", backend.name(), " (", backend.address(), "): the IPsec policy \"", policy->ToString(),
            "\" (priority ", policy->priority,
            ") is for what goes there, and the proxy's packets pass it by: they leave in clear. Let the policy except port ",
            backend.port(),
            ", or reach the backend through a tunnel interface with Ethernet frames (GRETAP, VXLAN) whose own packets IPsec encrypts"));
  }

  void Unreachable(const v1::Service& service, const std::string& subject, const net::IpAddress& address,
                   const std::string& reason) {
    for (const net::LinkInfo& link : network_.links) {
      if (link.kind != "vrf") continue;
      const auto route = network_.look_up_route({.destination = address, .out_ifindex = link.ifindex});
      if (route.ok() && route->reach == net::Reach::kRouted) return AddVrf(service, subject, link);
    }
    Add(ProblemCode::kNoRoute, service, absl::StrCat("no route to ", subject, ": ", reason));
  }

  void AddVrf(const v1::Service& service, const std::string& subject, const net::LinkInfo& vrf) {
    Add(ProblemCode::kVrf, service,
        absl::StrCat(subject, " is reached through the VRF ", vrf.name,
                     " only; the proxy interface and its clients are outside of it"));
  }

  bool AddUplink(const v1::Service& service, const std::string& subject, const net::RouteLookup& route) {
    const auto link = network_.find_link(route.ifindex);
    if (!link.ok()) {
      Add(ProblemCode::kUplinkDown, service,
          absl::StrCat(subject, ": its uplink: ", std::string(link.status().message())));
      return false;
    }
    if (link->kind == "vrf") {
      AddVrf(service, subject, *link);
      return false;
    }
    if (!link->ethernet()) {
      Add(ProblemCode::kUplinkUnfit, service,
          absl::StrCat(subject, " is reached through ", link->name,
                       ", which carries no Ethernet frames; the reply program needs them"));
      return false;
    }
    if (link->name == config_.interface()) {
      Add(ProblemCode::kUplinkUnfit, service,
          absl::StrCat(subject, " is reached through the proxy interface ", link->name, " itself"));
      return false;
    }
    topology_.uplinks.emplace(route.ifindex, *link);
    const auto vip = net::IpAddress::Parse(service.vip());
    if (!vip.ok()) return true;
    // IPv6 ends on an interface of less than its least. Where a path takes less than the route, a router's error
    // reaches the client.
    const uint32_t path_mtu_bytes =
        !vip->is_v4() && route.mtu_bytes != 0 ? std::max(route.mtu_bytes, kIpv6LeastMtuBytes) : route.mtu_bytes;
    uint32_t& of_vip = topology_.vip_mtu_bytes[*vip];
    for (const uint32_t mtu_bytes : {link->mtu_bytes, path_mtu_bytes})
      if (mtu_bytes != 0 && (of_vip == 0 || mtu_bytes < of_vip)) of_vip = mtu_bytes;
    return true;
  }

  const v1::Config& config_;
  const NetworkView& network_;
  // Without those of proxy interfaces, other instances' too: what an uplink has lost is no source, though the kernel
  // still finds it there.
  std::vector<net::AddressInfo> addresses_;
  std::map<std::string, Source> sources_;  // by VIP
  Topology topology_;
};

// net.ipv6.conf.default.disable_ipv6, and whether this process may write such settings.
bool Ipv6OffForNewLinks() {
  int disabled = 0;
  std::ifstream("/proc/sys/net/ipv6/conf/default/disable_ipv6") >> disabled;
  return disabled != 0 && access("/proc/sys/net/ipv6/conf/default/disable_ipv6", W_OK) != 0;
}

}  // namespace

absl::Status Topology::ToStatus() const {
  if (std::all_of(problems.begin(), problems.end(), [](const Problem& each) { return MayCome(each.code); }))
    return absl::OkStatus();
  return absl::FailedPreconditionError(JoinProblems(problems, "\n"));
}

const BackendPath* Topology::Find(const std::string& service, const std::string& backend) const {
  for (const ServicePath& path : services) {
    if (path.name != service) continue;
    for (const BackendPath& each : path.backends)
      if (each.name == backend) return &each;
  }
  return nullptr;
}

uint32_t Topology::RouteMtu(const net::IpAddress& vip, uint32_t interface_mtu_bytes) const {
  const auto found = vip_mtu_bytes.find(vip);
  return found != vip_mtu_bytes.end() && found->second < interface_mtu_bytes ? found->second : 0;
}

bool Topology::IsUplink(int ifindex) const {
  return std::any_of(services.begin(), services.end(), [ifindex](const ServicePath& path) {
    return std::any_of(path.backends.begin(), path.backends.end(),
                       [ifindex](const BackendPath& backend) { return backend.uplink == ifindex; });
  });
}

bool NetworkView::IsOfAProxy(int ifindex, const v1::Config& config) const {
  return std::any_of(links.begin(), links.end(), [&](const net::LinkInfo& link) {
    return link.ifindex == ifindex && (net::OwnerOf(link).has_value() || link.name == config.interface());
  });
}

absl::StatusOr<NetworkView> KernelNetworkView() {
  auto links = net::ListLinks();
  if (!links.ok()) return links.status();
  auto addresses = net::ListAddresses();
  if (!addresses.ok()) return addresses.status();
  NetworkView view;
  view.links = *std::move(links);
  view.addresses = *addresses;
  auto ipsec = net::ListIpsecPolicies();
  if (!ipsec.ok() && !absl::IsPermissionDenied(ipsec.status())) return ipsec.status();
  if (ipsec.ok()) view.ipsec = *std::move(ipsec);
  view.ipv6_off_for_new_links = Ipv6OffForNewLinks();
  auto sender_rules = net::ListSenderRules();
  if (!sender_rules.ok()) return sender_rules.status();
  view.sender_rules = *std::move(sender_rules);
  auto neighbours = net::ListUnresolvedNeighbours();
  if (!neighbours.ok()) return neighbours.status();
  view.neighbours = *std::move(neighbours);
  const auto known = std::make_shared<const std::vector<net::AddressInfo>>(*std::move(addresses));
  view.look_up_route = [known](const net::RouteQuery& query) { return net::LookUpRoute(query, *known); };
  view.find_holders = FindHolders;
  view.find_link = [there = view.links](int ifindex) -> absl::StatusOr<net::LinkInfo> {
    for (const net::LinkInfo& link : there)
      if (link.ifindex == ifindex) return link;
    return absl::NotFoundError(absl::StrCat("interface number ", ifindex, " is gone"));
  };
  return view;
}

Topology ResolveBackends(const v1::Config& config, const NetworkView& network) {
  return Resolver(config, network).Run();
}

Topology Resolve(const v1::Config& config, const NetworkView& network) {
  Topology topology = ResolveBackends(config, network);
  std::vector<Problem> problems = CheckVips(config, network, /*proxy_ifindex=*/0);
  problems.insert(problems.end(), topology.problems.begin(), topology.problems.end());
  topology.problems = std::move(problems);
  return topology;
}

Topology ResolveHere(const v1::Config& config) {
  const absl::StatusOr<NetworkView> network = KernelNetworkView();
  if (network.ok()) return Resolve(config, *network);
  Topology topology = ResolveBackends(
      config,
      {.look_up_route = [&](const net::RouteQuery&) -> absl::StatusOr<net::RouteLookup> { return network.status(); },
       .find_link = [](int ifindex) { return net::FindLink(ifindex); },
       .links = {},
       .addresses = {}});
  return topology;
}

std::vector<Problem> CheckUplinks(const Topology& topology) {
  std::vector<Problem> problems;
  for (const auto& [ifindex, link] : topology.uplinks) {
    if (link.carrier() || !topology.IsUplink(ifindex)) continue;
    problems.push_back(
        {ProblemCode::kUplinkDown, absl::StrCat("uplink ", link.name, link.up() ? " has no carrier" : " is down")});
  }
  return problems;
}

Topology Succeed(const Topology& before, Topology found, const NetworkView& network) {
  const auto exists = [&](int ifindex) { return ifindex != 0 && network.find_link(ifindex).ok(); };
  for (Topology::ServicePath& service : found.services) {
    for (BackendPath& backend : service.backends) {
      const BackendPath* old = before.Find(service.name, backend.name);
      if (old == nullptr) continue;
      if (backend.uplink == 0) {
        backend = *old;
      } else if (backend.also == 0) {
        backend.also = backend.uplink != old->uplink ? old->uplink : old->also;
      }
      if (!exists(backend.also) || backend.also == backend.uplink) backend.also = 0;
      for (const int ifindex : {backend.uplink, backend.also}) {
        if (ifindex == 0 || found.uplinks.contains(ifindex)) continue;
        if (const auto link = network.find_link(ifindex); link.ok()) found.uplinks.emplace(ifindex, *link);
      }
    }
    for (const Topology::ServicePath& old : before.services) {
      if (old.name == service.name && !service.source.has_value()) service.source = old.source;
    }
  }
  // A VIP none of whose backends can be reached now keeps what it had.
  for (const auto& [vip, mtu_bytes] : before.vip_mtu_bytes) {
    if (found.vip_mtu_bytes.try_emplace(vip, mtu_bytes).second) found.mtu_bytes = std::max(found.mtu_bytes, mtu_bytes);
  }
  return found;
}

}  // namespace hedgerow
