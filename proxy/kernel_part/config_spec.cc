// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/config_spec.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "proxy/data_plane/endpoint.h"

namespace hedgerow {

DataPlaneSpec WithIds(DataPlaneSpec spec) {
  uint32_t next_service = 0, next_backend = 0;
  for (ServiceSpec& service : spec.services) {
    if (service.id == kNoId) service.id = next_service++;
    uint32_t next_slot = 0;
    for (BackendSpec& backend : service.backends) {
      if (backend.id == kNoId) backend.id = next_backend++;
      if (backend.slot == kNoId) backend.slot = next_slot++;
    }
  }
  return spec;
}

absl::Status CheckSpec(const DataPlaneSpec& spec, const DataPlaneRoom& room) {
  std::set<uint32_t> services, backends;
  for (const ServiceSpec& service : spec.services) {
    const auto wrong = [&service](const auto&... text) {
      return absl::InvalidArgumentError(absl::StrCat("service ", service.name, ": ", text...));
    };
    const size_t count = service.backends.size();
    if (count == 0 || count > HR_MAX_BACKENDS_PER_SERVICE || service.primary >= count)
      return wrong("1 to ", HR_MAX_BACKENDS_PER_SERVICE, " backends with a primary among them");
    if (auto vip = ParseEndpoint(service.vip, service.port); !vip.ok()) return vip.status();
    if (service.cluster.has_value() && (service.cluster->id == 0 || service.cluster->announce_port == 0))
      return wrong("a cluster has an id and an announce port");
    if (service.cluster.has_value() &&
        (service.cluster->keys.empty() || service.cluster->keys.size() > HR_CLUSTER_KEYS))
      return wrong("the cluster's key was not read");
    if (service.id >= room.services) return absl::InvalidArgumentError("no room for so many services");
    bool unique = services.insert(service.id).second;
    std::set<uint32_t> slots;
    for (const BackendSpec& backend : service.backends) {
      if (auto endpoint = ParseEndpoint(backend.address, backend.port); !endpoint.ok()) return endpoint.status();
      if (backend.id >= room.backends || backend.slot >= HR_MAX_BACKENDS_PER_SERVICE)
        return absl::InvalidArgumentError("no room for so many backends");
      unique = backends.insert(backend.id).second && slots.insert(backend.slot).second && unique;
    }
    if (!unique) return wrong("an id twice");
  }
  return absl::OkStatus();
}

namespace {

// What a service may hold of a table where others hold three quarters of it: the services share the rest in equal
// parts. A service that is alone has no other bound than the table's.
uint32_t ShareOf(uint32_t limit, size_t services) {
  return services == 1 ? UINT32_MAX : std::max<uint32_t>(1, limit / 4 / static_cast<uint32_t>(services));
}

}  // namespace

hr_service_config MakeConfig(const DataPlaneSpec& all, const ServiceSpec& spec, const hr_service_config& before) {
  const hr_endpoint vip = *ParseEndpoint(spec.vip, spec.port);
  hr_service_config config = spec.config;
  config.vip = vip.address;
  config.port_be = vip.port_be;
  config.primary = static_cast<uint8_t>(spec.backends[spec.primary].slot);
  config.cluster_id = spec.cluster.has_value() ? spec.cluster->id : 0;
  config.request_share = ShareOf(all.max_requests, all.services.size());
  config.parked_share = ShareOf(all.max_parked, all.services.size());
  memcpy(config.backends, before.backends, sizeof(config.backends));
  for (const BackendSpec& backend : spec.backends) {
    config.present |= static_cast<uint8_t>(1u << backend.slot);
    config.backends[backend.slot] = static_cast<uint16_t>(backend.id);
    config.nodes[backend.slot] = backend.node;
    config.inverse_weights[backend.slot] = static_cast<uint16_t>(backend.weight == 0 ? 0 : 65535 / backend.weight);
  }
  return config;
}

}  // namespace hedgerow
