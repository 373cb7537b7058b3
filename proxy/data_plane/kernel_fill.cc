// SPDX-License-Identifier: Apache-2.0
//
// KernelDataPlane's specification as the kernel's maps have it: services, backends, clusters, the configured
// leaders. Written after loading, before anything is attached, and at each reload while the programs run: then
// in an order in which every state in between is one that the programs may meet (kernel_reconfigure.cc says
// why).
#include <algorithm>
#include <cstring>

#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy/data_plane/service_change.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

constexpr uint64_t kMicrosPerHedge = 1'000'000;

// What the configuration alone says.
void SetConfigured(const ServiceSpec& spec, hr_service& service) {
  service.attempts = static_cast<uint8_t>(spec.attempts);
  service.fixed_delay_ns = spec.delay_ns;
  service.deadline_ns = spec.deadline_ns;
  service.linger_ns = spec.linger_ns;
  service.election_timeout_ns = spec.election_timeout_ns;
  service.suspect_min_ns = spec.suspect_min_ns;
  service.suspect_max_ns = std::max(spec.suspect_max_ns, spec.suspect_min_ns);
  service.budget_ppm = spec.budget_ppm;
  service.budget_burst_micros = spec.budget_burst * kMicrosPerHedge;
  service.profile = spec.profile;
  service.cluster_id = spec.cluster.has_value() ? spec.cluster->id : 0;
}

// Assigns backends to places; places without a backend of this configuration are absent. A retired backend's id stays,
// for those of its requests that are in flight.
void SetPlaces(const ServiceSpec& spec, hr_service& service) {
  uint32_t present = 0;
  uint32_t places = service.backend_count;
  memset(service.nodes, 0, sizeof(service.nodes));
  for (const BackendSpec& backend : spec.backends) {
    service.backends[backend.slot] = static_cast<uint16_t>(backend.id);
    service.nodes[backend.slot] = backend.node;
    present |= 1u << backend.slot;
    places = std::max(places, backend.slot + 1);
  }
  service.backend_count = static_cast<uint8_t>(places);
  service.absent = static_cast<uint8_t>(((1u << places) - 1) & ~present);
  service.present = static_cast<uint8_t>(spec.backends.size());
  service.drained &= present;
  const bool preferred_stays = service.preferred != 0 && (present >> (service.preferred - 1) & 1) != 0;
  if (!spec.prefer_fastest || !preferred_stays) service.preferred = 0;
}

}  // namespace

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

// `before` is what this service was; null where it is new.
absl::Status KernelDataPlane::FillService(const ServiceSpec& spec, const ServiceSpec* before) {
  const auto vip = ParseEndpoint(spec.vip, spec.port);
  if (!vip.ok()) return vip.status();
  ServiceChange change(services_.At<hr_service>(spec.id));
  hr_service& service = change.next;
  service.vip = vip->address;
  service.port_be = vip->port_be;
  SetConfigured(spec, service);
  SetPlaces(spec, service);
  // An adaptive delay is SetDelay's to write.
  if (change.fresh() || !spec.adaptive) service.delay_ns = spec.delay_ns;
  // Unless the configuration itself has changed, what an administrator has switched holds.
  if (before == nullptr || before->dry_run != spec.dry_run)
    service.switches =
        (service.switches & ~uint32_t{HR_SWITCH_DRY_RUN}) | (spec.dry_run ? uint32_t{HR_SWITCH_DRY_RUN} : 0u);
  service.switches &= ~uint32_t{HR_SWITCH_RELOADING};  // a daemon that was killed may have left it
  absl::Status status;
  for (const BackendSpec& backend : spec.backends)
    if (status.ok()) status = FillBackend(spec, backend);
  if (status.ok()) status = StoreHidden(change);
  for (const BackendSpec& backend : spec.backends)
    if (status.ok()) status = FillWayBack(backend);
  if (status.ok()) status = FillCluster(spec);
  // So that an announcement cannot come before it, which it would take for a newer one.
  if (status.ok()) status = StoreCount(change);
  if (status.ok() && change.fresh()) status = PublishPrimary(spec);
  if (status.ok()) status = Show(change);
  if (status.ok() && !change.fresh()) status = MoveLeader(spec, before, change);
  if (status.ok()) status = Hide(change);
  const uint32_t one = 1;
  const auto& maps = skeleton_->maps;
  if (status.ok()) status = Put(maps.vip_addresses, &vip->address, &one);
  // Last: from here on the splitter finds the service.
  return status.ok() ? Put(maps.vips, &*vip, &spec.id) : status;
}

// Runs before the removed backends are unpublished, so that a backend which stays leads from then on.
absl::Status KernelDataPlane::MoveLeader(const ServiceSpec& spec, const ServiceSpec* before,
                                         const ServiceChange& change) {
  const absl::StatusOr<bool> forget = IsOutOfOrder(change.old.cluster_id, before, spec);
  if (!forget.ok()) return forget.status();
  // An announcement of the cluster before that was under way would stand above all that are to come.
  if (*forget)
    if (absl::Status status = WaitForPrograms(); !status.ok()) return status;
  return ConfigureLeader(spec, change.next.absent, *forget);
}

// Above the empty entry's (0, 0, 0), and below any cluster's announcement.
absl::Status KernelDataPlane::PublishPrimary(const ServiceSpec& spec) {
  hr_control_request request{};
  request.operation = HR_CONTROL_PUBLISH;
  request.service = spec.id;
  request.leader = spec.backends[spec.primary].slot;
  request.sequence = 1;
  return Command(request);
}

// `forget`: what was announced is of another cluster, or of an epoch above this one's.
absl::Status KernelDataPlane::ConfigureLeader(const ServiceSpec& spec, uint32_t absent, bool forget) {
  hr_control_request request{};
  request.operation = HR_CONTROL_CONFIGURE;
  request.service = spec.id;
  request.leader = spec.backends[spec.primary].slot;
  request.absent = absent;
  request.sequence = forget ? 1 : 0;
  return Command(request);
}

absl::Status KernelDataPlane::Command(const hr_control_request& request) {
  if (absl::Status status = Step("leaders"); !status.ok()) return status;
  auto result = Control(request);
  if (!result.ok()) return result.status();
  return *result == HR_CONTROL_DONE ? absl::OkStatus()
                                    : absl::InternalError("the control program refused the configured primary");
}

// True where the last announcement was another cluster's, or of an epoch that is not to come any more, because whatever
// is announced from now on could be below it. The maps know this also of a service that was removed for a moment, and
// the configuration before knows it where several daemons died on the way.
absl::StatusOr<bool> KernelDataPlane::IsOutOfOrder(uint64_t cluster_before, const ServiceSpec* before,
                                                   const ServiceSpec& now) const {
  const auto cluster_of = [](const ServiceSpec& spec) {
    return spec.cluster.has_value() ? spec.cluster->id : 0;
  };
  if (cluster_before != cluster_of(now)) return true;
  if (before != nullptr && cluster_of(*before) != cluster_of(now)) return true;
  if (!now.cluster.has_value()) return false;
  const absl::StatusOr<hr_leader_view> leader = ReadLeader(now.id);
  if (!leader.ok()) return leader.status();
  return leader->cluster_epoch > now.cluster->epoch;
}

absl::Status KernelDataPlane::FillBackend(const ServiceSpec& spec, const BackendSpec& backend) {
  const auto endpoint = ParseEndpoint(backend.address, backend.port);
  if (!endpoint.ok()) return endpoint.status();
  hr_backend entry{};
  entry.address = endpoint->address;
  entry.port_be = endpoint->port_be;
  entry.service = static_cast<uint16_t>(spec.id);
  entry.uplink_ifindex = backend.uplink_ifindex;
  entry.index = static_cast<uint8_t>(backend.slot);
  // Of a backend that the map already holds at most the uplink changes, which is one word.
  return Put(skeleton_->maps.backends, &backend.id, &entry);
}

// The entry by which the programs recognize the backend's replies and announcements.
absl::Status KernelDataPlane::FillWayBack(const BackendSpec& backend) {
  const auto endpoint = ParseEndpoint(backend.address, backend.port);
  if (!endpoint.ok()) return endpoint.status();
  return Put(skeleton_->maps.backend_ids, &*endpoint, &backend.id);
}

absl::Status KernelDataPlane::FillCluster(const ServiceSpec& spec) {
  if (!spec.cluster.has_value()) return absl::OkStatus();
  hr_cluster cluster{};
  cluster.key = spec.cluster->key;
  cluster.epoch = spec.cluster->epoch;
  const __u64 id = spec.cluster->id;
  return Put(skeleton_->maps.clusters, &id, &cluster);
}

}  // namespace hedgerow
