// SPDX-License-Identifier: Apache-2.0
//
// What was out of the ordinary lately, to explain an unneeded election: why this node wanted to be elected, and
// when its loop stood still. Elections are counted by their reason. The node's loop feeds it; on no other
// thread.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "cluster/node/status/status.h"
#include "cluster/raft/outputs.h"

namespace hedgerow::node {

class Incidents {
 public:
  // Of elections and of standing still, so many each; older ones are forgotten.
  static constexpr size_t kKept = 8;

  // Shorter than `still_ns` is nothing to speak of.
  explicit Incidents(uint64_t still_ns) : still_ns_(still_ns) {}

  void Stands(const raft::Stand& stand, uint64_t now_ns);
  void StepsDown(const raft::StepDown& step_down, uint64_t now_ns);

  // A turn of the loop begins, sleeps, or begins again: in between it served nothing, unless it slept as long
  // as planned. For how long it stood still.
  uint64_t TurnBegins(uint64_t now_ns);
  void Sleeps(uint64_t now_ns, uint64_t until_ns);

  // Newest first.
  void AddTo(uint64_t now_ns, NodeStatus& status) const;

 private:
  static constexpr size_t kReasons = static_cast<size_t>(raft::StandReason::kAsked) + 1;

  struct Incident {
    uint64_t at_ns = 0;
    std::string what{};
  };
  static void Keep(std::deque<Incident>& incidents, uint64_t now_ns, std::string what);

  uint64_t still_ns_;
  uint64_t turn_ns_ = 0;    // when the turn began; 0: none has
  uint64_t worked_ns_ = 0;  // how long it took until the loop slept
  uint64_t until_ns_ = 0;   // when it meant to wake at the latest; 0: it has not slept since
  std::array<uint64_t, kReasons> elections_{};
  uint64_t stood_still_ = 0;
  std::deque<Incident> stands_;
  std::deque<Incident> still_;
};

}  // namespace hedgerow::node
