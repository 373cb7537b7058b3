// SPDX-License-Identifier: Apache-2.0
//
// What one seed of `./dev dst` does, as the host wrote it down (dst/plan.py): the load, and the faults with
// their times, kinds and targets. Nothing is drawn inside the machine. Pure text; read by hr-dst-driver.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::dst {

enum class FaultKind : uint8_t {
  kKill,          // SIGKILL; started again at its end
  kStop,          // SIGSTOP and SIGCONT
  kCut,           // the switch forwards nothing from it and to it
  kCutOut,        // ... nothing from it
  kCutIn,         // ... nothing to it
  kNetworkFault,  // what the switch sends to it is lost, delayed, doubled: netem's own words as argument
  kDiskFull,      // its disk has no room
  kPowerCut,      // SIGKILL, its disk forgets what was not synced, its kernel's maps go; started again at its end
  kProxyKill,     // SIGKILL of the proxy's daemon; started again at its end
  kClockJump,     // of the wall clock, by so many milliseconds, and back
  kHog,           // a process that never sleeps
};

enum class Target : uint8_t { kLeader, kFollower, kAny, kAll, kNobody };

struct Fault {
  uint64_t at_us = 0;  // after the load has begun
  uint64_t for_us = 0;
  FaultKind kind = FaultKind::kKill;
  Target target = Target::kAny;
  uint32_t draw = 0;  // which of several that the target allows
  std::string argument{};
};

struct Plan {
  uint64_t seed = 0;
  uint64_t load_us = 0;
  uint32_t clients = 2;
  uint32_t sessions = 1;
  uint32_t interval_us = 4000;
  uint32_t timeout_us = 1'500'000;
  bool unsynced = false;  // disks that can lose their power
  std::string bug{};      // planted into the nodes; empty: none
  std::vector<Fault> faults{};
};

// InvalidArgument names the line.
absl::StatusOr<Plan> ParsePlan(absl::string_view text);

absl::string_view Name(FaultKind kind);

}  // namespace hedgerow::dst
