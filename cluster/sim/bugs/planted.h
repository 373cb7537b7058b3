// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that the simulator must find. They stand in *.bugs beside this file, and plant.py plants all of them into
// copies of the sources, which only the simulator's programs and hedgerow-node-bugs link; at run time each thread makes
// one, or none. Included by those copies and by the programs that choose.

#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace hedgerow::kv {
struct Settings;
}

namespace hedgerow::sim {

// Of this thread: simulations run in parallel. 0: none.
inline constinit thread_local int planted_bug = 0;
inline bool IsPlanted(int bug) { return planted_bug == bug; }

struct PlantedBug {
  std::string_view name;
  std::string_view description;
};

// Number i + 1 is the one at i. Only where mistakes are planted.
std::span<const PlantedBug> PlantedBugs();

// 0: there is no such mistake.
inline int FindPlantedBug(std::string_view name) {
  const std::span<const PlantedBug> bugs = PlantedBugs();
  const auto found = std::find_if(bugs.begin(), bugs.end(), [name](const PlantedBug& bug) { return bug.name == name; });
  return found == bugs.end() ? 0 : static_cast<int>(found - bugs.begin()) + 1;
}

// What no replicated state may look at, for mistakes that do: this node's clock and what its own file says, where it
// applies entries.
inline constinit thread_local uint64_t local_now_ns = 0;
inline constinit thread_local const kv::Settings* local_settings = nullptr;

}  // namespace hedgerow::sim
