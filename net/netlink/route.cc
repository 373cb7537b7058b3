// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/route.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/netlink/host_route.h"
#include "net/netlink/link.h"
#include "net/netlink/netlink.h"
#include "net/netlink/rule.h"
#include "net/netlink/uplink_route.h"

namespace hedgerow::net {
namespace {

std::string ReasonOf(uint8_t type) {
  if (type == RTN_UNREACHABLE) return "an 'unreachable' route";
  if (type == RTN_PROHIBIT) return "a 'prohibit' route";
  if (type == RTN_BLACKHOLE) return "a 'blackhole' route";
  if (type == RTN_BROADCAST) return "the kernel takes it for a broadcast address of a network of this host";
  return absl::StrCat("a route of type ", static_cast<int>(type));
}

bool IsByUplink(uint32_t metric) { return metric == kUplinkRouteMetric || metric == kLeadingRouteMetric; }

// Refuses a VIP that is an address of this host, or that has another owner's route. True: our equal route is
// there already.
absl::StatusOr<bool> CheckVip(const VipRoute& route) {
  const auto lookup = LookUpRoute(route.vip);
  if (!lookup.ok()) return lookup.status();
  if (lookup->reach == Reach::kLocal || lookup->reach == Reach::kLoopback) {
    return absl::FailedPreconditionError(
        absl::StrCat("the VIP ", route.vip.ToString(), " is an address of this host; choose one that no host has"));
  }
  const auto routes = ListHostRoutes(route.vip.family(), 0, RTPROT_UNSPEC);
  if (!routes.ok()) return routes.status();
  for (const TableRoute& existing : *routes) {
    const bool of_an_instance = existing.protocol == kRouteProtocol;
    const bool ours = of_an_instance && existing.ifindex == route.ifindex;
    if (existing.destination != route.vip || (of_an_instance && IsByUplink(existing.metric))) continue;
    if (ours && existing.source == route.source && existing.metric == kVipRouteMetric &&
        existing.mtu_bytes == route.mtu_bytes)
      return true;
    if (ours) continue;  // Ours with an older source or MTU: replaced by the caller.
    return absl::AlreadyExistsError(absl::StrCat("the VIP ", route.vip.ToString(), "/", route.vip.prefix_bits(),
                                                 " is routed already: dev ", LinkName(existing.ifindex), " proto ",
                                                 static_cast<int>(existing.protocol),
                                                 of_an_instance ? " (another hedgerow instance)" : ""));
  }
  return false;
}

void ReadLookup(const netlink::Message& message, RouteLookup& lookup) {
  const auto route = message.Header<rtmsg>();
  const auto attributes = message.AttributesAfter<rtmsg>();
  lookup.gateway = AddressAttribute(attributes, RTA_GATEWAY);
  if (const auto via = attributes.Find(RTA_VIA); via && via->size() > sizeof(rtvia)) {
    // An IPv4 route through an IPv6 neighbour.
    const auto gateway = IpAddress::FromBytes(via->subspan(offsetof(rtvia, rtvia_addr)));
    if (gateway.ok()) lookup.gateway = *gateway;
  }
  lookup.source = AddressAttribute(attributes, RTA_PREFSRC);
  lookup.mtu_bytes = attributes.Nested(RTA_METRICS).Value<uint32_t>(RTAX_MTU).value_or(0);
  lookup.table = attributes.Value<uint32_t>(RTA_TABLE).value_or(route.rtm_table);
  if (route.rtm_type == RTN_UNICAST) {
    lookup.reach = Reach::kRouted;
    lookup.ifindex = static_cast<int>(attributes.Value<uint32_t>(RTA_OIF).value_or(0));
  } else if (route.rtm_type == RTN_LOCAL) {
    lookup.reach = Reach::kLocal;
  } else {
    lookup.reason = ReasonOf(route.rtm_type);
    lookup.broadcast = route.rtm_type == RTN_BROADCAST;
  }
}

void PutSender(const Sender& sender, netlink::Request& request) {
  if (sender.mark != 0) request.PutU32(RTA_MARK, sender.mark);
  if (sender.user) request.PutU32(RTA_UID, *sender.user);
  if (sender.protocol != 0) request.PutU8(RTA_IP_PROTO, sender.protocol);
  if (sender.source_port != 0) request.PutValue(RTA_SPORT, htons(sender.source_port));
  if (sender.destination_port != 0) request.PutValue(RTA_DPORT, htons(sender.destination_port));
}

// How many leading bits two addresses share.
int CommonBits(const IpAddress& a, const IpAddress& b) {
  int bits = 0;
  for (size_t i = 0; i < a.mapped().size(); ++i) {
    const auto difference = static_cast<uint8_t>(a.mapped()[i] ^ b.mapped()[i]);
    bits += std::countl_zero(difference);
    if (difference != 0) break;
  }
  return bits;
}

fib_rule_hdr RuleHeader(const VipRule& rule) {
  fib_rule_hdr header{};
  header.family = static_cast<uint8_t>(rule.vip.family());
  header.dst_len = static_cast<uint8_t>(rule.vip.prefix_bits());
  header.table = RT_TABLE_MAIN;
  header.action = FR_ACT_TO_TBL;
  return header;
}

netlink::Request RuleRequest(uint16_t type, uint16_t flags, const VipRule& rule) {
  netlink::Request request(type, flags, RuleHeader(rule));
  request.Put(FRA_DST, rule.vip.wire());
  request.PutU32(FRA_PRIORITY, rule.priority);
  request.PutU32(FRA_TABLE, RT_TABLE_MAIN);
  request.PutU8(FRA_PROTOCOL, kRouteProtocol);
  return request;
}

std::string ToString(const VipRule& rule) {
  return absl::StrCat("`", rule.priority, ": to ", rule.vip.ToString(), " lookup main`");
}

netlink::Request AddressRequest(uint16_t type, uint16_t flags, int ifindex, const IpAddress& address) {
  ifaddrmsg header{};
  header.ifa_family = static_cast<uint8_t>(address.family());
  header.ifa_prefixlen = static_cast<uint8_t>(address.prefix_bits());
  header.ifa_scope = RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<uint32_t>(ifindex);
  netlink::Request request(type, flags, header);
  request.Put(IFA_LOCAL, address.wire());
  request.Put(IFA_ADDRESS, address.wire());
  return request;
}

// On this one interface, through the only door there is: the kernel has no netlink attribute for it (6.18).
absl::Status EnableIpv6(int ifindex) {
  const std::string name = LinkName(ifindex);
  const std::string sysctl = absl::StrCat("net.ipv6.conf.", name, ".disable_ipv6");
  const std::string path = absl::StrCat("/proc/sys/net/ipv6/conf/", name, "/disable_ipv6");
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.valid() && write(file.get(), "0", 1) == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("IPv6 is disabled on ", name, " and could not be enabled there (", sysctl, ": ", strerror(errno),
                   "); write 0 to net.ipv6.conf.default.disable_ipv6 before `up`, or to ", sysctl));
}

}  // namespace

absl::StatusOr<RouteLookup> LookUpRoute(const IpAddress& destination) {
  const auto addresses = ListAddresses();
  if (!addresses.ok()) return addresses.status();
  return LookUpRoute({.destination = destination}, *addresses);
}

absl::StatusOr<RouteLookup> LookUpRoute(const RouteQuery& query, const std::vector<AddressInfo>& addresses) {
  const IpAddress& destination = query.destination;
  RouteLookup lookup;
  if (destination.is_loopback()) {
    lookup.reach = Reach::kLoopback;
    return lookup;
  }
  // The address table first: it knows which interface has the address, where a route look-up only answers `dev
  // lo`; and it knows an IPv6 address at once, where the route to it appears a little later (its duplicate
  // detection is a kernel worker's job, `nodad` or not; seen on 6.18 as a VIP equal to a fresh address that was
  // taken for free).
  const auto owner =
      std::find_if(addresses.begin(), addresses.end(), [&](const AddressInfo& a) { return a.address == destination; });
  if (owner != addresses.end()) {
    lookup.reach = Reach::kLocal;
    lookup.ifindex = owner->ifindex;
    return lookup;
  }
  rtmsg header{};
  header.rtm_family = static_cast<uint8_t>(destination.family());
  header.rtm_dst_len = static_cast<uint8_t>(destination.prefix_bits());
  if (query.source) header.rtm_src_len = static_cast<uint8_t>(query.source->prefix_bits());
  header.rtm_tos = query.sender.tos;
  // IPv6 names the table in any case, and refuses the flag.
  if (destination.is_v4()) header.rtm_flags = RTM_F_LOOKUP_TABLE;
  netlink::Request request(RTM_GETROUTE, 0, header);
  request.Put(RTA_DST, destination.wire());
  if (query.source) request.Put(RTA_SRC, query.source->wire());
  if (query.in_ifindex != 0) request.PutU32(RTA_IIF, static_cast<uint32_t>(query.in_ifindex));
  if (query.out_ifindex != 0) request.PutU32(RTA_OIF, static_cast<uint32_t>(query.out_ifindex));
  PutSender(query.sender, request);
  const absl::Status status = netlink::Ask(request, absl::StrCat("look up the route to ", destination.ToString()),
                                           [&](const netlink::Message& message) { ReadLookup(message, lookup); });
  // IPv4 reports the route's verdict as an error: ENETUNREACH, EHOSTUNREACH (Unavailable), EACCES for prohibit,
  // EINVAL for blackhole.
  if (absl::IsUnavailable(status) || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status)) {
    lookup.reason = absl::IsUnavailable(status)
                        ? std::string(status.message())
                        : ReasonOf(absl::IsPermissionDenied(status) ? RTN_PROHIBIT : RTN_BLACKHOLE);
    return lookup;
  }
  if (!status.ok()) return status;
  return lookup;
}

std::optional<IpAddress> StableSource(const IpAddress& destination, const RouteLookup& route,
                                      const std::vector<AddressInfo>& addresses) {
  const auto usable = [](const AddressInfo& a) {
    if (a.scope >= RT_SCOPE_LINK) return false;
    if (a.address.is_v4()) return true;
    const bool tentative = (a.flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC)) == IFA_F_TENTATIVE;
    return !tentative && (a.flags & (IFA_F_TEMPORARY | IFA_F_DADFAILED)) == 0;
  };
  const AddressInfo* best = nullptr;
  std::pair<bool, int> best_rank;
  for (const AddressInfo& each : addresses) {
    if (each.address.family() != destination.family()) continue;
    const bool chosen = route.source && each.address == *route.source;
    const bool deprecated = (each.flags & IFA_F_DEPRECATED) != 0;
    // An address of a narrower scope, or of another interface, was chosen on purpose.
    if (chosen && (each.scope >= RT_SCOPE_LINK || (usable(each) && !deprecated))) return route.source;
    if (each.ifindex != route.ifindex || !usable(each)) continue;
    const std::pair<bool, int> rank = {!deprecated, CommonBits(each.address, destination)};
    if (best != nullptr && rank <= best_rank) continue;
    best = &each;
    best_rank = rank;
  }
  if (best == nullptr) return std::nullopt;
  return best->address;
}

absl::Status AddVipRoute(const VipRoute& route) {
  if (route.source && route.vip.family() != route.source->family()) {
    return absl::InvalidArgumentError(absl::StrCat("VIP ", route.vip.ToString(), " and source ",
                                                   route.source->ToString(), " are of different families"));
  }
  const auto present = CheckVip(route);
  if (!present.ok()) return present.status();
  if (*present) return absl::OkStatus();
  if (absl::Status status = DeleteVipRoute(route); !status.ok()) return status;
  if (absl::Status status = PutHostRoute(NLM_F_EXCL, route, kVipRouteMetric); !status.ok()) return status;
  const auto lookup = LookUpRoute(route.vip);
  const auto leading = ListLeadingRoutes();
  const bool led =
      lookup.ok() && leading.ok() && std::any_of(leading->begin(), leading->end(), [&](const VipRoute& each) {
        return each.vip == route.vip && each.ifindex == lookup->ifindex;
      });
  if (led || (lookup.ok() && lookup->reach == Reach::kRouted && lookup->ifindex == route.ifindex))
    return absl::OkStatus();
  const auto undo = [&] { return DeleteVipRoute(route); };
  if (!lookup.ok()) return netlink::Undone(lookup.status(), undo);
  return netlink::Undone(absl::FailedPreconditionError(absl::StrCat(
                             "the route ", ToString(route), " takes no effect: the kernel ",
                             lookup->reach == Reach::kRouted
                                 ? DescribeDetour(route.vip, *lookup)
                                 : absl::StrCat("does not use it (", lookup->reason, "); is the interface up?"))),
                         undo);
}

absl::Status ReplaceVipRoute(const VipRoute& route) { return PutHostRoute(NLM_F_REPLACE, route, kVipRouteMetric); }

absl::Status DeleteVipRoute(const VipRoute& route) { return DeleteHostRoute(route, /*metric=*/0); }

absl::StatusOr<std::vector<VipRoute>> ListVipRoutes(int ifindex) {
  return ListRoutesOfOurs(ifindex, [](uint32_t metric) { return !IsByUplink(metric); });
}

absl::Status AddSourceAddress(int ifindex, const IpAddress& address) {
  const auto addresses = ListAddresses(ifindex);
  if (!addresses.ok()) return addresses.status();
  for (const AddressInfo& present : *addresses) {
    if (present.address == address && present.prefix_bits == address.prefix_bits()) return absl::OkStatus();
  }
  const auto add = [&] {
    netlink::Request request = AddressRequest(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, ifindex, address);
    // No duplicate-address detection: the address is the uplink's, which has passed it.
    request.PutU32(IFA_FLAGS, IFA_F_NOPREFIXROUTE | (address.is_v4() ? 0 : IFA_F_NODAD));
    return netlink::Do(request, absl::StrCat("add address ", address.ToString(), " dev ", LinkName(ifindex)));
  };
  absl::Status status = add();
  if (address.is_v4() || !absl::IsPermissionDenied(status)) return status;
  // EACCES: IPv6 is disabled on the interface.
  status = EnableIpv6(ifindex);
  return status.ok() ? add() : status;
}

absl::Status DeleteSourceAddress(int ifindex, const IpAddress& address) {
  netlink::Request request = AddressRequest(RTM_DELADDR, 0, ifindex, address);
  const absl::Status status =
      netlink::Do(request, absl::StrCat("remove address ", address.ToString(), " dev ", LinkName(ifindex)));
  // EADDRNOTAVAIL: it is gone.
  return absl::IsAlreadyExists(status) || absl::IsUnavailable(status) || absl::IsNotFound(status) ? absl::OkStatus()
                                                                                                  : status;
}

absl::Status AddVipRule(const VipRule& rule) {
  netlink::Request request = RuleRequest(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, rule);
  const absl::Status status = netlink::Do(request, absl::StrCat("add the routing rule ", ToString(rule)));
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

absl::Status DeleteVipRule(const VipRule& rule) {
  netlink::Request request = RuleRequest(RTM_DELRULE, 0, rule);
  return netlink::OkIfGone(netlink::Do(request, absl::StrCat("remove the routing rule ", ToString(rule))));
}

absl::StatusOr<std::vector<VipRule>> ListVipRules() {
  std::vector<VipRule> rules;
  for (const int family : {AF_INET, AF_INET6}) {
    const absl::Status status = ForEachRule(family, [&](const fib_rule_hdr& header, const netlink::Attributes& rule) {
      const auto vip = AddressAttribute(rule, FRA_DST);
      const bool ours = rule.Value<uint8_t>(FRA_PROTOCOL).value_or(0) == kRouteProtocol;
      if (!ours || !vip || header.dst_len != vip->prefix_bits()) return;
      rules.push_back({.vip = *vip, .priority = rule.Value<uint32_t>(FRA_PRIORITY).value_or(0)});
    });
    if (!status.ok()) return status;
  }
  return rules;
}

std::string DescribeDetour(const IpAddress& vip, const RouteLookup& route) {
  const std::string rules = RulesTo(vip.family(), route.table);
  return absl::StrCat("sends the VIP to ", LinkName(route.ifindex),
                      rules.empty() ? "" : absl::StrCat(" by the routing rule `", rules, "`"));
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
    addresses.push_back({.ifindex = static_cast<int>(info.ifa_index),
                         .address = *address,
                         .prefix_bits = info.ifa_prefixlen,
                         .flags = attributes.Value<uint32_t>(IFA_FLAGS).value_or(info.ifa_flags),
                         .scope = info.ifa_scope});
  });
  if (absl::IsNotFound(status)) return addresses;  // The interface is gone: so are its addresses.
  if (!status.ok()) return status;
  return addresses;
}

}  // namespace hedgerow::net
