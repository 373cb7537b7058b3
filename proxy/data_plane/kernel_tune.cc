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
  volatile hr_service_policy* policy = policies_.At<hr_service_policy>(spec_.services[*index].id);
  policy->switches = on ? (policy->switches | bit) : (policy->switches & ~bit);
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
  volatile hr_service_policy* policy = policies_.At<hr_service_policy>(spec_.services[*index].id);
  const uint32_t bit = 1u << spec_.services[*index].backends[*place].slot;
  policy->drained = on ? (policy->drained | bit) : (policy->drained & ~bit);
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
      shortest_ns = std::min<uint64_t>(shortest_ns, policies_.At<hr_service_policy>(each.id)->delay_ns);
  // A lap under way was chosen by the delays before: the first hedges of a much shorter delay may be late by
  // one lap.
  wheel_.At<hr_wheel>(0)->shortest_delay_ns = shortest_ns;
  policies_.At<hr_service_policy>(id)->delay_ns = delay_ns;
  return absl::OkStatus();
}

absl::Status KernelDataPlane::SetPreferred(const std::string& service, std::optional<size_t> backend) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  if (backend.has_value() && *backend >= spec_.services[*index].backends.size())
    return absl::NotFoundError("no such backend");
  policies_.At<hr_service_policy>(spec_.services[*index].id)->preferred =
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
