// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/host_route.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"

namespace hedgerow::net {

std::optional<IpAddress> AddressAttribute(const netlink::Attributes& attributes, uint16_t type) {
  const auto payload = attributes.Find(type);
  if (!payload) return std::nullopt;
  const auto address = IpAddress::FromBytes(*payload);
  if (!address.ok()) return std::nullopt;
  return *address;
}

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
                     .source = AddressAttribute(attributes, RTA_PREFSRC),
                     .mtu_bytes = attributes.Nested(RTA_METRICS).Value<uint32_t>(RTAX_MTU).value_or(0)};
    if (ifindex != 0 && found.ifindex != ifindex) return;
    if (protocol != RTPROT_UNSPEC && found.protocol != protocol) return;
    routes.push_back(found);
  });
  // The kernel answers a dump filtered to nothing (no such table yet, interface gone) with an error.
  if (absl::IsNotFound(status)) return routes;
  if (!status.ok()) return status;
  return routes;
}

absl::StatusOr<std::vector<VipRoute>> ListRoutesOfOurs(int ifindex,
                                                       const std::function<bool(uint32_t metric)>& is_wanted) {
  std::vector<VipRoute> routes;
  for (const int family : {AF_INET, AF_INET6}) {
    const auto found = ListHostRoutes(family, ifindex, kRouteProtocol);
    if (!found.ok()) return found.status();
    for (const TableRoute& route : *found)
      if (is_wanted(route.metric))
        routes.push_back(
            {.vip = route.destination, .ifindex = route.ifindex, .source = route.source, .mtu_bytes = route.mtu_bytes});
  }
  return routes;
}

namespace {

netlink::Request HostRouteRequest(uint16_t type, uint16_t flags, const VipRoute& route, uint32_t metric) {
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
  if (metric != 0) request.PutU32(RTA_PRIORITY, metric);
  return request;
}

}  // namespace

absl::Status PutHostRoute(uint16_t flags, const VipRoute& route, uint32_t metric) {
  netlink::Request request = HostRouteRequest(RTM_NEWROUTE, NLM_F_CREATE | flags, route, metric);
  if (route.mtu_bytes != 0) {
    const size_t metrics = request.Begin(RTA_METRICS);
    request.PutU32(RTAX_MTU, route.mtu_bytes);
    request.End(metrics);
  }
  if (route.source) request.Put(RTA_PREFSRC, route.source->wire());
  return netlink::Do(request,
                     absl::StrCat((flags & NLM_F_REPLACE) != 0 ? "replace" : "add", " route ", ToString(route)));
}

absl::Status DeleteHostRoute(const VipRoute& route, uint32_t metric) {
  netlink::Request request = HostRouteRequest(RTM_DELROUTE, 0, route, metric);
  return netlink::OkIfGone(netlink::Do(request, absl::StrCat("remove route ", ToString(route))));
}

std::string ToString(const VipRoute& route) {
  return absl::StrCat(route.vip.ToString(), "/", route.vip.prefix_bits(), " dev ", LinkName(route.ifindex),
                      route.source ? absl::StrCat(" src ", route.source->ToString()) : "");
}

}  // namespace hedgerow::net
