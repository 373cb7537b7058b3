// SPDX-License-Identifier: Apache-2.0
//
// How far terms can have come since a node started. A term grows by one with each election, and an election takes at
// least a round trip and a majority's consent, so terms follow time. A message of a later term than that is no
// election's: a sender that has the cluster's key and lies could otherwise end a cluster for good with one datagram of
// term 2^64-1, since terms never go down (R7). Asked by what hears peers (cluster/node/peers.h) and, through the shared
// state, by the node's kernel part. Pure; times are of one monotonic clock.

#pragma once

#include <cstdint>

#include "cluster/raft/types.h"

namespace hedgerow::raft {

class TermLimit {
 public:
  // What others may be ahead when a node starts: a million terms.
  static constexpr uint64_t kAhead = uint64_t{1} << 20;
  // And one more for each 65.5 us since: 15,258 elections a second.
  static constexpr unsigned kNsShift = 16;

  // None: a node that has no term has had no contact yet, and believes the first.
  TermLimit() = default;
  TermLimit(Term at, uint64_t since_ns) : at_(at), since_ns_(since_ns) {}

  bool exists() const { return at_ != Term(); }
  // The last term that is possible now.
  Term At(uint64_t now_ns) const {
    if (!exists()) return Term(UINT64_MAX);
    const uint64_t ahead = kAhead + ((now_ns > since_ns_ ? now_ns - since_ns_ : 0) >> kNsShift);
    return at_.value() > UINT64_MAX - ahead ? Term(UINT64_MAX) : Term(at_.value() + ahead);
  }

 private:
  Term at_{};
  uint64_t since_ns_ = 0;
};

}  // namespace hedgerow::raft
