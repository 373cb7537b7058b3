// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/map_sizes.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "bpf/proxy/locate.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

// What a hash map keeps beside key and value, in bytes an entry: struct htab_elem, its bucket, the LRU's node.
constexpr uint64_t kHashOverheadBytes = 80;
constexpr uint64_t kPageBytes = 4096;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

uint64_t BytesOf(const bpf_map* map, uint32_t cpus) {
  const uint64_t entries = bpf_map__max_entries(map), value_bytes = RoundUp(bpf_map__value_size(map), 8);
  switch (bpf_map__type(map)) {
    case BPF_MAP_TYPE_PERCPU_ARRAY: return (value_bytes * cpus + 8) * entries;
    case BPF_MAP_TYPE_HASH:
    case BPF_MAP_TYPE_LRU_HASH:
      return (RoundUp(bpf_map__key_size(map), 8) + value_bytes + kHashOverheadBytes) * entries;
    default: return RoundUp(value_bytes * entries, kPageBytes);
  }
}

}  // namespace

// Four times as many places as requests: at the limit a set of 8 holds 2 on average, and 2 in 10,000 overflow.
uint32_t ColdSets(uint32_t max_requests) {
  return std::max<uint32_t>(16, std::bit_ceil(max_requests * 4) / HR_SET_WAYS);
}

uint32_t FreeBatch(uint32_t limit, uint32_t cpus) {
  const uint32_t batch = std::min<uint32_t>(HR_FREE_BATCH, limit / 32 / std::max(1u, cpus));
  return batch < 4 ? 1 : batch;
}

void SetMapSizes(proxy_bpf& programs, const DataPlaneSpec& spec, uint32_t cpus) {
  const auto& maps = programs.maps;
  const uint32_t requests = spec.max_requests, parked = spec.max_parked;
  size_t backends = 0;
  for (const ServiceSpec& service : spec.services) backends += service.backends.size();
  const DataPlaneRoom room = RoomFor(spec.services.size(), backends);
  // Index 0 of requests and copies means none.
  const std::pair<bpf_map*, uint32_t> sizes[] = {
      {maps.requests, requests + 1},
      {maps.scoreboard, HR_HOT_SETS + ColdSets(requests)},
      {maps.pool, parked + 1},
      {maps.free_requests, requests / FreeBatch(requests, cpus) + 1},
      {maps.free_parked, parked / FreeBatch(parked, cpus) + 1},
      {maps.flows, spec.max_flows},
      {maps.crowded_flows, std::max(1u, spec.max_flows / HR_FLOW_PARTS)},
      {maps.late_requests, std::max(1u, spec.max_flows / HR_FLOW_PARTS)},
      {maps.connections, spec.max_connections},
      {maps.fragments, spec.max_fragments},
      {maps.service_histograms, room.services * HR_SERVICE_HISTOGRAMS},
      {maps.backend_histograms, room.backends * HR_BACKEND_HISTOGRAMS},
  };
  for (const auto& [map, entries] : sizes) bpf_map__set_max_entries(map, entries);
}

absl::StatusOr<std::vector<MapSize>> MapSizes(const DataPlaneSpec& spec, uint32_t cpus) {
  proxy_bpf* const programs = proxy_bpf__open();
  if (programs == nullptr) return absl::ErrnoToStatus(errno, "cannot read the kernel programs");
  SetMapSizes(*programs, spec, cpus);
  std::vector<MapSize> sizes;
  const bpf_map* map = nullptr;
  bpf_object__for_each_map(map, programs->obj) {
    if (!bpf_map__is_internal(map))
      sizes.push_back({bpf_map__name(map), bpf_map__max_entries(map), BytesOf(map, cpus)});
  }
  proxy_bpf__destroy(programs);
  return sizes;
}

}  // namespace hedgerow
