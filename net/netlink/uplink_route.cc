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

netlink::Request NeighbourRequest(uint16_t type, uint16_t flags, const VipRoute& route) {
  ndmsg header{};
  header.ndm_family = static_cast<uint8_t>(route.vip.family());
  header.ndm_ifindex = route.ifindex;
  header.ndm_state = NUD_PERMANENT;
  netlink::Request request(type, flags, header);
  request.Put(NDA_DST, route.vip.wire());
  return request;
}

}  // namespace

absl::Status AddUplinkRoute(const VipRoute& route, const MacAddress& mac) {
  netlink::Request neighbour = NeighbourRequest(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, route);
  neighbour.Put(NDA_LLADDR, mac);
  neighbour.PutU8(NDA_PROTOCOL, kRouteProtocol);
  absl::Status status = netlink::Do(neighbour, absl::StrCat("add the neighbour entry of ", ToString(route)));
  if (!status.ok()) return status;
  // Not NLM_F_REPLACE: that takes the first route to the VIP of this metric, whatever its device, and so another
  // uplink's.
  DeleteHostRoute(route, kUplinkRouteMetric).IgnoreError();
  status = PutHostRoute(NLM_F_APPEND, route, kUplinkRouteMetric);
  return status.ok() ? status : netlink::Undone(std::move(status), [&] { return DeleteUplinkRoute(route); });
}

absl::Status DeleteUplinkRoute(const VipRoute& route) {
  if (absl::Status status = DeleteLeadingRoute(route); !status.ok()) return status;
  absl::Status status = DeleteHostRoute(route, kUplinkRouteMetric);
  netlink::Request neighbour = NeighbourRequest(RTM_DELNEIGH, 0, route);
  status.Update(
      netlink::OkIfGone(netlink::Do(neighbour, absl::StrCat("remove the neighbour entry of ", ToString(route)))));
  return status;
}

absl::StatusOr<std::vector<VipRoute>> ListUplinkRoutes() {
  return ListRoutesOfOurs(/*ifindex=*/0, [](uint32_t metric) { return metric == kUplinkRouteMetric; });
}

absl::Status AddLeadingRoute(const VipRoute& route) { return PutHostRoute(NLM_F_REPLACE, route, kLeadingRouteMetric); }

absl::Status DeleteLeadingRoute(const VipRoute& route) { return DeleteHostRoute(route, kLeadingRouteMetric); }

absl::StatusOr<std::vector<VipRoute>> ListLeadingRoutes() {
  return ListRoutesOfOurs(/*ifindex=*/0, [](uint32_t metric) { return metric == kLeadingRouteMetric; });
}

}  // namespace hedgerow::net
