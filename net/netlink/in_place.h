// SPDX-License-Identifier: Apache-2.0
//
// VIPs that rules of others serve as well, such as a ClusterIP that kube-proxy translates (docs/adr/0061). A table of
// nftables per instance, and one for bridges, has what leads packets to such a VIP past connection tracking, and so
// past those rules: only while the route to it leads by the proxy interface, and while its element lives, which the
// daemon renews. Without either the next packet is its owner's. Made by netlink: an image has no nft.
//
// Addresses that are asked in place of a VIP as well, such as this host's own (docs/adr/0063), are translated to it.
//
// All functions act in the network namespace of the calling thread, and need CAP_NET_ADMIN.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "net/ip_address.h"
#include "net/networks.h"
#include "net/netlink/link.h"

namespace hedgerow::net {

// Longer than the next daemon takes to come, shorter than stale backends can be borne.
inline constexpr absl::Duration kInPlaceLife = absl::Seconds(7);

// SO_MARK of this host's own questions to a backend whose address may be lent: they go to the backend.
inline constexpr uint32_t kOwnQuestionMark = 0x48520000;

// UDP and TCP.
struct Endpoint {
  IpAddress address;
  uint16_t port = 0;
  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

struct InPlaceRules {
  std::string instance;
  std::string interface;     // the proxy's
  std::set<Endpoint> known;  // VIPs whose answers come in by it
  std::set<Endpoint> live;   // those of them that are taken over
  // Backends on a bridge of this host, and its address: their answers to others on that bridge go up to this host.
  std::map<Endpoint, MacAddress> bridged;
  std::map<Endpoint, IpAddress> lent;                 // addresses that are translated to VIPs, for this host itself
  std::vector<std::pair<Network, Endpoint>> lent_to;  // and for these networks behind it
  friend bool operator==(const InPlaceRules&, const InPlaceRules&) = default;
};

// These rules, in place of what stands, in one step: no packet meets half of them.
absl::Status PutInPlaceRules(const InPlaceRules& rules);
// Lets `live`, `lent` and `bridged` of rules that stand live for another kInPlaceLife. NotFound: they do not stand.
absl::Status RenewInPlace(const InPlaceRules& rules);
// Nothing is live from here on: what comes next is the owner's, and answers on their way still pass.
absl::Status GiveBackInPlace(const std::string& instance);
// False: there were none.
absl::StatusOr<bool> RemoveInPlaceRules(const std::string& instance);

}  // namespace hedgerow::net
