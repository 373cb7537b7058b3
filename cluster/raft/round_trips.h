// SPDX-License-Identifier: Apache-2.0
//
// Round trips to the peers, and the election timeout that follows from them. Raft section 5.6 asks that the
// broadcast time be an order of magnitude below the election timeout; a fixed figure is either slow on a fast
// network or unstable on a slow one.
//
// Two things are told apart. What the network takes shows in the shortest samples, and is multiplied. What a
// busy host adds now and then is a delay that a heartbeat suffers once, and is added: multiplied, hiccups of
// 40 ms on a fast network made timeouts of 2 s, and since heartbeats come at a fraction of the timeout, it took
// many seconds to forget them.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/raft/options.h"

namespace hedgerow::raft {

class RoundTrips {
 public:
  void Add(size_t member, uint64_t duration_ns);

  // What hosts added lately is stale once another node has led; the network is still the same.
  void ForgetDelays();

  // The slot is another node's from now on.
  void Forget(size_t member) { peers_[member] = {}; }

  // Smoothed mean (RFC 6298 section 2); 0 before the first sample.
  uint64_t Mean_ns(size_t member) const { return peers_[member].mean_ns; }

  // From the slowest of the nearest majority: a far minority must not slow the others' failover. Of two joint
  // majorities, the slower.
  uint64_t ElectionTimeout_ns(const Options& options, size_t self, uint32_t voters, uint32_t next_voters) const;

 private:
  struct Peer {
    uint64_t least_ns = 0;
    uint64_t mean_ns = 0;
    uint64_t deviation_ns = 0;
  };

  uint64_t Timeout_ns(const Options& options, const Peer& peer) const;
  uint64_t MajorityTimeout_ns(const Options& options, size_t self, uint32_t voters) const;

  std::array<Peer, HR_RAFT_MAX_MEMBERS> peers_{};  // by slot
};

}  // namespace hedgerow::raft
