// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/ipsec.h"

#include <linux/xfrm.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {
namespace {

std::optional<Network> NetworkOf(const xfrm_address_t& address, uint16_t family, uint8_t bits) {
  const size_t bytes = family == AF_INET ? sizeof(address.a4) : sizeof(address.a6);
  const auto parsed = IpAddress::FromBytes(std::span(reinterpret_cast<const uint8_t*>(&address), bytes));
  if (!parsed.ok()) return std::nullopt;
  return Network{.address = *parsed, .bits = bits};
}

// Marks and interfaces of XFRM, which no packet of ours has.
bool IsForOthers(const netlink::Attributes& attributes) {
  const auto mark = attributes.Value<xfrm_mark>(XFRMA_MARK);
  return (mark.has_value() && (mark->v & mark->m) != 0) || attributes.Value<uint32_t>(XFRMA_IF_ID).value_or(0) != 0;
}

bool Contains(const Network& network, const IpAddress& address) {
  // A selector of /0 has the unspecified address of its family.
  return network.address.family() == address.family() && Networks({network}).Contains(address.mapped());
}

}  // namespace

std::string IpsecPolicy::ToString() const {
  return absl::StrCat("src ", source.ToString(), " dst ", destination.ToString(),
                      destination_port_mask == 0 ? "" : absl::StrCat(" dport ", destination_port));
}

absl::StatusOr<std::vector<IpsecPolicy>> ListIpsecPolicies() {
  auto socket = netlink::Socket::Open({}, NETLINK_XFRM);
  // A kernel without XFRM.
  if (absl::IsUnimplemented(socket.status()) || absl::IsInvalidArgument(socket.status()))
    return std::vector<IpsecPolicy>();
  if (!socket.ok()) return socket.status();
  netlink::Request request(XFRM_MSG_GETPOLICY, NLM_F_DUMP, xfrm_userpolicy_id{});
  std::vector<IpsecPolicy> policies;
  const absl::Status status = socket->Ask(request, "list IPsec policies", [&](const netlink::Message& message) {
    if (message.type != XFRM_MSG_NEWPOLICY) return;
    const auto policy = message.Header<xfrm_userpolicy_info>();
    const auto attributes = message.AttributesAfter<xfrm_userpolicy_info>();
    if (policy.dir != XFRM_POLICY_OUT || IsForOthers(attributes)) return;
    const auto source = NetworkOf(policy.sel.saddr, policy.sel.family, policy.sel.prefixlen_s);
    const auto destination = NetworkOf(policy.sel.daddr, policy.sel.family, policy.sel.prefixlen_d);
    if (!source.has_value() || !destination.has_value()) return;
    policies.push_back({.source = *source,
                        .destination = *destination,
                        .protocol = policy.sel.proto,
                        .destination_port = ntohs(policy.sel.dport),
                        .destination_port_mask = ntohs(policy.sel.dport_mask),
                        .ifindex = policy.sel.ifindex,
                        .priority = policy.priority,
                        .passes = policy.action == XFRM_POLICY_ALLOW && !attributes.Find(XFRMA_TMPL).has_value()});
  });
  if (!status.ok()) return status;
  std::stable_sort(policies.begin(), policies.end(),
                   [](const auto& a, const auto& b) { return a.priority < b.priority; });
  return policies;
}

const IpsecPolicy* FindIpsecPolicy(const std::vector<IpsecPolicy>& policies, const IpAddress& source,
                                   const IpAddress& destination, uint16_t destination_port, int ifindex) {
  const auto found = std::find_if(policies.begin(), policies.end(), [&](const IpsecPolicy& each) {
    return (each.protocol == 0 || each.protocol == IPPROTO_UDP || each.protocol == IPPROTO_TCP) &&
           (each.ifindex == 0 || each.ifindex == ifindex) &&
           (destination_port & each.destination_port_mask) == (each.destination_port & each.destination_port_mask) &&
           Contains(each.source, source) && Contains(each.destination, destination);
  });
  return found == policies.end() || found->passes ? nullptr : &*found;
}

}  // namespace hedgerow::net
