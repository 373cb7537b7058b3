// SPDX-License-Identifier: Apache-2.0
//
// Neighbour entries (ARP, neighbour discovery) that this host's kernel could not resolve. Called by the daemon's
// network follower. Both functions act in the network namespace of the calling thread.
#pragma once

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/ip_address.h"

namespace hedgerow::net {

using Neighbour = std::pair<int, IpAddress>;  // interface, address

struct UnresolvedNeighbours {
  std::set<Neighbour> failed;  // NUD_FAILED: none of the kernel's probes was answered
  std::set<Neighbour> asked;   // NUD_INCOMPLETE: probes are under way
};
absl::StatusOr<UnresolvedNeighbours> ListUnresolvedNeighbours();

// Has the kernel probe an entry that has failed, as a packet would.
absl::Status ResolveNeighbour(const Neighbour& neighbour);

}  // namespace hedgerow::net
