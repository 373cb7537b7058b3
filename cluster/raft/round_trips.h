// SPDX-License-Identifier: Apache-2.0
//
// Smoothed round trips to the peers, and the election timeout that follows from them. Raft section 5.6 asks
// that the broadcast time be an order of magnitude below the election timeout; a fixed figure is either slow on
// a fast network or unstable on a slow one.

#ifndef HEDGEROW_CLUSTER_RAFT_ROUND_TRIPS_H_
#define HEDGEROW_CLUSTER_RAFT_ROUND_TRIPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cluster/raft/options.h"

namespace hedgerow::raft {

class RoundTrips {
 public:
  explicit RoundTrips(size_t members) : peers_(members) {}

  void Add(size_t member, uint64_t duration_ns);

  // Smoothed mean plus four deviations, as RFC 6298 section 2 does; 0 before the first sample.
  uint64_t Estimate_ns(size_t member) const;

  // From the slowest of the nearest majority: a far minority must not slow the others' failover.
  uint64_t ElectionTimeout_ns(const Options& options, size_t self) const;

 private:
  struct Peer {
    uint64_t mean_ns = 0;
    uint64_t deviation_ns = 0;
  };
  std::vector<Peer> peers_;
};

}  // namespace hedgerow::raft

#endif  // HEDGEROW_CLUSTER_RAFT_ROUND_TRIPS_H_
