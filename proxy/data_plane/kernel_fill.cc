// SPDX-License-Identifier: Apache-2.0
//
// A service of the specification as the kernel programs read it, and the elements that a reload writes before it publishes
// the configuration: nothing refers to an added backend, its way back or a new cluster until then.
#include <algorithm>
#include <cstring>

#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy.skel.h"

namespace hedgerow {

// `before`: the published one. A removed backend's id stays in its place, for those of its requests that are in flight.
absl::StatusOr<hr_service_config> KernelDataPlane::MakeConfig(const ServiceSpec& spec, const hr_service_config& before) {
  const auto vip = ParseEndpoint(spec.vip, spec.port);
  if (!vip.ok()) return vip.status();
  hr_service_config config{};
  config.vip = vip->address;
  config.port_be = vip->port_be;
  config.attempts = static_cast<uint8_t>(spec.attempts);
  config.primary = static_cast<uint8_t>(spec.backends[spec.primary].slot);
  config.switches = spec.dry_run ? HR_SWITCH_DRY_RUN : 0;
  config.deadline_ns = spec.deadline_ns;
  config.linger_ns = spec.linger_ns;
  config.suspect_min_ns = spec.suspect_min_ns;
  config.suspect_max_ns = std::max(spec.suspect_max_ns, spec.suspect_min_ns);
  config.delay_ns = spec.delay_ns;
  config.budget_ppm = spec.budget_ppm;
  config.budget_burst = spec.budget_burst;
  config.profile = spec.profile;
  config.election_timeout_ns = spec.election_timeout_ns;
  config.cluster_id = spec.cluster.has_value() ? spec.cluster->id : 0;
  memcpy(config.backends, before.backends, sizeof(config.backends));
  for (const BackendSpec& backend : spec.backends) {
    config.present |= static_cast<uint8_t>(1u << backend.slot);
    config.backends[backend.slot] = static_cast<uint16_t>(backend.id);
    config.nodes[backend.slot] = backend.node;
  }
  return config;
}

absl::Status KernelDataPlane::PutBackend(const ServiceSpec& spec, const BackendSpec& backend) {
  const auto endpoint = ParseEndpoint(backend.address, backend.port);
  if (!endpoint.ok()) return endpoint.status();
  hr_backend entry{};
  entry.address = endpoint->address;
  entry.port_be = endpoint->port_be;
  entry.service = static_cast<uint16_t>(spec.id);
  entry.uplink_ifindex = backend.uplink_ifindex;
  entry.index = static_cast<uint8_t>(backend.slot);
  // Of a backend that the map already holds at most the uplink changes, which is one word.
  const absl::Status status = Put(skeleton_->maps.backends, &backend.id, &entry);
  // By this entry the programs recognize the backend's replies and announcements.
  return status.ok() ? Put(skeleton_->maps.backend_ids, &*endpoint, &backend.id) : status;
}

absl::Status KernelDataPlane::PutCluster(const ClusterSpec& spec) {
  hr_cluster cluster{};
  cluster.key = spec.key;
  cluster.epoch = spec.epoch;
  const __u64 id = spec.id;
  return Put(skeleton_->maps.clusters, &id, &cluster);
}

}  // namespace hedgerow
