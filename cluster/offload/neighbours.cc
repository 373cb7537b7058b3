// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/neighbours.h"

#include <arpa/inet.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstring>

#include "net/netlink/link.h"
#include "net/netlink/route.h"

namespace hedgerow::offload {
namespace {

// In these states the kernel itself sends to the address without asking again.
constexpr uint16_t kUsable = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

ndmsg Header(int ifindex, int family, uint8_t flags) {
  ndmsg header{};
  header.ndm_family = static_cast<uint8_t>(family);
  header.ndm_ifindex = ifindex;
  header.ndm_flags = flags;
  return header;
}

// As `ip neigh replace ... use`: the kernel behaves as if it had a packet for the address, and resolves it.
void Provoke(int ifindex, const net::IpAddress& address) {
  net::netlink::Request request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, Header(ifindex, address.family(), NTF_USE));
  request.Put(NDA_DST, address.wire());
  // An interface that is down, or a table that is full: the next Refresh asks again.
  net::netlink::Do(request, "ask for a neighbour").IgnoreError();
}

bool Same(const hr_node_peer& a, const hr_node_peer& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

}  // namespace

absl::StatusOr<Neighbours> Neighbours::Open(BpfKernel& kernel) {
  constexpr std::array<uint32_t, 4> kGroups = {RTNLGRP_NEIGH, RTNLGRP_LINK, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE};
  auto events = net::netlink::Socket::Open(kGroups);
  if (!events.ok()) return events.status();
  return Neighbours(kernel, *std::move(events));
}

void Neighbours::SetMember(uint32_t slot, uint32_t node, const hr_address& address, uint16_t port) {
  hr_node_peer peer{};
  peer.address = address;
  peer.node = node;
  peer.port_be = htons(port);
  kernel_->SetMember(slot, peer);
}

absl::Status Neighbours::Refresh() {
  // Lost events do not matter: everything is read anew.
  events_.Drain([](const net::netlink::Message&) { return true; }).IgnoreError();
  if (absl::Status status = ReadTable(); !status.ok()) return status;
  for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) {
    const hr_node_peer peer = kernel_->Member(slot);
    if (peer.node != 0) Apply(slot, FindNextHop(peer));
  }
  return absl::OkStatus();
}

std::optional<Neighbours::NextHop> Neighbours::FindNextHop(const hr_node_peer& peer) const {
  const auto address = net::IpAddress::FromBytes(peer.address.bytes);
  if (!address.ok()) return std::nullopt;
  const auto route = net::LookUpRoute(*address);
  if (!route.ok() || route->reach != net::Reach::kRouted) return std::nullopt;
  return NextHop{.ifindex = route->ifindex, .address = route->gateway.value_or(*address)};
}

absl::Status Neighbours::ReadTable() {
  table_.clear();
  net::netlink::Request request(RTM_GETNEIGH, NLM_F_DUMP, Header(0, AF_UNSPEC, 0));
  return net::netlink::Ask(request, "list neighbours", [&](const net::netlink::Message& message) {
    const auto header = message.Header<ndmsg>();
    const auto attributes = message.AttributesAfter<ndmsg>();
    const auto destination = attributes.Find(NDA_DST);
    const auto mac = attributes.Value<std::array<uint8_t, 6>>(NDA_LLADDR);
    if ((header.ndm_state & kUsable) == 0 || !destination.has_value() || !mac.has_value()) return;
    if (header.ndm_family != AF_INET && header.ndm_family != AF_INET6) return;
    const auto address = net::IpAddress::FromBytes(*destination);
    if (address.ok()) table_.push_back({.ifindex = header.ndm_ifindex, .address = *address, .mac = *mac});
  });
}

// Written only when it differs: a program may read at the same time.
void Neighbours::Apply(uint32_t slot, const std::optional<NextHop>& hop) {
  const hr_node_peer before = kernel_->Member(slot);
  hr_node_peer peer = before;
  peer.flags = 0;
  peer.ifindex = 0;
  std::memset(peer.mac, 0, sizeof(peer.mac));
  if (hop.has_value()) {
    const auto known = std::find_if(table_.begin(), table_.end(), [&](const Entry& entry) {
      return entry.ifindex == hop->ifindex && entry.address == hop->address;
    });
    const auto link = net::FindLink(hop->ifindex);
    if (known == table_.end()) Provoke(hop->ifindex, hop->address);
    if (known != table_.end() && link.ok() && link->ethernet()) {
      peer.flags = HR_NODE_PEER_MAC;
      peer.ifindex = static_cast<uint32_t>(hop->ifindex);
      std::copy(known->mac.begin(), known->mac.end(), peer.mac);
      std::copy(link->mac.begin(), link->mac.end(), peer.mac + known->mac.size());
    }
  }
  if (!Same(peer, before)) kernel_->SetMember(slot, peer);
}

}  // namespace hedgerow::offload
