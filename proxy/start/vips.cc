// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/vips.h"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "steer/sock_diag.h"

namespace hedgerow {
namespace {

// Why the kernel does not give such packets for a VIP to the proxy interface; empty: it does, or to an uplink where the
// splitter takes them (`taken`).
std::string Detour(const v1::Config& config, const NetworkView& network, const net::RouteQuery& query,
                   int proxy_ifindex, const std::vector<net::VipRoute>& taken) {
  const net::IpAddress& vip = query.destination;
  const auto route = network.look_up_route(query);
  if (absl::IsUnimplemented(route.status())) return "";  // a kernel without IPv6, as no_route says
  if (!route.ok()) return std::string(route.status().message());
  if (route->reach == net::Reach::kLocal || route->reach == net::Reach::kLoopback) return "";  // vip_local
  const bool ordinary = route->table == 0 || route->table == RT_TABLE_MAIN || route->table == RT_TABLE_DEFAULT;
  if (proxy_ifindex == 0) {
    // A route to the proxy interface will stand in the main table, and be the most specific one there.
    if (route->reach != net::Reach::kRouted || ordinary || config.rule_priority() != 0) return "";
  } else if (route->reach != net::Reach::kRouted) {
    return absl::StrCat("has no route to it: ", route->reason);
  } else if (route->ifindex == proxy_ifindex || std::any_of(taken.begin(), taken.end(), [&](const net::VipRoute& each) {
               return each.vip == vip && each.ifindex == route->ifindex;
             })) {
    return "";
  }
  return net::DescribeDetour(vip, *route);
}

// Packets to a VIP, and whose: "" for those of any socket.
struct Packets {
  std::string whose;
  net::RouteQuery query;
  bool of_some = false;  // by a rule for some senders
};

// One kind for each source that clients may have.
std::vector<Packets> BySource(const NetworkView& network, const net::IpAddress& vip, int proxy_ifindex) {
  std::vector<Packets> packets = {{.whose = "", .query = {.destination = vip}}};
  for (const net::AddressInfo& each : network.addresses) {
    // The proxy interface has sources of uplinks only, and perhaps one that is being released.
    const bool global = each.scope < RT_SCOPE_LINK && !each.address.is_loopback() && each.ifindex != proxy_ifindex;
    const bool tentative = !each.address.is_v4() && (each.flags & IFA_F_TENTATIVE) != 0;
    if (global && !tentative && each.address.family() == vip.family() && packets.size() <= kMaxSources)
      packets.push_back({.whose = absl::StrCat("from ", each.address.ToString(), " "),
                         .query = {.destination = vip, .source = each.address}});
  }
  return packets;
}

int IndexOf(const NetworkView& network, const std::string& device) {
  for (const net::LinkInfo& link : network.links)
    if (link.name == device) return link.ifindex;
  return 0;
}

// About an address that this host has, by the interface that has it.
std::string WhatToDo(const v1::Service& service, const NetworkView& network, const net::IpAddress& vip) {
  const bool ipvs = std::any_of(network.addresses.begin(), network.addresses.end(), [&](const auto& each) {
    return each.address == vip && IndexOf(network, "kube-ipvs0") == each.ifindex;
  });
  return ipvs ? "; kube-proxy's mode ipvs has it on kube-ipvs0: `in_place` needs its mode nftables or iptables"
         : service.in_place()
             ? "; it was none when the configuration was read: restart, or list it in `also_at` beside a VIP that no host "
               "has"
             : "; a VIP must be an address that no host has";
}

// One kind for each rule that is for some senders only, and for a port that a service of the VIP has. `bound`: see
// CheckVips. A socket that is bound to another interface than those has left the VIP by its own choice, whatever the
// rules say.
std::vector<Packets> BySender(const v1::Config& config, const NetworkView& network, const net::IpAddress& vip,
                              int proxy_ifindex, const std::vector<net::VipRoute>& bound) {
  std::vector<Packets> packets;
  for (const net::SenderRule& rule : network.sender_rules) {
    const bool carried =
        rule.sender.protocol == 0 || rule.sender.protocol == IPPROTO_UDP || rule.sender.protocol == IPPROTO_TCP;
    const auto asked =
        std::find_if(config.services().begin(), config.services().end(), [&](const v1::Service& service) {
          const auto address = net::IpAddress::Parse(service.vip());
          return address.ok() && *address == vip && rule.first_port <= service.port() &&
                 service.port() <= rule.last_port;
        });
    if (rule.family != vip.family() || !carried || asked == config.services().end() || packets.size() == kMaxSources)
      continue;
    const std::string whose = rule.Describe();
    if (whose.empty()) continue;  // for a network alone: BySource() and Forwarded()
    net::RouteQuery query{.destination = vip, .out_ifindex = IndexOf(network, rule.device), .sender = rule.sender};
    const bool bound_here =
        query.out_ifindex == proxy_ifindex || std::any_of(bound.begin(), bound.end(), [&](const net::VipRoute& each) {
          return each.vip == vip && each.ifindex == query.out_ifindex;
        });
    if (!rule.device.empty() && !bound_here) continue;
    if (rule.from) {
      const auto own = std::find_if(network.addresses.begin(), network.addresses.end(),
                                    [&](const net::AddressInfo& each) { return rule.from->Contains(each.address); });
      if (own != network.addresses.end())
        query.source = own->address;
      else if (rule.from->bits == vip.prefix_bits())
        query.source = rule.from->address;
      else
        continue;
    }
    query.sender.destination_port = static_cast<uint16_t>(asked->port());
    if (query.sender.protocol == 0) query.sender.protocol = IPPROTO_UDP;
    packets.push_back({.whose = absl::StrCat("for packets of ", whose, " "), .query = query, .of_some = true});
  }
  return packets;
}

// What this host forwards to the VIP: an address of each network that its services list, and of the part of one that a
// routing rule is for. Where it would not forward the same packet to a backend either, it says nothing.
std::vector<Packets> Forwarded(const v1::Config& config, const NetworkView& network, const net::IpAddress& vip) {
  std::vector<Packets> packets;
  for (const v1::Service& service : config.services()) {
    const auto of = net::IpAddress::Parse(service.vip());
    const auto backend = service.backends().empty() ? of : net::IpAddress::Parse(service.backends(0).address());
    if (!of.ok() || *of != vip || !backend.ok()) continue;
    for (const std::string& text : service.clients()) {
      const auto listed = net::Network::Parse(text);
      if (!listed.ok() || listed->address.family() != vip.family()) continue;
      std::vector<net::Network> parts = {*listed};
      for (const net::SenderRule& rule : network.sender_rules) {
        if (rule.from && rule.from->bits > listed->bits && listed->Contains(rule.from->address))
          parts.push_back(*rule.from);
      }
      for (const net::Network& part : parts) {
        const net::IpAddress client = part.Host();
        const auto way = network.look_up_route({.destination = client});
        if (!way.ok() || way->reach != net::Reach::kRouted || packets.size() == kMaxSources) continue;
        const auto control =
            network.look_up_route({.destination = *backend, .source = client, .in_ifindex = way->ifindex});
        if (!control.ok() || control->reach != net::Reach::kRouted) continue;
        packets.push_back({.whose = absl::StrCat("for packets that are forwarded from ", part.ToString(), " "),
                           .query = {.destination = vip, .source = client, .in_ifindex = way->ifindex},
                           .of_some = true});
      }
    }
  }
  return packets;
}

void CheckVip(const v1::Config& config, const NetworkView& network, const v1::Service& service,
              const net::IpAddress& vip, int proxy_ifindex, const std::vector<net::VipRoute>& leading,
              const std::vector<net::VipRoute>& bound, std::vector<Problem>& problems) {
  std::vector<Packets> kinds = BySource(network, vip, proxy_ifindex);
  if (proxy_ifindex != 0) {
    for (Packets& each : BySender(config, network, vip, proxy_ifindex, bound)) kinds.push_back(std::move(each));
    for (Packets& each : Forwarded(config, network, vip)) kinds.push_back(std::move(each));
  }
  for (const Packets& packets : kinds) {
    const std::string why = Detour(config, network, packets.query, proxy_ifindex, packets.of_some ? bound : leading);
    if (why.empty()) continue;
    problems.push_back(
        {ProblemCode::kVipRoutedElsewhere,
         absl::StrCat("service ", service.name(), ": ", packets.whose, "the kernel ", why, ", not to ",
                      config.interface(),
                      config.rule_priority() == 0 ? "; `rule_priority` makes a rule for VIPs that stands before it"
                                                  : "; `rule_priority` must be a smaller number than that rule's")});
    return;
  }
}

bool IsOwn(const NetworkView& network, const net::IpAddress& address) {
  return std::any_of(network.addresses.begin(), network.addresses.end(),
                     [&](const net::AddressInfo& each) { return each.address == address; });
}

// An address of a client of this network.
net::IpAddress ClientOf(const net::Network& clients, const NetworkView& network) {
  const net::IpAddress first = clients.Host();
  if (!IsOwn(network, first)) return first;
  std::vector<uint8_t> bytes(first.wire().begin(), first.wire().end());
  ++bytes.back();
  return *net::IpAddress::FromBytes(bytes);
}

// What listens there would get nothing any more, unless it is a backend itself; and what comes from other hosts is
// forwarded, once it is translated.
void CheckAlsoAt(const NetworkView& network, const v1::Service& service, std::vector<Problem>& problems) {
  const auto port = static_cast<uint16_t>(service.port());
  const auto add = [&](ProblemCode code, const std::string& text) {
    problems.push_back({code, absl::StrCat("service ", service.name(), ": ", text)});
  };
  const auto is_here = [&](const v1::Backend& backend) {
    const auto address = net::IpAddress::Parse(backend.address());
    return backend.port() == port && address.ok() && (address->is_loopback() || IsOwn(network, *address));
  };
  const bool serves_itself = std::any_of(service.backends().begin(), service.backends().end(), is_here);
  for (const std::string& text : service.also_at()) {
    const auto address = net::IpAddress::Parse(text);
    if (!address.ok() || !IsOwn(network, *address) || serves_itself || network.find_holders == nullptr) continue;
    if (const std::string holders = network.find_holders(*address, port); !holders.empty())
      add(ProblemCode::kAddressTaken, absl::StrCat(holders, " already, which `in_place` would cut off from ", text,
                                                   ": let it listen elsewhere, or list it as a backend"));
  }
  for (const std::string& text : service.clients()) {
    const auto clients = net::Network::Parse(text);
    const auto backend = net::IpAddress::Parse(service.backends(0).address());
    if (service.also_at().empty() || !clients.ok() || !backend.ok()) continue;
    const net::IpAddress client = ClientOf(*clients, network);
    const auto way = network.look_up_route({.destination = client});
    if (!way.ok() || way->reach != net::Reach::kRouted) continue;
    const auto route = network.look_up_route({.destination = *backend, .source = client, .in_ifindex = way->ifindex});
    if (route.ok() && route->reach == net::Reach::kUnreachable)
      add(ProblemCode::kNotForwarded,
          absl::StrCat(
              "this host does not forward what comes from ", text, " (", route->reason, "): ",
              client.is_v4() ? "`sysctl -w net.ipv4.ip_forward=1`" : "`sysctl -w net.ipv6.conf.all.forwarding=1`"));
  }
}

}  // namespace

std::string FindHolders(const net::IpAddress& address, uint16_t port) {
  std::vector<std::string> texts;
  for (const auto transport : {steer::Transport::kUdp, steer::Transport::kTcp}) {
    const auto holders = steer::ListHolders(transport, {address, port}, /*wildcards=*/true);
    if (!holders.ok() || holders->empty()) continue;
    std::set<std::string> places;
    for (const auto& each : *holders) places.insert(steer::Listen{each.local, each.local_port}.ToString());
    texts.push_back(absl::StrCat(steer::TransportText(transport), " ", absl::StrJoin(places, ", "), " is held by ",
                                 steer::DescribeHolders(*holders)));
  }
  return absl::StrJoin(texts, "; ");
}

std::string VipBehind(const net::IpAddress& own) {
  std::vector<uint8_t> bytes(own.wire().begin(), own.wire().end());
  if (own.is_v4()) {
    bytes[1] ^= bytes[0] & 0xf0;
    bytes[0] |= 0xf0;
  } else {
    for (size_t i = 0; i < 8; ++i) bytes[8 + i] ^= std::exchange(bytes[i], 0);
    bytes[0] = 1;
  }
  return net::IpAddress::FromBytes(bytes)->ToString();
}

void MoveOwnAddresses(v1::Config& config, const v1::Config& before) {
  if (std::none_of(config.services().begin(), config.services().end(),
                   [](const auto& each) { return each.in_place(); }))
    return;
  const auto addresses = net::ListAddresses();
  if (!addresses.ok()) return;  // the look at the network says why
  const auto ipvs = net::FindLink("kube-ipvs0");
  for (v1::Service& service : *config.mutable_services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    if (!service.in_place() || !vip.ok()) continue;
    const std::string behind = VipBehind(*vip);
    const bool moved = std::any_of(before.services().begin(), before.services().end(), [&](const auto& each) {
      return each.name() == service.name() && each.vip() == behind &&
             absl::c_linear_search(each.also_at(), service.vip());
    });
    const bool own = std::any_of(addresses->begin(), addresses->end(), [&](const net::AddressInfo& each) {
      return each.address == *vip && !(ipvs.ok() && each.ifindex == ipvs->ifindex);
    });
    if (!own && !moved) continue;
    service.add_also_at(service.vip());
    service.set_vip(behind);
    service.set_in_place(false);
  }
}

std::vector<Problem> CheckVips(const v1::Config& config, const NetworkView& network, int proxy_ifindex,
                               std::set<net::IpAddress> known, const std::vector<net::VipRoute>& leading,
                               const std::vector<net::VipRoute>& bound) {
  std::vector<Problem> problems;
  std::map<std::pair<std::string, uint32_t>, std::string> asked;
  for (const v1::Service& service : config.services()) {
    CheckAlsoAt(network, service, problems);
    if (const auto [other, is_new] = asked.emplace(std::pair(service.vip(), service.port()), service.name()); !is_new)
      problems.push_back(
          {ProblemCode::kVipLocal,
           absl::StrCat("service ", service.name(), ": the hidden VIP ", service.vip(), " of its address is service ",
                        other->second, "'s, too: list the address in `also_at` beside a VIP that no host has")});
    const auto vip = net::IpAddress::Parse(service.vip());
    if (!vip.ok() || !known.insert(*vip).second) continue;
    const bool local = IsOwn(network, *vip);
    const absl::StatusOr<net::RouteLookup> route = network.look_up_route({.destination = *vip});
    const bool broadcast = !local && route.ok() && route->broadcast;
    if (local || broadcast) {
      problems.push_back(
          {ProblemCode::kVipLocal,
           absl::StrCat("service ", service.name(), ": the vip ", service.vip(), " is ",
                        broadcast ? "a broadcast address of a network of this host" : "an address of this host",
                        WhatToDo(service, network, *vip))});
    } else {
      CheckVip(config, network, service, *vip, proxy_ifindex, leading, bound, problems);
    }
  }
  return problems;
}

}  // namespace hedgerow
