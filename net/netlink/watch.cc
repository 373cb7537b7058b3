// SPDX-License-Identifier: Apache-2.0
//
// Events over rtnetlink groups; comparisons with the kernel's tables where events do not tell.
#include "net/netlink/watch.h"

#include <linux/if_addr.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/str_cat.h"

namespace hedgerow::net {
namespace {

constexpr std::array<uint32_t, 6> kGroups = {RTNLGRP_LINK,        RTNLGRP_TC,         RTNLGRP_IPV4_IFADDR,
                                             RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE};

// In the order of WatchKind.
constexpr std::array<absl::string_view, 10> kKindNames = {
    "interface gone", "interface down", "interface up", "MTU changed", "hardware address or ARP changed",
    "qdisc or filter removed", "route gone", "address gone", "address back", "events lost"};
static_assert(kKindNames.size() == static_cast<size_t>(WatchKind::kEventsLost) + 1);

}  // namespace

std::string WatchEvent::ToString() const {
  std::string text(kKindNames.at(static_cast<size_t>(kind)));
  if (ifindex != 0) absl::StrAppend(&text, ", interface number ", ifindex);
  if (kind == WatchKind::kMtuChanged) absl::StrAppend(&text, ", now ", mtu_bytes, " bytes");
  if (kind == WatchKind::kRouteGone) absl::StrAppend(&text, ", VIP ", route.vip.ToString());
  if (kind == WatchKind::kAddressGone || kind == WatchKind::kAddressBack)
    absl::StrAppend(&text, ", ", address.ToString());
  return text;
}

absl::StatusOr<Watcher> Watcher::Start(const WatchSpec& spec) {
  // Subscribe first and look then, so that nothing happens unseen in between.
  auto events = netlink::Socket::Open(kGroups);
  if (!events.ok()) return events.status();
  Watcher watcher(spec, std::move(*events));
  for (const int ifindex : spec.ifindexes) {
    const auto link = FindLink(ifindex);
    if (!link.ok()) return link.status();
    watcher.links_[ifindex] = StateOf(*link);
  }
  watcher.route_present_.assign(spec.routes.size(), true);
  watcher.address_present_.assign(spec.addresses.size(), true);
  return watcher;
}

Watcher::LinkState Watcher::StateOf(const LinkInfo& link) {
  return {.present = true, .up = link.up(), .mtu_bytes = link.mtu_bytes, .resolves = link.resolves(), .mac = link.mac};
}

void Watcher::OnLinkState(int ifindex, const LinkState& now, std::vector<WatchEvent>& out) {
  LinkState& known = links_.at(ifindex);
  const LinkState before = known;
  known = now;
  if (before.present && !now.present) {
    out.push_back({.kind = WatchKind::kLinkGone, .ifindex = ifindex});
    return;
  }
  if (!now.present) return;
  if (before.up != now.up)
    out.push_back({.kind = now.up ? WatchKind::kLinkUp : WatchKind::kLinkDown, .ifindex = ifindex});
  if (before.mtu_bytes != now.mtu_bytes)
    out.push_back({.kind = WatchKind::kMtuChanged, .ifindex = ifindex, .mtu_bytes = now.mtu_bytes});
  if (before.mac != now.mac || before.resolves != now.resolves)
    out.push_back({.kind = WatchKind::kLinkChanged, .ifindex = ifindex});
}

void Watcher::OnMessage(const netlink::Message& message, Touched& touched, std::vector<WatchEvent>& out) {
  switch (message.type) {
    case RTM_NEWLINK:
    case RTM_DELLINK: {
      const auto header = message.Header<ifinfomsg>();
      // A bridge tells of its ports in messages of its own family, which look like a removal of the interface.
      if (header.ifi_family != AF_UNSPEC || !links_.contains(header.ifi_index)) return;
      touched.routes = true;
      touched.addresses = true;
      const LinkState& known = links_[header.ifi_index];
      LinkState now{.present = message.type == RTM_NEWLINK, .up = (header.ifi_flags & IFF_UP) != 0};
      now.resolves = (header.ifi_flags & IFF_NOARP) == 0;
      const auto attributes = message.AttributesAfter<ifinfomsg>();
      now.mtu_bytes = attributes.Value<uint32_t>(IFLA_MTU).value_or(known.mtu_bytes);
      now.mac = attributes.Value<MacAddress>(IFLA_ADDRESS).value_or(known.mac);
      OnLinkState(header.ifi_index, now, out);
      return;
    }
    case RTM_DELQDISC:
    case RTM_DELTFILTER: {
      const auto header = message.Header<tcmsg>();
      if (links_.contains(header.tcm_ifindex))
        out.push_back({.kind = WatchKind::kQdiscChanged, .ifindex = header.tcm_ifindex});
      return;
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      const auto header = message.Header<ifaddrmsg>();
      const int ifindex = static_cast<int>(header.ifa_index);
      const bool watched =
          links_.contains(ifindex) || std::any_of(spec_.addresses.begin(), spec_.addresses.end(),
                                                  [&](const AddressInfo& a) { return a.ifindex == ifindex; });
      touched.routes |= watched;
      touched.addresses |= watched;
      return;
    }
    case RTM_NEWROUTE:
    case RTM_DELROUTE: {
      const auto destination = message.AttributesAfter<rtmsg>().Find(RTA_DST);
      if (!destination) return;
      touched.routes |= std::any_of(spec_.routes.begin(), spec_.routes.end(), [&](const VipRoute& route) {
        return std::equal(destination->begin(), destination->end(), route.vip.wire().begin(),
                          route.vip.wire().end());
      });
      return;
    }
    default:
      return;
  }
}

absl::Status Watcher::CompareLinks(std::vector<WatchEvent>& out) {
  for (const auto& [ifindex, known] : std::map<int, LinkState>(links_)) {
    const auto link = FindLink(ifindex);
    if (!link.ok() && !absl::IsNotFound(link.status())) return link.status();
    OnLinkState(ifindex, link.ok() ? StateOf(*link) : LinkState{.present = false}, out);
  }
  return absl::OkStatus();
}

absl::Status Watcher::CompareRoutes(std::vector<WatchEvent>& out) {
  std::set<int> ifindexes;
  for (const VipRoute& route : spec_.routes) ifindexes.insert(route.ifindex);
  std::vector<VipRoute> present;
  for (const int ifindex : ifindexes) {
    const auto routes = ListVipRoutes(ifindex);
    if (!routes.ok()) return routes.status();
    present.insert(present.end(), routes->begin(), routes->end());
  }
  for (size_t i = 0; i < spec_.routes.size(); ++i) {
    const bool there = std::find(present.begin(), present.end(), spec_.routes[i]) != present.end();
    if (route_present_[i] && !there) {
      const VipRoute& route = spec_.routes[i];
      out.push_back({.kind = WatchKind::kRouteGone, .ifindex = route.ifindex, .route = route});
    }
    route_present_[i] = there;
  }
  return absl::OkStatus();
}

absl::Status Watcher::CompareAddresses(std::vector<WatchEvent>& out) {
  if (spec_.addresses.empty()) return absl::OkStatus();
  const auto present = ListAddresses();
  if (!present.ok()) return present.status();
  for (size_t i = 0; i < spec_.addresses.size(); ++i) {
    const AddressInfo& wanted = spec_.addresses[i];
    const bool there = std::any_of(present->begin(), present->end(), [&](const AddressInfo& a) {
      return a.ifindex == wanted.ifindex && a.address == wanted.address;
    });
    if (address_present_[i] != there) {
      out.push_back({.kind = there ? WatchKind::kAddressBack : WatchKind::kAddressGone,
                     .ifindex = wanted.ifindex,
                     .address = wanted.address});
    }
    address_present_[i] = there;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WatchEvent>> Watcher::Drain() {
  std::vector<WatchEvent> out;
  Touched touched;
  const absl::Status drained =
      events_.Drain([&](const netlink::Message& message) { OnMessage(message, touched, out); });
  if (absl::IsUnavailable(drained)) {
    out.push_back(WatchEvent{});
    const auto rest = CheckAll();
    if (!rest.ok()) return rest.status();
    out.insert(out.end(), rest->begin(), rest->end());
    return out;
  }
  if (!drained.ok()) return drained;
  // A start with a route or address missing shows at the first Drain, whether there were events or not.
  touched.routes |= first_;
  touched.addresses |= first_;
  first_ = false;
  if (touched.addresses) {
    if (absl::Status status = CompareAddresses(out); !status.ok()) return status;
  }
  if (touched.routes) {
    if (absl::Status status = CompareRoutes(out); !status.ok()) return status;
  }
  return out;
}

absl::StatusOr<std::vector<WatchEvent>> Watcher::CheckAll() {
  std::vector<WatchEvent> out;
  for (const absl::Status& status : {CompareLinks(out), CompareAddresses(out), CompareRoutes(out)}) {
    if (!status.ok()) return status;
  }
  return out;
}

}  // namespace hedgerow::net
