// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/round_trips.h"

#include <algorithm>
#include <vector>

namespace hedgerow::raft {

void RoundTrips::Add(size_t member, uint64_t duration_ns) {
  Peer& peer = peers_[member];
  if (peer.mean_ns == 0) {
    peer = {.least_ns = duration_ns, .mean_ns = duration_ns, .deviation_ns = duration_ns / 2};
    return;
  }
  const uint64_t error_ns = duration_ns > peer.mean_ns ? duration_ns - peer.mean_ns : peer.mean_ns - duration_ns;
  peer.deviation_ns = peer.deviation_ns - peer.deviation_ns / 4 + error_ns / 4;
  peer.mean_ns = peer.mean_ns - peer.mean_ns / 8 + duration_ns / 8;
  // Falls at once and rises slowly, so that a network that has become slower is noticed after some hundred
  // samples.
  peer.least_ns = duration_ns < peer.least_ns ? duration_ns : peer.least_ns + (duration_ns - peer.least_ns) / 64;
}

void RoundTrips::ForgetDelays() {
  for (Peer& peer : peers_) {
    peer.mean_ns = peer.least_ns;
    peer.deviation_ns = peer.least_ns / 2;
  }
}

uint64_t RoundTrips::Timeout_ns(const Options& options, const Peer& peer) const {
  // Before multiplying: a sample of hours must not wrap round.
  if (peer.mean_ns > options.election_cap_ns || peer.deviation_ns > options.election_cap_ns ||
      peer.least_ns > options.election_cap_ns / options.round_trips_per_election) {
    return options.election_cap_ns;
  }
  const uint64_t delay_ns = peer.mean_ns - std::min(peer.least_ns, peer.mean_ns) + 4 * peer.deviation_ns;
  return peer.least_ns * options.round_trips_per_election + delay_ns;
}

uint64_t RoundTrips::MajorityTimeout_ns(const Options& options, size_t self, uint32_t voters) const {
  std::vector<uint64_t> timeouts_ns;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const bool voter = ((voters >> i) & 1) != 0;
    if (voter && i != self && peers_[i].mean_ns != 0) timeouts_ns.push_back(Timeout_ns(options, peers_[i]));
  }
  // Itself is one of a majority, if it votes.
  const bool votes = self < peers_.size() && ((voters >> self) & 1) != 0;
  const size_t others_in_majority = hr_raft_count(voters) / 2 + (votes ? 0 : 1);
  if (timeouts_ns.empty() || others_in_majority == 0) return 0;
  std::sort(timeouts_ns.begin(), timeouts_ns.end());
  return timeouts_ns[std::min(others_in_majority, timeouts_ns.size()) - 1];
}

uint64_t RoundTrips::ElectionTimeout_ns(const Options& options, size_t self, uint32_t voters,
                                        uint32_t next_voters) const {
  const uint64_t timeout_ns = std::max(MajorityTimeout_ns(options, self, voters),
                                       next_voters != 0 ? MajorityTimeout_ns(options, self, next_voters) : 0);
  return std::clamp(timeout_ns, options.election_floor_ns, options.election_cap_ns);
}

}  // namespace hedgerow::raft
