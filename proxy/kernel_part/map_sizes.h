// SPDX-License-Identifier: Apache-2.0
//
// How many entries each map of the kernel programs has, and what they take. Most sizes stand in the programs; the
// loader sets those that follow from the configuration, and `hedgerow plan` shows all of the same object, so that a
// plan is what is loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/data_plane/data_plane.h"

struct proxy_bpf;

namespace hedgerow {

struct MapSize {
  std::string name;  // of the BPF map
  uint32_t entries = 0;
  uint64_t bytes = 0;  // about what the kernel allocates
};

// Sets of the scoreboard behind the hot ones.
uint32_t ColdSets(uint32_t max_requests);

// How many free indices a CPU exchanges at once with a table of so many: what CPUs keep for themselves is at most a
// 16th of it.
uint32_t FreeBatch(uint32_t limit, uint32_t cpus);

// Of programs that are opened and not loaded yet.
void SetMapSizes(proxy_bpf& programs, const DataPlaneSpec& spec, uint32_t cpus);

// Every map but those that libbpf makes of global variables. `cpus`: possible CPUs. Needs no privilege.
absl::StatusOr<std::vector<MapSize>> MapSizes(const DataPlaneSpec& spec, uint32_t cpus);

}  // namespace hedgerow
