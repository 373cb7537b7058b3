// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/kernel_policy.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

absl::StatusOr<const BackendSpec*> FindBackend(const ServiceSpec& service, const std::string& name) {
  if (const BackendSpec* found = FindByName(service.backends, name)) return found;
  return absl::NotFoundError(absl::StrCat("service ", service.name, " has no backend named \"", name, "\""));
}

// A mask of places.
uint64_t Places(const ServiceSpec& service, const std::vector<size_t>& backends) {
  uint64_t places = 0;
  for (const size_t backend : backends)
    if (backend < service.backends.size()) places |= uint64_t{1} << service.backends[backend].slot;
  return places;
}

}  // namespace

absl::StatusOr<const ServiceSpec*> KernelPolicy::FindService(const std::string& name) const {
  if (const ServiceSpec* found = FindByName(spec_.services, name)) return found;
  return absl::NotFoundError(absl::StrCat("no service named \"", name, "\""));
}

absl::Status KernelPolicy::PinLeader(const std::string& service, const std::string& backend) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  const auto leader = FindBackend(**found, backend);
  if (!leader.ok()) return leader.status();
  return object_.Control(HR_CONTROL_PIN, (*found)->id, (*leader)->slot);
}

absl::Status KernelPolicy::UnpinLeader(const std::string& service) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  return object_.Control(HR_CONTROL_UNPIN, (*found)->id);
}

absl::Status KernelPolicy::ForgetLeader(const std::string& service) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  return object_.Control(HR_CONTROL_CONFIGURE, (*found)->id, /*leader=*/0, /*sequence=*/1);
}

absl::Status KernelPolicy::Switch(const std::string& service, uint32_t bit, bool on) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  volatile hr_service_policy& policy = memory_.Policy((*found)->id);
  policy.switches = on ? (policy.switches | bit) : (policy.switches & ~bit);
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetBypass(const std::string& service, bool on) {
  return Switch(service, HR_SWITCH_BYPASS, on);
}

absl::Status KernelPolicy::SetDryRun(const std::string& service, bool on) {
  return Switch(service, HR_SWITCH_DRY_RUN, on);
}

absl::Status KernelPolicy::SetDrained(const std::string& service, const std::string& backend, bool on) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  const auto place = FindBackend(**found, backend);
  if (!place.ok()) return place.status();
  volatile hr_service_policy& policy = memory_.Policy((*found)->id);
  const uint32_t bit = 1u << (*place)->slot;
  policy.drained = on ? (policy.drained | bit) : (policy.drained & ~bit);
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetDelay(const std::string& service, uint64_t delay_ns) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  if (delay_ns == 0) return absl::InvalidArgumentError("a delay of 0");
  uint64_t shortest_ns = delay_ns;
  for (const ServiceSpec& each : spec_.services)
    if (each.id != (*found)->id) shortest_ns = std::min<uint64_t>(shortest_ns, memory_.Policy(each.id).delay_ns);
  // A lap under way was chosen by the delays before: the first hedges of a much shorter delay may be late by
  // one lap.
  memory_.Wheel().shortest_delay_ns = shortest_ns;
  memory_.Policy((*found)->id).delay_ns = delay_ns;
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetPreferred(const std::string& service, std::optional<size_t> backend) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  if (backend.has_value() && *backend >= (*found)->backends.size()) return absl::NotFoundError("no such backend");
  memory_.Policy((*found)->id).preferred = backend.has_value() ? (*found)->backends[*backend].slot + 1 : 0;
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  if (backend >= (*found)->backends.size()) return absl::NotFoundError("no such backend");
  memory_.tuning.At<hr_backend_tuning>((*found)->backends[backend].id)->p95_ns = p95_ns;
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetBackendLoad(const std::string& service, size_t backend, const LearnedLoad& learned) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  if (backend >= (*found)->backends.size()) return absl::NotFoundError("no such backend");
  volatile hr_backend_tuning& tuning = *memory_.tuning.At<hr_backend_tuning>((*found)->backends[backend].id);
  tuning.slow_at = learned.slow_at;
  tuning.lost = learned.lost;
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetUnhealthy(const std::string& service, const std::vector<size_t>& backends) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  const uint64_t places = Places(**found, backends);
  volatile hr_service_policy& policy = memory_.Policy((*found)->id);
  if (policy.unhealthy != places) policy.unhealthy = places;
  return absl::OkStatus();
}

absl::Status KernelPolicy::SetUnrouted(const std::string& service, const std::vector<size_t>& backends,
                                       uint64_t until_ns) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  const uint64_t places = Places(**found, backends);
  const uint64_t word = places == 0 ? 0 : (until_ns & ~HR_UNROUTED_PLACES) | places;
  volatile hr_service_policy& policy = memory_.Policy((*found)->id);
  if (policy.unrouted != word) policy.unrouted = word;
  return absl::OkStatus();
}

absl::Status KernelPolicy::TestHedge(const std::string& service, const hr_address& client, uint16_t port,
                                     uint64_t until_ns) {
  const auto found = FindService(service);
  if (!found.ok()) return found.status();
  volatile hr_service_policy& policy = memory_.Policy((*found)->id);
  policy.test_until_ns = 0;  // a program that looks now finds no test, not half of each
  policy.test_client = hr_test_client(&client);
  policy.test_port_be = htons(port);
  __atomic_store_n(&policy.test_until_ns, until_ns, __ATOMIC_SEQ_CST);
  return absl::OkStatus();
}

}  // namespace hedgerow
