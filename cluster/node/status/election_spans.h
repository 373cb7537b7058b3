// SPDX-License-Identifier: Apache-2.0
//
// How long a node's elections take, seen from outside of the core: from the moment that requests for votes are
// handed to the sockets until the node knows that a majority has given theirs. Rounds that are lost or given up
// are not counted. The node's loop feeds it with what each step of the core asks for.

#pragma once

#include <cstdint>

#include "cluster/node/status/status.h"
#include "cluster/raft/outputs.h"
#include "operate/durations.h"

namespace hedgerow::node {

class ElectionSpans {
 public:
  // Most steps have nothing to do with elections, and reading the clock costs more than asking.
  static bool Concern(const raft::Outputs& outputs);
  void Take(const raft::Outputs& outputs, uint64_t now_ns);

  void AddTo(NodeStatus& status) const;

 private:
  static bool Asks(const raft::Outputs& outputs, bool pre_vote);

  uint64_t pre_vote_ns_ = 0;  // when the round under way began; 0: none is
  uint64_t vote_ns_ = 0;
  operate::Durations pre_vote_;
  operate::Durations vote_;
};

}  // namespace hedgerow::node
