// SPDX-License-Identifier: Apache-2.0
//
// KernelDataPlane's specification as the kernel's maps have it: services, backends, clusters, the configured leaders.
// Called once, after loading and before anything is attached.
#include "absl/strings/str_cat.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

constexpr uint64_t kMicrosPerHedge = 1'000'000;

}  // namespace

void KernelDataPlane::NumberBackends() {
  uint32_t next_backend_id = 0;
  for (const ServiceSpec& service : spec_.services) {
    first_backend_ids_.push_back(next_backend_id);
    next_backend_id += static_cast<uint32_t>(service.backends.size());
  }
}

absl::Status KernelDataPlane::Fill() {
  for (uint32_t service_id = 0; service_id < spec_.services.size(); ++service_id) {
    if (absl::Status status = FillService(service_id, first_backend_ids_[service_id]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status KernelDataPlane::MapMemory() {
  trace_ = std::make_shared<MappedArray>();
  struct {
    bpf_map* map;
    MappedArray* array;
  } const mapped[] = {{skeleton_->maps.services, &services_},
                      {skeleton_->maps.requests, &requests_},
                      {skeleton_->maps.wheels, &wheel_},
                      {skeleton_->maps.backend_states, &backend_states_},
                      {skeleton_->maps.service_states, &service_states_},
                      {skeleton_->maps.backend_tuning, &tuning_},
                      {skeleton_->maps.data_trace, trace_.get()}};
  for (const auto& [map, array] : mapped) {
    auto opened = MappedArray::Open(map);
    if (!opened.ok()) return opened.status();
    *array = *std::move(opened);
  }
  return absl::OkStatus();
}

absl::Status KernelDataPlane::FillService(uint32_t service_id, uint32_t first_backend_id) {
  const ServiceSpec& spec = spec_.services[service_id];
  if (spec.backends.empty() || spec.backends.size() > HR_MAX_BACKENDS_PER_SERVICE || spec.primary >= spec.backends.size())
    return absl::InvalidArgumentError(absl::StrCat("service ", spec.name, ": 1 to ", HR_MAX_BACKENDS_PER_SERVICE,
                                                   " backends with a primary among them"));
  auto vip = ParseEndpoint(spec.vip, spec.port);
  if (!vip.ok()) return vip.status();
  hr_service service{};
  service.vip = vip->address;
  service.port_be = vip->port_be;
  service.backend_count = static_cast<uint8_t>(spec.backends.size());
  service.attempts = static_cast<uint8_t>(spec.attempts);
  service.switches = spec.dry_run ? uint32_t{HR_SWITCH_DRY_RUN} : 0;
  service.delay_ns = service.fixed_delay_ns = spec.delay_ns;
  service.deadline_ns = spec.deadline_ns;
  service.linger_ns = spec.linger_ns;
  service.election_timeout_ns = spec.election_timeout_ns;
  service.suspect_min_ns = spec.suspect_min_ns;
  service.budget_ppm = spec.budget_ppm;
  service.budget_burst_micros = spec.budget_burst * kMicrosPerHedge;
  service.profile = spec.profile;
  service.delay_class = spec.delay_class;
  service.cluster_id = spec.cluster.has_value() ? spec.cluster->id : 0;
  const auto& maps = skeleton_->maps;
  if (absl::Status status = FillBackends(service_id, first_backend_id, service); !status.ok()) return status;
  if (absl::Status status = FillCluster(spec); !status.ok()) return status;
  if (absl::Status status = UpdateElement(maps.services, &service_id, &service); !status.ok()) return status;
  const uint32_t one = 1;
  if (absl::Status status = UpdateElement(maps.vip_addresses, &vip->address, &one); !status.ok()) return status;
  hr_control_request publish{};
  publish.operation = HR_CONTROL_PUBLISH;
  publish.service = service_id;
  publish.sequence = 1;  // above the empty entry's (0, 0, 0); any cluster's announcement is above this
  publish.leader = spec.primary;
  auto result = Control(publish);
  if (!result.ok()) return result.status();
  if (*result != HR_CONTROL_DONE) return absl::InternalError("the control program refused the configured primary");
  // Last: from here on the splitter finds the service.
  return UpdateElement(maps.vips, &*vip, &service_id);
}

absl::Status KernelDataPlane::FillBackends(uint32_t service_id, uint32_t first_backend_id, hr_service& service) {
  const auto& backends = spec_.services[service_id].backends;
  const auto& maps = skeleton_->maps;
  for (uint32_t i = 0; i < backends.size(); ++i) {
    const uint32_t backend_id = first_backend_id + i;
    auto endpoint = ParseEndpoint(backends[i].address, backends[i].port);
    if (!endpoint.ok()) return endpoint.status();
    hr_backend backend{};
    backend.address = endpoint->address;
    backend.port_be = endpoint->port_be;
    backend.service = static_cast<uint16_t>(service_id);
    backend.uplink_ifindex = backends[i].uplink_ifindex;
    backend.index = static_cast<uint8_t>(i);
    service.backends[i] = static_cast<uint16_t>(backend_id);
    service.nodes[i] = backends[i].node;
    if (absl::Status status = UpdateElement(maps.backends, &backend_id, &backend); !status.ok()) return status;
    if (absl::Status status = UpdateElement(maps.backend_ids, &*endpoint, &backend_id); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status KernelDataPlane::FillCluster(const ServiceSpec& spec) {
  if (!spec.cluster.has_value()) return absl::OkStatus();
  if (spec.cluster->id == 0 || spec.cluster->announce_port == 0)
    return absl::InvalidArgumentError(absl::StrCat("service ", spec.name, ": a cluster has an id and an announce port"));
  if (spec.cluster->key.k0 == 0 && spec.cluster->key.k1 == 0)
    return absl::InvalidArgumentError(absl::StrCat("service ", spec.name, ": the cluster's key was not read"));
  hr_cluster cluster{};
  cluster.key = spec.cluster->key;
  cluster.epoch = spec.cluster->epoch;
  const __u64 id = spec.cluster->id;
  return UpdateElement(skeleton_->maps.clusters, &id, &cluster);
}

}  // namespace hedgerow
