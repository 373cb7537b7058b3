// SPDX-License-Identifier: Apache-2.0
//
// Follows the machine's network, and puts back what was removed from outside. Part of ProxyInstance, called by the
// network follower and the guardian; see proxy_instance.h.
//
// The order of a move, so that no request is lost by it: the reply program stands on the new uplink before anything is
// sent there; the new source address stands on the proxy interface before a route prefers it; then each backend's
// uplink changes by one store of one word; and the former source stays for kFormerSource, for requests that were on
// their way.

#include <linux/rtnetlink.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"
#include "operate/event_loop.h"

namespace hedgerow {
namespace {

// An address that a host gives up may be another one's soon: a second is the time in which everything is followed.
constexpr int64_t kFormerSourceNs = 400'000'000;

// A route that is replaced in two steps is gone for so long at most.
constexpr int64_t kRouteMadeAnewNs = 300'000'000;
// While there is a problem a look follows each second. The daemon's word about routes ends soon after the daemon.
constexpr int64_t kUnroutedLastsNs = 3'000'000'000;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Backends that `next` has behind this interface stay where they were.
void StayOff(int ifindex, const Topology& before, Topology& next) {
  for (Topology::ServicePath& service : next.services) {
    for (BackendPath& backend : service.backends) {
      const BackendPath* old = before.Find(service.name, backend.name);
      if (backend.uplink == ifindex) backend = old != nullptr ? *old : BackendPath{.name = backend.name};
      if (backend.also == ifindex) backend.also = 0;
    }
  }
}

}  // namespace

ProxyInstance::Followed ProxyInstance::Follow(const NetworkView& network, Topology& topology, DaemonFacts& facts) {
  Followed out;
  Topology found = ResolveBackends(config_, network);
  out.problems = found.problems;
  const Topology before = topology;
  Topology next = Succeed(before, std::move(found), network);
  KeepOwnLinks(network, next, out);
  AttachOrStay(before, next, out);
  KeepGuards(network, next, out);
  ReleaseSources(network, next, out);
  KeepRoutes(network, next, out);
  if (!(next.services == before.services)) {
    const absl::Status moved =
        data_plane_->config().MoveBackends(MakeSpec(config_, next, links_, record_->data().roster()), MonotonicNs());
    if (!moved.ok()) {
      out.problems.push_back(
          {ProblemCode::kDataPlane, absl::StrCat("moving backends to other uplinks: ", Text(moved))});
      next.services = before.services;
    } else {
      FillRecord(config_, next, v1::Roster(record_->data().roster()));
      if (const absl::Status saved = record_->Save(); !saved.ok()) LogError("the instance's record: ", Text(saved));
      out.moved = true;
    }
  }
  NoteNeighbours(network, next, out);
  TellUnrouted(next, out);
  for (const Problem& problem : CheckUplinks(next)) out.problems.push_back(problem);
  topology = std::move(next);  // which is topology_, too
  NoteFacts(topology, facts);
  return out;
}

// A backend whose neighbour entry, or its gateway's, has failed is out of reach until a probe of the kernel is
// answered, which the daemon asks for at each look. Where a service has no other backend, requests go there: the kernel
// itself reports that they could not be delivered.
void ProxyInstance::NoteNeighbours(const NetworkView& network, Topology& next, Followed& out) {
  std::set<net::Neighbour> failed;
  for (const v1::Service& service : config_.services()) {
    std::set<std::pair<std::string, std::string>> lost;
    int reached = 0;
    for (const v1::Backend& backend : service.backends()) {
      const BackendPath* path = next.Find(service.name(), backend.name());
      const auto address = net::IpAddress::Parse(backend.address());
      const std::pair<std::string, std::string> name(service.name(), backend.name());
      if (path == nullptr || path->uplink == 0 || !address.ok() || next.unrouted.contains(name)) continue;
      const net::Neighbour neighbour(path->uplink, path->next_hop.value_or(*address));
      if (!network.neighbours.failed.contains(neighbour) &&
          !(network.neighbours.asked.contains(neighbour) && failed_neighbours_.contains(neighbour))) {
        ++reached;
        continue;
      }
      lost.insert(name);
      out.problems.push_back(
          {ProblemCode::kNoRoute,
           absl::StrCat("service ", service.name(), ": backend ", backend.name(), " (", backend.address(),
                        "): no host answers for ", neighbour.second.ToString(), ", its neighbour entry has failed")});
      if (failed.insert(neighbour).second && network.neighbours.failed.contains(neighbour)) {
        const absl::Status probed = net::ResolveNeighbour(neighbour);
        if (!probed.ok()) LogError(Text(probed));
      }
    }
    if (reached > 0) next.unrouted.merge(lost);
  }
  failed_neighbours_ = std::move(failed);
}

// A route that has just gone may be one that is being replaced, so the kernel programs are told after kRouteMadeAnewNs.
// That a route is back they are told at once.
void ProxyInstance::TellUnrouted(const Topology& next, Followed& out) {
  const int64_t now_ns = MonotonicNs();
  std::erase_if(unrouted_, [&](const auto& each) { return !next.unrouted.contains(each.first); });
  for (const v1::Service& service : config_.services()) {
    std::vector<size_t> places;
    for (int i = 0; i < service.backends_size(); ++i) {
      const std::pair<std::string, std::string> backend(service.name(), service.backends(i).name());
      if (!next.unrouted.contains(backend)) continue;
      const int64_t since_ns = unrouted_.try_emplace(backend, now_ns).first->second;
      if (now_ns - since_ns >= kRouteMadeAnewNs)
        places.push_back(static_cast<size_t>(i));
      else
        out.soon = true;
    }
    const absl::Status told =
        data_plane_->policy().SetUnrouted(service.name(), places, static_cast<uint64_t>(now_ns + kUnroutedLastsNs));
    if (!told.ok())
      out.problems.push_back(
          {ProblemCode::kDataPlane, absl::StrCat("telling which backends have no route: ", Text(told))});
  }
}

// As they were made (up, without ARP, with the MAC address that the programs know), with the largest MTU that a VIP
// has.
void ProxyInstance::KeepOwnLinks(const NetworkView& network, const Topology& next, Followed& out) {
  const auto keep = [&out](const absl::Status& status, absl::string_view what) {
    if (!status.ok()) out.problems.push_back({ProblemCode::kOwnLink, absl::StrCat(what, ": ", Text(status))});
    return status.ok();
  };
  for (const net::LinkInfo* own : {&links_.proxy.link, &links_.proxy.peer, &links_.clock.link, &links_.clock.peer}) {
    const auto now = std::find_if(network.links.begin(), network.links.end(),
                                  [&](const net::LinkInfo& link) { return link.ifindex == own->ifindex; });
    if (now == network.links.end()) continue;  // the follower has it made again
    const bool as_made = now->up() && !now->resolves() && now->mac == own->mac;
    if (!as_made && keep(net::KeepAsMade(*own).status(), absl::StrCat("our interface ", own->name))) ++out.links;
    const bool of_proxy = own == &links_.proxy.link || own == &links_.proxy.peer;
    if (of_proxy && next.mtu_bytes != 0 && now->mtu_bytes != next.mtu_bytes)
      keep(net::SetLinkMtu(own->name, next.mtu_bytes), absl::StrCat("the MTU of ", own->name));
  }
}

// The reply program on every uplink of `next`. Backends behind one that does not take it stay where they are.
void ProxyInstance::AttachOrStay(const Topology& before, Topology& next, Followed& out) {
  const std::map<int, net::LinkInfo> uplinks = next.uplinks;
  const ProgramInfo reply = ProgramNamed(kReplyProgram);
  for (const auto& [ifindex, link] : uplinks) {
    if (AttachmentOn(ifindex, reply.name) != nullptr) continue;
    const absl::Status status = AttachProgram(reply, ifindex, net::Direction::kIngress);
    if (status.ok()) continue;
    out.problems.push_back({ProblemCode::kAttachFailed, absl::StrCat("uplink ", link.name, ": ", Text(status))});
    next.uplinks.erase(ifindex);
    StayOff(ifindex, before, next);
  }
}

// Takes sources off the proxy interface that no route uses any more, and those that no uplink has any more. Each stays
// for a moment, for answers on their way to it, and because another address often follows at once (DHCP).
void ProxyInstance::ReleaseSources(const NetworkView& network, Topology& next, Followed& out) {
  const int own = links_.proxy.link.ifindex;
  const int64_t now_ns = MonotonicNs();
  const auto is_elsewhere = [&](const net::IpAddress& address) {
    return std::any_of(network.addresses.begin(), network.addresses.end(), [&](const net::AddressInfo& each) {
      return each.address == address && !network.IsOfAProxy(each.ifindex, config_);
    });
  };
  std::set<net::IpAddress> wanted;
  for (Topology::ServicePath& service : next.services) {
    if (!service.source.has_value()) continue;
    if (is_elsewhere(*service.source)) {
      wanted.insert(*service.source);
      continue;
    }
    const int64_t since_ns = former_sources_.try_emplace(*service.source, now_ns).first->second;
    if (now_ns - since_ns >= kFormerSourceNs) service.source.reset();
    out.soon = true;
  }
  const std::vector<WantedRoute> routes = WantedRoutes(config_, next);
  for (const net::VipRoute& route : routes_) {
    const bool retired =
        std::none_of(routes.begin(), routes.end(), [&](const auto& each) { return each.route.vip == route.vip; });
    if (retired && route.source.has_value() && is_elsewhere(*route.source)) wanted.insert(*route.source);
  }
  std::erase_if(former_sources_, [&](const auto& former) { return wanted.contains(former.first); });
  for (const net::AddressInfo& each : network.addresses) {
    if (each.ifindex != own || each.scope >= RT_SCOPE_LINK || wanted.contains(each.address)) continue;
    const int64_t since_ns = former_sources_.try_emplace(each.address, now_ns).first->second;
    if (now_ns - since_ns < kFormerSourceNs) {
      out.soon = true;
      continue;
    }
    former_sources_.erase(each.address);
    released_.push_back(each.address);  // when the routes prefer others: KeepRoutes
  }
}

// Sources, routes and rules as they are wanted. What cannot be done is a problem, and tried again.
void ProxyInstance::KeepRoutes(const NetworkView& network, const Topology& next, Followed& out) {
  const auto keep = [&out](const absl::Status& status) {
    if (!status.ok()) out.problems.push_back({ProblemCode::kVipRouteLost, Text(status)});
    return status.ok();
  };
  keep(PutRules(config_));
  for (const WantedRoute& wanted : WantedRoutes(config_, next)) {
    if (std::find(routes_.begin(), routes_.end(), wanted.route) != routes_.end()) continue;
    if (keep(PutRoute(wanted, config_.rule_priority())))
      out.moved = true;
    else
      out.lost_vips.insert(wanted.route.vip);
  }
  for (const net::IpAddress& address : released_) {
    const absl::Status status = net::DeleteSourceAddress(links_.proxy.link.ifindex, address);
    if (!status.ok()) LogError(Text(status));  // it is found again at the next look
    if (status.ok()) LogInfo("took the former source ", address.ToString(), " off ", links_.proxy.link.name);
  }
  released_.clear();
  RestoreRoutes(network, out);
}

// A route is asked for where it counts, in the kernel's choice. Only when that differs the table is read.
void ProxyInstance::RestoreRoutes(const NetworkView& network, Followed& out) {
  std::optional<std::vector<net::VipRoute>> present;
  for (const net::VipRoute& route : routes_) {
    const auto lookup = network.look_up_route({.destination = route.vip});
    if (lookup.ok() && lookup->reach == net::Reach::kRouted && lookup->ifindex == route.ifindex &&
        (!route.source.has_value() || lookup->source == route.source))
      continue;
    if (!present.has_value()) {
      auto listed = net::ListVipRoutes(route.ifindex);
      if (!listed.ok()) {
        out.problems.push_back(
            {ProblemCode::kVipRouteLost, absl::StrCat("listing our routes: ", Text(listed.status()))});
        return;
      }
      present = *std::move(listed);
    }
    if (std::find(present->begin(), present->end(), route) != present->end()) continue;
    absl::Status status =
        route.source.has_value() ? net::AddSourceAddress(route.ifindex, *route.source) : absl::OkStatus();
    if (status.ok()) status = net::AddVipRoute(route);
    if (status.ok()) {
      ++out.routes;
    } else {
      out.lost_vips.insert(route.vip);
      const bool disabled = status.message().find("disable_ipv6") != absl::string_view::npos;
      out.problems.push_back({disabled ? ProblemCode::kIpv6Disabled : ProblemCode::kVipRouteLost,
                              absl::StrCat("restoring the route to ", route.vip.ToString(), ": ", Text(status))});
    }
  }
}

// A route of ours has the rule that `config` wants for its VIP, and no other.
absl::Status ProxyInstance::PutRules(const v1::Config& config) {
  const auto present = net::ListVipRules();
  if (!present.ok()) return present.status();
  absl::Status first;
  for (const net::VipRoute& route : routes_) {
    const net::VipRule wanted = {route.vip, config.rule_priority()};
    bool stands = wanted.priority == 0;
    for (const net::VipRule& rule : *present) {
      if (rule.vip != route.vip) continue;
      if (rule == wanted)
        stands = true;
      else
        first.Update(net::DeleteVipRule(rule));
    }
    if (!stands) first.Update(net::AddVipRule(wanted));
  }
  return first;
}

}  // namespace hedgerow
