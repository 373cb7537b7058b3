// SPDX-License-Identifier: Apache-2.0
//
// What an operator or the daemon's policy changes while the programs run: switches, drained backends, preferred
// backends, delays and the p95s that suspicion timeouts stand on. Each is one aligned word of a mapped array, so that no
// program ever sees half of a change. Called on the event loop's thread only, which alone writes these words.
#include <algorithm>

#include "proxy/data_plane/kernel_data_plane.h"

namespace hedgerow {

absl::Status KernelDataPlane::Switch(const std::string& service, uint32_t bit, bool on) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  volatile hr_service* mapped = services_.At<hr_service>(spec_.services[*index].id);
  mapped->switches = on ? (mapped->switches | bit) : (mapped->switches & ~bit);
  return absl::OkStatus();
}

absl::Status KernelDataPlane::SetBypass(const std::string& service, bool on) {
  return Switch(service, HR_SWITCH_BYPASS, on);
}

absl::Status KernelDataPlane::SetDryRun(const std::string& service, bool on) {
  return Switch(service, HR_SWITCH_DRY_RUN, on);
}

absl::Status KernelDataPlane::SetDrained(const std::string& service, const std::string& backend, bool on) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  auto place = FindBackend(*index, backend);
  if (!place.ok()) return place.status();
  volatile hr_service* mapped = services_.At<hr_service>(spec_.services[*index].id);
  const uint32_t bit = 1u << spec_.services[*index].backends[*place].slot;
  mapped->drained = on ? (mapped->drained | bit) : (mapped->drained & ~bit);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ServiceChoices>> KernelDataPlane::Choices() const {
  std::vector<ServiceChoices> choices;
  for (const ServiceSpec& service : spec_.services) {
    const volatile hr_service* mapped = services_.At<hr_service>(service.id);
    const absl::StatusOr<hr_leader_view> leader = ReadLeader(service.id);
    if (!leader.ok()) return leader.status();
    choices.push_back({.service = service.id,
                       .dry_run = (mapped->switches & HR_SWITCH_DRY_RUN) != 0,
                       .drained = mapped->drained,
                       .pinned = leader->pinned != 0 ? leader->leader + 1u : 0u});
  }
  return choices;
}

absl::Status KernelDataPlane::Choose(const std::vector<ServiceChoices>& choices) {
  for (const ServiceChoices& each : choices) {
    const auto service = std::find_if(spec_.services.begin(), spec_.services.end(),
                                      [&](const ServiceSpec& known) { return known.id == each.service; });
    if (service == spec_.services.end()) continue;
    volatile hr_service* mapped = services_.At<hr_service>(each.service);
    mapped->drained = each.drained;
    mapped->switches = each.dry_run ? (mapped->switches | HR_SWITCH_DRY_RUN)
                                    : (mapped->switches & ~uint32_t{HR_SWITCH_DRY_RUN});
    if (each.pinned == 0) continue;
    hr_control_request request{};
    request.operation = HR_CONTROL_PIN;
    request.service = each.service;
    request.leader = each.pinned - 1;
    if (absl::Status status = Command(request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status KernelDataPlane::SetDelay(const std::string& service, uint64_t delay_ns) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  if (delay_ns == 0) return absl::InvalidArgumentError("a delay of 0");
  const uint32_t id = spec_.services[*index].id;
  uint64_t shortest_ns = delay_ns;
  for (const ServiceSpec& each : spec_.services)
    if (each.id != id)
      shortest_ns = std::min<uint64_t>(shortest_ns, services_.At<hr_service>(each.id)->delay_ns);
  // A lap under way was chosen by the delays before: the first hedges of a much shorter delay may be late by
  // one lap.
  wheel_.At<hr_wheel>(0)->shortest_delay_ns = shortest_ns;
  services_.At<hr_service>(id)->delay_ns = delay_ns;
  return absl::OkStatus();
}

absl::Status KernelDataPlane::SetPreferred(const std::string& service, std::optional<size_t> backend) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  if (backend.has_value() && *backend >= spec_.services[*index].backends.size())
    return absl::NotFoundError("no such backend");
  services_.At<hr_service>(spec_.services[*index].id)->preferred =
      backend.has_value() ? spec_.services[*index].backends[*backend].slot + 1 : 0;
  return absl::OkStatus();
}

absl::Status KernelDataPlane::SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  if (backend >= spec_.services[*index].backends.size()) return absl::NotFoundError("no such backend");
  tuning_.At<hr_backend_tuning>(spec_.services[*index].backends[backend].id)->p95_ns = p95_ns;
  return absl::OkStatus();
}

}  // namespace hedgerow
