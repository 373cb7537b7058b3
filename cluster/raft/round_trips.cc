// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/round_trips.h"

#include <algorithm>

namespace hedgerow::raft {

void RoundTrips::Add(size_t member, uint64_t duration_ns) {
  Peer& peer = peers_[member];
  if (peer.mean_ns == 0) {
    peer = {.mean_ns = duration_ns, .deviation_ns = duration_ns / 2};
    return;
  }
  const uint64_t error_ns =
      duration_ns > peer.mean_ns ? duration_ns - peer.mean_ns : peer.mean_ns - duration_ns;
  peer.deviation_ns = peer.deviation_ns - peer.deviation_ns / 4 + error_ns / 4;
  peer.mean_ns = peer.mean_ns - peer.mean_ns / 8 + duration_ns / 8;
}

uint64_t RoundTrips::Estimate_ns(size_t member) const {
  return peers_[member].mean_ns + 4 * peers_[member].deviation_ns;
}

uint64_t RoundTrips::ElectionTimeout_ns(const Options& options, size_t self) const {
  std::vector<uint64_t> known_ns;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (i != self && peers_[i].mean_ns != 0) known_ns.push_back(Estimate_ns(i));
  }
  const size_t others_in_majority = peers_.size() / 2;
  uint64_t broadcast_ns = 0;
  if (!known_ns.empty() && others_in_majority > 0) {
    std::sort(known_ns.begin(), known_ns.end());
    broadcast_ns = known_ns[std::min(others_in_majority, known_ns.size()) - 1];
  }
  // Before multiplying: a sample of hours must not wrap round.
  if (broadcast_ns > options.election_cap_ns / options.round_trips_per_election) return options.election_cap_ns;
  return std::clamp(broadcast_ns * options.round_trips_per_election, options.election_floor_ns,
                    options.election_cap_ns);
}

}  // namespace hedgerow::raft
