// SPDX-License-Identifier: Apache-2.0
//
// KernelDataPlane's specification as the kernel's maps have it: services, backends, clusters, the configured
// leaders. Written after loading, before anything is attached, and at each reload while the programs run: then
// in an order in which every state in between is one that the programs may meet (kernel_reconfigure.cc says
// why).
#include <algorithm>
#include <bit>
#include <cstring>

#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

constexpr uint64_t kMicrosPerHedge = 1'000'000;

template <typename T>
T CopyOf(const volatile T& from) {
  T copy{};
  for (size_t i = 0; i < sizeof(T); ++i)
    reinterpret_cast<char*>(&copy)[i] = reinterpret_cast<const volatile char*>(&from)[i];
  return copy;
}

// Aligned words, so that no program ever sees half of one, and none before all that were stored earlier.
void StoreWords(const hr_service& from, volatile hr_service* to) {
  static_assert(sizeof(hr_service) % sizeof(uint64_t) == 0);
  uint64_t words[sizeof(hr_service) / sizeof(uint64_t)];
  memcpy(words, &from, sizeof(words));
  auto* mapped = reinterpret_cast<volatile uint64_t*>(to);
  for (size_t i = 0; i < std::size(words); ++i)
    if (mapped[i] != words[i]) __atomic_store_n(&mapped[i], words[i], __ATOMIC_SEQ_CST);
}

// Where backends stand to whom requests may go.
uint32_t PresentPlaces(const hr_service& service) {
  return ((1u << service.backend_count) - 1) & ~uint32_t{service.absent};
}

// Who can be reached is said last: a place before its backend's number stands there would lead to another
// service's.
void StorePlaces(const hr_service& next, volatile hr_service* mapped) {
  const hr_service old = CopyOf(*mapped);
  hr_service step = next;
  // The numbers of new places, which nobody looks at yet; and all that has nothing to do with places.
  step.backend_count = old.backend_count;
  step.absent = old.absent;
  step.present = old.present;
  step.drained = old.drained;
  StoreWords(step, mapped);
  // Who was and stays. The others are left out, the new ones among them, whom the next word would show.
  const uint32_t stay = PresentPlaces(old) & PresentPlaces(next);
  step.absent = static_cast<uint8_t>(((1u << next.backend_count) - 1) & ~stay);
  step.present = static_cast<uint8_t>(std::popcount(stay));
  StoreWords(step, mapped);
  step.backend_count = next.backend_count;
  StoreWords(step, mapped);
  step.absent = next.absent;
  step.present = next.present;
  StoreWords(step, mapped);
  StoreWords(next, mapped);  // a removed one is drained no longer
}

// What the configuration alone says.
void SetConfigured(const ServiceSpec& spec, hr_service& service) {
  service.attempts = static_cast<uint8_t>(spec.attempts);
  service.fixed_delay_ns = spec.delay_ns;
  service.deadline_ns = spec.deadline_ns;
  service.linger_ns = spec.linger_ns;
  service.election_timeout_ns = spec.election_timeout_ns;
  service.suspect_min_ns = spec.suspect_min_ns;
  service.budget_ppm = spec.budget_ppm;
  service.budget_burst_micros = spec.budget_burst * kMicrosPerHedge;
  service.profile = spec.profile;
  service.delay_class = spec.delay_class;
  service.cluster_id = spec.cluster.has_value() ? spec.cluster->id : 0;
}

// Who is where: places without a backend of this configuration are absent. A retired one's number stays, for
// those of its requests that are in flight.
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
  volatile hr_service* mapped = services_.At<hr_service>(spec.id);
  hr_service service = CopyOf(*mapped);
  const bool fresh = service.backend_count == 0;
  const uint64_t cluster_before = service.cluster_id;
  service.vip = vip->address;
  service.port_be = vip->port_be;
  SetConfigured(spec, service);
  SetPlaces(spec, service);
  // An adaptive delay is left to whoever writes it.
  if (fresh || !spec.adaptive) service.delay_ns = spec.delay_ns;
  // Unless the configuration itself has changed, what an administrator has switched holds.
  if (before == nullptr || before->dry_run != spec.dry_run)
    service.switches =
        (service.switches & ~uint32_t{HR_SWITCH_DRY_RUN}) | (spec.dry_run ? uint32_t{HR_SWITCH_DRY_RUN} : 0u);
  service.switches &= ~uint32_t{HR_SWITCH_RELOADING};  // a daemon that was killed may have left it
  absl::Status status;
  for (const BackendSpec& backend : spec.backends)
    if (status.ok()) status = FillBackend(spec, backend);
  if (status.ok()) status = FillCluster(spec);
  if (status.ok()) status = Store(service, mapped);
  if (!status.ok()) return status;
  const absl::StatusOr<bool> forget = fresh ? false : IsOutOfOrder(cluster_before, spec);
  if (!forget.ok()) return forget.status();
  // An announcement of the cluster before that was under way would stand above all that are to come.
  if (*forget) status = WaitForPrograms();
  if (!status.ok()) return status;
  status = fresh ? PublishPrimary(spec) : ConfigureLeader(spec, service.absent, *forget);
  if (!status.ok()) return status;
  const uint32_t one = 1;
  const auto& maps = skeleton_->maps;
  status = PutElement(maps.vip_addresses, &vip->address, &one);
  // Last: from here on the splitter finds the service.
  return status.ok() ? PutElement(maps.vips, &*vip, &spec.id) : status;
}

// A profile is many words, and half of one could take an operation for safe that is not. While it changes,
// requests are forwarded without a copy, which asks nothing of it; the answers of what is in flight are judged
// by parts of it that no reload changes (config/diff.h).
absl::Status KernelDataPlane::Store(const hr_service& service, volatile hr_service* mapped) {
  const hr_service old = CopyOf(*mapped);
  const bool serves = old.backend_count != 0;
  if (!serves || memcmp(&old.profile, &service.profile, sizeof(old.profile)) == 0) {
    StorePlaces(service, mapped);
    return absl::OkStatus();
  }
  hr_service step = old;
  step.switches |= HR_SWITCH_RELOADING;
  StoreWords(step, mapped);
  if (absl::Status status = WaitForPrograms(); !status.ok()) {
    StoreWords(old, mapped);
    return status;
  }
  step = service;
  step.switches |= HR_SWITCH_RELOADING;
  StorePlaces(step, mapped);
  StoreWords(service, mapped);
  return absl::OkStatus();
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
  auto result = Control(request);
  if (!result.ok()) return result.status();
  return *result == HR_CONTROL_DONE ? absl::OkStatus()
                                    : absl::InternalError("the control program refused the configured primary");
}

// What was announced was announced by another cluster, or under an epoch that is not to come any more: whatever is
// announced from now on could be below it. Asked of the map, which knows it of a service that was away for a
// moment as well.
absl::StatusOr<bool> KernelDataPlane::IsOutOfOrder(uint64_t cluster_before, const ServiceSpec& now) const {
  if (cluster_before != (now.cluster.has_value() ? now.cluster->id : 0)) return true;
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
  const auto& maps = skeleton_->maps;
  // Of one that is known nothing changes but, at most, the uplink: one word.
  if (absl::Status status = PutElement(maps.backends, &backend.id, &entry); !status.ok()) return status;
  return PutElement(maps.backend_ids, &*endpoint, &backend.id);
}

absl::Status KernelDataPlane::FillCluster(const ServiceSpec& spec) {
  if (!spec.cluster.has_value()) return absl::OkStatus();
  hr_cluster cluster{};
  cluster.key = spec.cluster->key;
  cluster.epoch = spec.cluster->epoch;
  const __u64 id = spec.cluster->id;
  return PutElement(skeleton_->maps.clusters, &id, &cluster);
}

}  // namespace hedgerow
