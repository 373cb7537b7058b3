// SPDX-License-Identifier: Apache-2.0
//
// Routes and addresses over rtnetlink, both families through the same code.
#include "net/netlink/route.h"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"
#include "net/netlink/netlink.h"
#include "net/netlink/uplink_route.h"

namespace hedgerow::net {
namespace {

// One route of the main table, as a dump shows it.
struct TableRoute {
  IpAddress destination;
  int ifindex = 0;
  uint8_t protocol = 0;
  uint32_t metric = 0;
  std::optional<IpAddress> source;
};

std::optional<IpAddress> AddressAttribute(const netlink::Attributes& attributes, uint16_t type) {
  const auto payload = attributes.Find(type);
  if (!payload) return std::nullopt;
  const auto address = IpAddress::FromBytes(*payload);
  if (!address.ok()) return std::nullopt;
  return *address;
}

std::string InterfaceName(int ifindex) {
  const auto link = FindLink(ifindex);
  return link.ok() ? link->name : absl::StrCat("interface number ", ifindex);
}

std::string ToString(const VipRoute& route) {
  return absl::StrCat(route.vip.ToString(), "/", route.vip.prefix_bits(), " dev ", InterfaceName(route.ifindex),
                      " src ", route.source.ToString());
}

// Host routes of the main table. Where the kernel filters dumps itself (4.20 and later) only matching ones
// travel.
absl::StatusOr<std::vector<TableRoute>> ListHostRoutes(int family, int ifindex, uint8_t protocol) {
  rtmsg header{};
  header.rtm_family = static_cast<uint8_t>(family);
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = protocol;
  netlink::Request request(RTM_GETROUTE, NLM_F_DUMP, header);
  if (ifindex != 0) request.PutU32(RTA_OIF, static_cast<uint32_t>(ifindex));
  std::vector<TableRoute> routes;
  const absl::Status status = netlink::Ask(request, "list routes", [&](const netlink::Message& message) {
    const auto route = message.Header<rtmsg>();
    const auto attributes = message.AttributesAfter<rtmsg>();
    const auto destination = AddressAttribute(attributes, RTA_DST);
    const uint32_t table = attributes.Value<uint32_t>(RTA_TABLE).value_or(route.rtm_table);
    if (!destination || table != RT_TABLE_MAIN || route.rtm_dst_len != destination->prefix_bits()) return;
    if (route.rtm_flags & RTM_F_CLONED) return;
    TableRoute found{.destination = *destination,
                     .ifindex = static_cast<int>(attributes.Value<uint32_t>(RTA_OIF).value_or(0)),
                     .protocol = route.rtm_protocol,
                     .metric = attributes.Value<uint32_t>(RTA_PRIORITY).value_or(0),
                     .source = AddressAttribute(attributes, RTA_PREFSRC)};
    if (ifindex != 0 && found.ifindex != ifindex) return;
    if (protocol != RTPROT_UNSPEC && found.protocol != protocol) return;
    routes.push_back(found);
  });
  // The kernel answers a dump filtered to nothing (no such table yet, interface gone) with an error.
  if (absl::IsNotFound(status)) return routes;
  if (!status.ok()) return status;
  return routes;
}

netlink::Request VipRequest(uint16_t type, uint16_t flags, const VipRoute& route) {
  rtmsg header{};
  header.rtm_family = static_cast<uint8_t>(route.vip.family());
  header.rtm_dst_len = static_cast<uint8_t>(route.vip.prefix_bits());
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = kRouteProtocol;
  header.rtm_scope = type == RTM_DELROUTE ? RT_SCOPE_NOWHERE : RT_SCOPE_LINK;
  header.rtm_type = RTN_UNICAST;
  netlink::Request request(type, flags, header);
  request.Put(RTA_DST, route.vip.wire());
  request.PutU32(RTA_OIF, static_cast<uint32_t>(route.ifindex));
  return request;
}

std::string ReasonOf(uint8_t type) {
  if (type == RTN_UNREACHABLE) return "an 'unreachable' route";
  if (type == RTN_PROHIBIT) return "a 'prohibit' route";
  if (type == RTN_BLACKHOLE) return "a 'blackhole' route";
  return absl::StrCat("a route of type ", static_cast<int>(type));
}

// Refuses a VIP that is an address of this host, or that has another owner's route. True: our equal route is
// there already.
absl::StatusOr<bool> CheckVip(const VipRoute& route) {
  const auto lookup = LookUpRoute(route.vip);
  if (!lookup.ok()) return lookup.status();
  if (lookup->reach == Reach::kLocal || lookup->reach == Reach::kLoopback) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the VIP ", route.vip.ToString(), " is an address of this host; choose one that nobody has"));
  }
  const auto routes = ListHostRoutes(route.vip.family(), 0, RTPROT_UNSPEC);
  if (!routes.ok()) return routes.status();
  for (const TableRoute& existing : *routes) {
    if (existing.destination != route.vip || existing.metric == kUplinkRouteMetric) continue;
    const bool ours = existing.protocol == kRouteProtocol && existing.ifindex == route.ifindex;
    if (ours && existing.source == route.source) return true;
    if (ours) continue;  // Ours with an older source: replaced by the caller.
    return absl::AlreadyExistsError(
        absl::StrCat("the VIP ", route.vip.ToString(), "/", route.vip.prefix_bits(), " is routed already: dev ",
                     InterfaceName(existing.ifindex), " proto ", static_cast<int>(existing.protocol),
                     existing.protocol == kRouteProtocol ? " (another hedgerow instance)" : ""));
  }
  return false;
}

}  // namespace

absl::StatusOr<RouteLookup> LookUpRoute(const IpAddress& destination) {
  RouteLookup lookup;
  if (destination.is_loopback()) {
    lookup.reach = Reach::kLoopback;
    return lookup;
  }
  // The address table first: it knows which interface has the address, where a route look-up only answers `dev
  // lo`; and it knows an IPv6 address at once, where the route to it appears a little later (its duplicate
  // detection is a kernel worker's job, `nodad` or not; seen on 6.18 as a VIP equal to a fresh address that was
  // taken for free).
  const auto addresses = ListAddresses();
  if (!addresses.ok()) return addresses.status();
  const auto owner = std::find_if(addresses->begin(), addresses->end(),
                                  [&](const AddressInfo& a) { return a.address == destination; });
  if (owner != addresses->end()) {
    lookup.reach = Reach::kLocal;
    lookup.ifindex = owner->ifindex;
    return lookup;
  }
  rtmsg header{};
  header.rtm_family = static_cast<uint8_t>(destination.family());
  header.rtm_dst_len = static_cast<uint8_t>(destination.prefix_bits());
  netlink::Request request(RTM_GETROUTE, 0, header);
  request.Put(RTA_DST, destination.wire());
  const absl::Status status =
      netlink::Ask(request, absl::StrCat("look up the route to ", destination.ToString()),
                   [&](const netlink::Message& message) {
                     const auto route = message.Header<rtmsg>();
                     const auto attributes = message.AttributesAfter<rtmsg>();
                     lookup.gateway = AddressAttribute(attributes, RTA_GATEWAY);
                     if (const auto via = attributes.Find(RTA_VIA); via && via->size() > sizeof(rtvia)) {
                       // An IPv4 route through an IPv6 neighbour.
                       const auto gateway = IpAddress::FromBytes(via->subspan(offsetof(rtvia, rtvia_addr)));
                       if (gateway.ok()) lookup.gateway = *gateway;
                     }
                     lookup.source = AddressAttribute(attributes, RTA_PREFSRC);
                     if (route.rtm_type == RTN_UNICAST) {
                       lookup.reach = Reach::kRouted;
                       lookup.ifindex = static_cast<int>(attributes.Value<uint32_t>(RTA_OIF).value_or(0));
                     } else if (route.rtm_type == RTN_LOCAL) {
                       lookup.reach = Reach::kLocal;
                     } else {
                       lookup.reason = ReasonOf(route.rtm_type);
                     }
                   });
  // IPv4 reports the route's verdict as an error: ENETUNREACH, EHOSTUNREACH (Unavailable), EACCES for prohibit,
  // EINVAL for blackhole.
  if (absl::IsUnavailable(status) || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status)) {
    lookup.reason = std::string(status.message());
    return lookup;
  }
  if (!status.ok()) return status;
  return lookup;
}

absl::Status AddVipRoute(const VipRoute& route) {
  if (route.vip.family() != route.source.family()) {
    return absl::InvalidArgumentError(absl::StrCat("VIP ", route.vip.ToString(), " and source ",
                                                   route.source.ToString(), " are of different families"));
  }
  const auto present = CheckVip(route);
  if (!present.ok()) return present.status();
  if (*present) return absl::OkStatus();
  if (absl::Status status = DeleteVipRoute(route); !status.ok()) return status;
  netlink::Request request = VipRequest(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route);
  request.Put(RTA_PREFSRC, route.source.wire());
  if (absl::Status status = netlink::Do(request, absl::StrCat("add route ", ToString(route))); !status.ok())
    return status;
  const auto lookup = LookUpRoute(route.vip);
  if (lookup.ok() && lookup->reach == Reach::kRouted && lookup->ifindex == route.ifindex)
    return absl::OkStatus();
  DeleteVipRoute(route).IgnoreError();
  if (!lookup.ok()) return lookup.status();
  return absl::FailedPreconditionError(absl::StrCat(
      "the route ", ToString(route), " takes no effect: the kernel ",
      lookup->reach == Reach::kRouted ? absl::StrCat("still sends the VIP to ", InterfaceName(lookup->ifindex))
                                      : absl::StrCat("does not use it ", lookup->reason),
      "; look at `ip rule`, and whether the interface is up"));
}

absl::Status ReplaceVipRoute(const VipRoute& route) {
  netlink::Request request = VipRequest(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route);
  request.Put(RTA_PREFSRC, route.source.wire());
  return netlink::Do(request, absl::StrCat("replace route ", ToString(route)));
}

absl::Status DeleteVipRoute(const VipRoute& route) {
  netlink::Request request = VipRequest(RTM_DELROUTE, 0, route);
  const absl::Status status = netlink::Do(request, absl::StrCat("remove route ", ToString(route)));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<VipRoute>> ListVipRoutes(int ifindex) {
  std::vector<VipRoute> routes;
  for (const int family : {AF_INET, AF_INET6}) {
    const auto found = ListHostRoutes(family, ifindex, kRouteProtocol);
    if (!found.ok()) return found.status();
    for (const TableRoute& route : *found) {
      routes.push_back(
          {.vip = route.destination, .ifindex = route.ifindex, .source = route.source.value_or(IpAddress())});
    }
  }
  return routes;
}

absl::Status AddSourceAddress(int ifindex, const IpAddress& address) {
  const auto addresses = ListAddresses(ifindex);
  if (!addresses.ok()) return addresses.status();
  for (const AddressInfo& present : *addresses) {
    if (present.address == address && present.prefix_bits == address.prefix_bits()) return absl::OkStatus();
  }
  ifaddrmsg header{};
  header.ifa_family = static_cast<uint8_t>(address.family());
  header.ifa_prefixlen = static_cast<uint8_t>(address.prefix_bits());
  header.ifa_scope = RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<uint32_t>(ifindex);
  netlink::Request request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, header);
  request.Put(IFA_LOCAL, address.wire());
  request.Put(IFA_ADDRESS, address.wire());
  // No duplicate-address detection: the address is the uplink's, which has passed it.
  request.PutU32(IFA_FLAGS, IFA_F_NOPREFIXROUTE | (address.is_v4() ? 0 : IFA_F_NODAD));
  return netlink::Do(request, absl::StrCat("add address ", address.ToString(), " dev ", InterfaceName(ifindex)));
}

absl::StatusOr<std::vector<AddressInfo>> ListAddresses(int ifindex) {
  ifaddrmsg header{};
  header.ifa_index = static_cast<uint32_t>(ifindex);
  netlink::Request request(RTM_GETADDR, NLM_F_DUMP, header);
  std::vector<AddressInfo> addresses;
  const absl::Status status = netlink::Ask(request, "list addresses", [&](const netlink::Message& message) {
    const auto info = message.Header<ifaddrmsg>();
    const auto attributes = message.AttributesAfter<ifaddrmsg>();
    auto address = AddressAttribute(attributes, IFA_LOCAL);
    if (!address) address = AddressAttribute(attributes, IFA_ADDRESS);
    if (!address || (ifindex != 0 && static_cast<int>(info.ifa_index) != ifindex)) return;
    addresses.push_back(
        {.ifindex = static_cast<int>(info.ifa_index), .address = *address, .prefix_bits = info.ifa_prefixlen});
  });
  if (absl::IsNotFound(status)) return addresses;  // The interface is gone: so are its addresses.
  if (!status.ok()) return status;
  return addresses;
}

}  // namespace hedgerow::net
