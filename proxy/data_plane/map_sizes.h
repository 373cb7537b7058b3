// SPDX-License-Identifier: Apache-2.0
//
// How many entries each map of the kernel programs has, and what they take. The loader sets the sizes from this
// table and `hedgerow plan` shows it, so that a plan is what is loaded. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

struct MapSize {
  std::string name;  // of the BPF map
  uint32_t entries = 0;
  uint64_t bytes = 0;  // about what the kernel allocates
};

// What the sizes follow from.
struct MapBounds {
  uint32_t requests = 0;
  uint32_t parked = 0;
  uint32_t flows = 0;
  uint32_t connections = 0;
  uint32_t fragments = 0;
  DataPlaneRoom room;
};
MapBounds BoundsOf(const DataPlaneSpec& spec);

// Sets of the scoreboard behind the hot ones.
uint32_t ColdSets(uint32_t max_requests);

// Every map but those that libbpf makes of global variables. `cpus`: possible CPUs.
std::vector<MapSize> MapSizes(const MapBounds& bounds, uint32_t cpus);

}  // namespace hedgerow
