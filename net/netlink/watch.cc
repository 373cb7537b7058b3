// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/watch.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace hedgerow::net {
namespace {

constexpr std::array<uint32_t, 10> kGroups = {
    RTNLGRP_LINK,       RTNLGRP_TC,        RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,   RTNLGRP_NEXTHOP,     RTNLGRP_NEIGH};

// Are the first `bits` of both equal? `prefix` may be shorter than `address` where its last bytes are zero.
bool StartsWith(std::span<const uint8_t> address, std::span<const uint8_t> prefix, size_t bits) {
  if (bits > 8 * std::min(address.size(), prefix.size())) return false;
  if (!std::equal(prefix.begin(), prefix.begin() + static_cast<ptrdiff_t>(bits / 8), address.begin())) return false;
  const size_t rest = bits % 8;
  return rest == 0 || ((address[bits / 8] ^ prefix[bits / 8]) >> (8 - rest)) == 0;
}

}  // namespace

absl::StatusOr<Watcher> Watcher::Start() {
  auto events = netlink::Socket::Open(kGroups);
  if (!events.ok()) return events.status();
  return Watcher(std::move(*events));
}

// A route without a destination is a default route.
bool Watcher::Covers(const netlink::Message& message) const {
  const auto route = message.Header<rtmsg>();
  const auto prefix = message.AttributesAfter<rtmsg>().Find(RTA_DST);
  return std::any_of(interest_.destinations.begin(), interest_.destinations.end(), [&](const IpAddress& each) {
    if (each.family() != route.rtm_family) return false;
    return route.rtm_dst_len == 0 || (prefix && StartsWith(each.wire(), *prefix, route.rtm_dst_len));
  });
}

// A neighbour entry of a destination that has failed, or was answered for.
bool Watcher::Resolves(const netlink::Message& message) const {
  const auto header = message.Header<ndmsg>();
  const auto address = message.AttributesAfter<ndmsg>().Find(NDA_DST);
  return (header.ndm_state & (NUD_FAILED | NUD_REACHABLE)) != 0 && address &&
         std::any_of(interest_.destinations.begin(), interest_.destinations.end(),
                     [&](const IpAddress& each) { return std::ranges::equal(each.wire(), *address); });
}

void Watcher::Judge(const netlink::Message& message, NetworkEvents& out) const {
  ++out.messages;
  switch (message.type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      // A bridge tells of its ports in messages of its own family.
      out.network |= message.Header<ifinfomsg>().ifi_family == AF_UNSPEC;
      return;
    case RTM_NEWROUTE:
    case RTM_DELROUTE: out.network = out.network || Covers(message); return;
    case RTM_NEWNEIGH: out.network = out.network || Resolves(message); return;
    case RTM_DELQDISC:
    case RTM_DELTFILTER: out.qdiscs |= interest_.ifindexes.contains(message.Header<tcmsg>().tcm_ifindex); return;
    case RTM_NEWADDR:
    case RTM_DELADDR:
    case RTM_NEWRULE:
    case RTM_DELRULE:
    case RTM_NEWNEXTHOP:
    case RTM_DELNEXTHOP: out.network = true; return;
    default: return;
  }
}

absl::StatusOr<NetworkEvents> Watcher::Drain() {
  NetworkEvents out;
  const absl::Status drained = events_.Drain([&](const netlink::Message& message) {
    Judge(message, out);
    return out.messages < kDrainMessages;
  });
  out.lost = absl::IsUnavailable(drained);
  if (!drained.ok() && !out.lost) return drained;
  return out;
}

}  // namespace hedgerow::net
