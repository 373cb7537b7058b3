// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/map_sizes.h"

#include <algorithm>
#include <bit>

#include "bpf/abi/announce_abi.h"
#include "bpf/abi/trace_abi.h"
#include "bpf/proxy/choose.h"
#include "bpf/proxy/locate.h"

namespace hedgerow {
namespace {

// What a hash map keeps beside key and value, in bytes an entry: struct htab_elem, its bucket, the LRU's node.
constexpr uint64_t kHashOverheadBytes = 80;
constexpr uint64_t kPageBytes = 4096;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

MapSize Array(const char* name, uint32_t entries, uint64_t value_bytes) {
  return {name, entries, RoundUp(RoundUp(value_bytes, 8) * entries, kPageBytes)};
}
MapSize PerCpu(const char* name, uint32_t entries, uint64_t value_bytes, uint32_t cpus) {
  return {name, entries, (RoundUp(value_bytes, 8) * cpus + 8) * entries};
}
MapSize Hash(const char* name, uint32_t entries, uint64_t key_bytes, uint64_t value_bytes) {
  return {name, entries, (RoundUp(key_bytes, 8) + RoundUp(value_bytes, 8) + kHashOverheadBytes) * entries};
}

}  // namespace

MapBounds BoundsOf(const DataPlaneSpec& spec) {
  size_t backends = 0;
  for (const ServiceSpec& service : spec.services) backends += service.backends.size();
  return {.requests = spec.max_requests,
          .parked = spec.max_parked,
          .flows = spec.max_flows,
          .connections = spec.max_connections,
          .fragments = spec.max_fragments,
          .room = RoomFor(spec.services.size(), backends)};
}

// Four times as many places as requests: at the limit a set of 8 holds 2 on average, and 2 in 10,000 overflow.
uint32_t ColdSets(uint32_t max_requests) {
  return std::max<uint32_t>(16, std::bit_ceil(max_requests * 4) / HR_SET_WAYS);
}

std::vector<MapSize> MapSizes(const MapBounds& bounds, uint32_t cpus) {
  // Index 0 of requests and copies means none.
  return {
      Array("requests", bounds.requests + 1, sizeof(hr_request)),
      Array("scoreboard", HR_HOT_SETS + ColdSets(bounds.requests), sizeof(hr_scoreboard_set)),
      Array("pool", bounds.parked + 1, sizeof(hr_parked)),
      Array("parked_links", bounds.parked + 1, sizeof(uint32_t)),
      Hash("flows", bounds.flows, sizeof(hr_flow_key), sizeof(hr_flow)),
      Hash("crowded_flows", std::max(1u, bounds.flows / HR_FLOW_PARTS), sizeof(hr_flow_key), sizeof(hr_flow)),
      Hash("connections", bounds.connections, sizeof(hr_flow_key), sizeof(hr_flow)),
      Hash("fragments", bounds.fragments, sizeof(hr_fragment_key), sizeof(hr_fragment)),
      Array("wheels", 1, sizeof(hr_wheel)),
      Array("free_lists", HR_FREE_LISTS, sizeof(hr_free_list)),
      Array("configs", HR_GENERATIONS * HR_MAX_SERVICES, sizeof(hr_service_config)),
      Array("policies", HR_MAX_SERVICES, sizeof(hr_service_policy)),
      Array("service_states", HR_MAX_SERVICES, sizeof(hr_service_state)),
      Array("clients", HR_CLIENTS, sizeof(hr_client)),
      Array("leaders", HR_MAX_SERVICES, sizeof(uint64_t) + sizeof(hr_leader_view)),
      Array("backends", HR_MAX_BACKENDS, sizeof(hr_backend)),
      Array("backend_states", HR_MAX_BACKENDS, sizeof(hr_backend_state)),
      Array("backend_tuning", HR_MAX_BACKENDS, sizeof(hr_backend_tuning)),
      Array("backend_loads", HR_MAX_BACKENDS, sizeof(hr_backend_load)),
      Hash("vips", HR_MAX_SERVICES, sizeof(hr_endpoint), sizeof(uint32_t)),
      Hash("vip_addresses", HR_MAX_SERVICES, sizeof(hr_address), sizeof(hr_vip)),
      Hash("own_addresses", HR_MAX_OWN_ADDRESSES, sizeof(hr_address), sizeof(uint32_t)),
      Hash("backend_ids", HR_MAX_BACKENDS, sizeof(hr_endpoint), sizeof(uint32_t)),
      Hash("clusters", 2 * HR_MAX_SERVICES, sizeof(uint64_t), sizeof(hr_cluster)),
      PerCpu("choice_views", 1, sizeof(hr_choice_view), cpus),
      PerCpu("locating", 1, sizeof(hr_locating), cpus),
      PerCpu("announcements", 1, sizeof(hr_announcement), cpus),
      Array("trace_rings", 1, sizeof(uint64_t)),
      PerCpu("stats", HR_MAX_SERVICES + 1, sizeof(hr_stats), cpus),
      PerCpu("backend_stats", HR_MAX_BACKENDS, sizeof(hr_backend_stats), cpus),
      PerCpu("service_histograms", bounds.room.services * HR_SERVICE_HISTOGRAMS, sizeof(hr_histogram), cpus),
      PerCpu("backend_histograms", bounds.room.backends * HR_BACKEND_HISTOGRAMS, sizeof(hr_histogram), cpus),
  };
}

}  // namespace hedgerow
