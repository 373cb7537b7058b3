// SPDX-License-Identifier: Apache-2.0
//
// What the daemon learns of a backend's load from what the kernel programs note (bpf/proxy/load.h, ADR 53): from how
// many requests in flight on its answers are slow, and how many of those in flight are lost. Pure but for what it
// remembers; used by the tuner.

#pragma once

#include <array>
#include <cstdint>

#include "bpf/abi/request_abi.h"

namespace hedgerow {

// How many of a backend's requests in flight it will never answer: by Little's law, the time for which those that ended
// so lately had counted, in each second.
class LostRequests {
 public:
  // As of now: all of that time so far, and the requests in flight.
  int32_t Look(uint64_t now_ns, uint64_t lost_ns, int32_t in_flight);

 private:
  uint64_t at_ns_ = 0;
  uint64_t lost_ns_ = 0;
  double average_ = 0;  // of this look and those before, which count half as much each
};

// From which number of requests in flight a backend's answers are slow, from what the kernel programs have noted about
// each level (bpf/proxy/load.h). A level keeps its median until it is reached again, and the server may be another one
// by then.
class SlowAt {
 public:
  // A level that was reached in the last ten seconds outweighs what higher ones said before.
  static constexpr uint64_t kRecentNs = 10'000'000'000;
  // A level above those that was not reached for an hour says nothing: what a server could not do once must not hold
  // for ever. Those below stay, for they say how fast it is when it is idle.
  static constexpr uint64_t kRememberNs = 3600'000'000'000;

  // 0: not known.
  uint32_t Look(uint64_t now_ns, const hr_backend_load& load);

 private:
  struct Level {
    uint32_t samples = 0;
    uint64_t reached_ns = 0;
  };
  std::array<Level, HR_LOAD_LEVELS> levels_{};
};

}  // namespace hedgerow
