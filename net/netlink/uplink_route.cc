// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/uplink_route.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "net/netlink/host_route.h"
#include "net/netlink/link.h"

namespace hedgerow::net {
namespace {

netlink::Request RouteRequest(uint16_t type, uint16_t flags, const VipRoute& route) {
  return HostRouteRequest(type, flags, route, kUplinkRouteMetric);
}

absl::StatusOr<std::vector<VipRoute>> ListOfMetric(uint32_t metric) {
  std::vector<VipRoute> routes;
  for (const int family : {AF_INET, AF_INET6}) {
    const auto found = ListHostRoutes(family, /*ifindex=*/0, kRouteProtocol);
    if (!found.ok()) return found.status();
    for (const TableRoute& route : *found) {
      if (route.metric == metric)
        routes.push_back(
            {.vip = route.destination, .ifindex = route.ifindex, .source = route.source, .mtu_bytes = route.mtu_bytes});
    }
  }
  return routes;
}

netlink::Request NeighbourRequest(uint16_t type, uint16_t flags, const VipRoute& route) {
  ndmsg header{};
  header.ndm_family = static_cast<uint8_t>(route.vip.family());
  header.ndm_ifindex = route.ifindex;
  header.ndm_state = NUD_PERMANENT;
  netlink::Request request(type, flags, header);
  request.Put(NDA_DST, route.vip.wire());
  return request;
}

std::string Text(const VipRoute& route) {
  const auto link = FindLink(route.ifindex);
  return absl::StrCat(route.vip.ToString(), " by ",
                      link.ok() ? link->name : absl::StrCat("interface number ", route.ifindex));
}

}  // namespace

absl::Status AddUplinkRoute(const VipRoute& route, const MacAddress& mac) {
  netlink::Request neighbour = NeighbourRequest(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, route);
  neighbour.Put(NDA_LLADDR, mac);
  neighbour.PutU8(NDA_PROTOCOL, kRouteProtocol);
  absl::Status status = netlink::Do(neighbour, absl::StrCat("add the neighbour entry of ", Text(route)));
  if (!status.ok()) return status;
  // Not NLM_F_REPLACE: that takes the first route to the VIP of this metric, whatever its device, and so another
  // uplink's.
  netlink::Request former = RouteRequest(RTM_DELROUTE, 0, route);
  netlink::Do(former, "remove the former route").IgnoreError();
  netlink::Request request = RouteRequest(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_APPEND, route);
  if (route.source) request.Put(RTA_PREFSRC, route.source->wire());
  status = netlink::Do(request, absl::StrCat("add the route to ", Text(route)));
  return status.ok() ? status : netlink::Undone(std::move(status), [&] { return DeleteUplinkRoute(route); });
}

absl::Status DeleteUplinkRoute(const VipRoute& route) {
  if (absl::Status status = DeleteLeadingRoute(route); !status.ok()) return status;
  netlink::Request request = RouteRequest(RTM_DELROUTE, 0, route);
  absl::Status status = netlink::Do(request, absl::StrCat("remove the route to ", Text(route)));
  netlink::Request neighbour = NeighbourRequest(RTM_DELNEIGH, 0, route);
  absl::Status forgotten = netlink::Do(neighbour, absl::StrCat("remove the neighbour entry of ", Text(route)));
  if (absl::IsNotFound(status)) status = absl::OkStatus();
  if (absl::IsNotFound(forgotten)) forgotten = absl::OkStatus();
  return status.ok() ? forgotten : status;
}

absl::StatusOr<std::vector<VipRoute>> ListUplinkRoutes() { return ListOfMetric(kUplinkRouteMetric); }

absl::Status AddLeadingRoute(const VipRoute& route) {
  netlink::Request request = HostRouteRequest(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route, kLeadingRouteMetric);
  if (route.source) request.Put(RTA_PREFSRC, route.source->wire());
  return netlink::Do(request, absl::StrCat("add the leading route to ", Text(route)));
}

absl::Status DeleteLeadingRoute(const VipRoute& route) {
  netlink::Request request = HostRouteRequest(RTM_DELROUTE, 0, route, kLeadingRouteMetric);
  const absl::Status status = netlink::Do(request, absl::StrCat("remove the leading route to ", Text(route)));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<VipRoute>> ListLeadingRoutes() { return ListOfMetric(kLeadingRouteMetric); }

}  // namespace hedgerow::net
