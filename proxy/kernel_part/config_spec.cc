// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/config_spec.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "bpf/proxy/load.h"
#include "proxy/data_plane/endpoint.h"

namespace hedgerow {
namespace {

absl::Status CheckCluster(const ServiceSpec& spec) {
  if (!spec.cluster.has_value()) return absl::OkStatus();
  if (spec.cluster->id == 0 || spec.cluster->announce_port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("service ", spec.name, ": a cluster has an id and an announce port"));
  }
  const std::vector<hr_siphash_key>& keys = spec.cluster->keys;
  if (keys.empty() || keys.size() > HR_CLUSTER_KEYS)
    return absl::InvalidArgumentError(absl::StrCat("service ", spec.name, ": the cluster's key was not read"));
  return absl::OkStatus();
}

absl::Status CheckService(const ServiceSpec& spec) {
  if (spec.backends.empty() || spec.backends.size() > HR_MAX_BACKENDS_PER_SERVICE ||
      spec.primary >= spec.backends.size()) {
    return absl::InvalidArgumentError(absl::StrCat("service ", spec.name, ": 1 to ", HR_MAX_BACKENDS_PER_SERVICE,
                                                   " backends with a primary among them"));
  }
  if (spec.clients.size() > HR_MAX_CLIENT_NETWORKS) {
    return absl::InvalidArgumentError(
        absl::StrCat("service ", spec.name, ": at most ", HR_MAX_CLIENT_NETWORKS, " networks of clients"));
  }
  if (auto vip = ParseEndpoint(spec.vip, spec.port); !vip.ok()) return vip.status();
  for (const BackendSpec& backend : spec.backends)
    if (auto endpoint = ParseEndpoint(backend.address, backend.port); !endpoint.ok()) return endpoint.status();
  return CheckCluster(spec);
}

}  // namespace

absl::StatusOr<DataPlaneSpec> WithIds(DataPlaneSpec spec) {
  uint32_t next_service = 0, next_backend = 0;
  for (ServiceSpec& service : spec.services) {
    if (absl::Status status = CheckService(service); !status.ok()) return status;
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
    if (absl::Status status = CheckService(service); !status.ok()) return status;
    if (service.id >= room.services) return absl::InvalidArgumentError("no room for so many services");
    bool unique = services.insert(service.id).second;
    std::set<uint32_t> slots;
    for (const BackendSpec& backend : service.backends) {
      if (backend.id >= room.backends || backend.slot >= HR_MAX_BACKENDS_PER_SERVICE)
        return absl::InvalidArgumentError("no room for so many backends");
      unique = backends.insert(backend.id).second && slots.insert(backend.slot).second && unique;
    }
    if (!unique) return absl::InvalidArgumentError(absl::StrCat("service ", service.name, ": an id twice"));
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

// In 256ths of a load. A share above 0 is not rounded to 0, which is off.
static uint8_t IdleShare(uint32_t ppm) {
  const uint32_t share = static_cast<uint32_t>(uint64_t{ppm} * HR_LOAD_FULL / 1'000'000);
  return static_cast<uint8_t>(std::clamp<uint32_t>(share, ppm > 0 ? 1 : 0, 255));
}

absl::StatusOr<hr_service_config> MakeConfig(const DataPlaneSpec& all, const ServiceSpec& spec,
                                             const hr_service_config& before) {
  const auto vip = ParseEndpoint(spec.vip, spec.port);
  if (!vip.ok()) return vip.status();
  hr_service_config config{};
  config.vip = vip->address;
  config.port_be = vip->port_be;
  config.attempts = static_cast<uint8_t>(spec.attempts);
  config.primary = static_cast<uint8_t>(spec.backends[spec.primary].slot);
  config.switches = spec.dry_run ? HR_SWITCH_DRY_RUN : 0;
  config.deadline_ns = spec.deadline_ns;
  config.retention_ns = spec.retention_ns;
  config.suspect_min_ns = spec.suspect_min_ns;
  config.suspect_max_ns = std::max(spec.suspect_max_ns, spec.suspect_min_ns);
  config.flow_timeout_ns = spec.flow_timeout_ns;
  config.delay_ns = spec.delay_ns;
  config.budget_ppm = spec.budget_ppm;
  config.budget_burst = spec.budget_burst;
  config.spreads = spec.prefer_fastest ? 1 : 0;
  config.idle_share = IdleShare(spec.idle_copies_ppm);
  config.request_share = ShareOf(all.max_requests, all.services.size());
  config.parked_share = ShareOf(all.max_parked, all.services.size());
  config.profile = spec.profile;
  config.election_timeout_ns = spec.election_timeout_ns;
  config.cluster_id = spec.cluster.has_value() ? spec.cluster->id : 0;
  config.client_networks = static_cast<uint32_t>(spec.clients.size());
  std::copy(spec.clients.begin(), spec.clients.end(), config.clients);
  memcpy(config.backends, before.backends, sizeof(config.backends));
  for (const BackendSpec& backend : spec.backends) {
    config.present |= static_cast<uint8_t>(1u << backend.slot);
    config.backends[backend.slot] = static_cast<uint16_t>(backend.id);
    config.nodes[backend.slot] = backend.node;
  }
  return config;
}

}  // namespace hedgerow
