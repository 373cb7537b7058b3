// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/kernel_data_plane.h"

#include <arpa/inet.h>

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "operate/event_loop.h"

namespace hedgerow {
namespace {

using Policy = volatile hr_service_policy;

absl::Status NoBackend(const ServiceSpec& service, const std::string& name) {
  return absl::NotFoundError(absl::StrCat("service ", service.name, " has no backend named \"", name, "\""));
}

// A mask of places.
uint64_t Places(const ServiceSpec& service, const std::vector<size_t>& backends) {
  uint64_t places = 0;
  for (const size_t backend : backends)
    if (backend < service.backends.size()) places |= uint64_t{1} << service.backends[backend].slot;
  return places;
}

void Set(volatile __u32& word, uint32_t bits, bool on) { word = on ? word | bits : word & ~bits; }

}  // namespace

template <typename Change>
absl::Status KernelPolicy::Of(const std::string& name, const Change& change) const {
  const ServiceSpec* service = FindByName(spec_.services, name);
  if (service == nullptr) return absl::NotFoundError(absl::StrCat("no service named \"", name, "\""));
  Policy& policy = memory_.Policy(service->id);
  if constexpr (std::is_void_v<std::invoke_result_t<Change, const ServiceSpec&, Policy&>>) {
    change(*service, policy);
    return absl::OkStatus();
  } else {
    return change(*service, policy);
  }
}

template <typename Change>
absl::Status KernelPolicy::OfBackend(const std::string& name, size_t backend, const Change& change) const {
  return Of(name, [&](const ServiceSpec& service, Policy&) {
    if (backend >= service.backends.size()) return absl::NotFoundError("no such backend");
    change(*memory_.tuning.At<hr_backend_tuning>(service.backends[backend].id));
    return absl::OkStatus();
  });
}

absl::Status KernelPolicy::PinLeader(const std::string& service, const std::string& backend) {
  return Of(service, [&](const ServiceSpec& spec, Policy& policy) {
    const BackendSpec* leader = FindByName(spec.backends, backend);
    if (leader == nullptr) return NoBackend(spec, backend);
    policy.preferred = 0;  // no faster one is chosen meanwhile (FastestChoice)
    return object_.Control(HR_CONTROL_PIN, spec.id, leader->slot);
  });
}

absl::Status KernelPolicy::UnpinLeader(const std::string& service) {
  return Of(service, [&](const ServiceSpec& spec, Policy&) { return object_.Control(HR_CONTROL_UNPIN, spec.id); });
}

absl::Status KernelPolicy::ForgetLeader(const std::string& service) {
  return Of(service, [&](const ServiceSpec& spec, Policy&) {
    return object_.Control(HR_CONTROL_CONFIGURE, spec.id, /*leader=*/0, /*sequence=*/1);
  });
}

absl::Status KernelPolicy::SetBypass(const std::string& service, bool on) {
  return Of(service, [&](const ServiceSpec&, Policy& policy) { Set(policy.switches, HR_SWITCH_BYPASS, on); });
}

absl::Status KernelPolicy::SetDryRun(const std::string& service, bool on) {
  return Of(service, [&](const ServiceSpec&, Policy& policy) { Set(policy.switches, HR_SWITCH_DRY_RUN, on); });
}

absl::Status KernelPolicy::SetDrained(const std::string& service, const std::string& backend, bool on) {
  return Of(service, [&](const ServiceSpec& spec, Policy& policy) {
    const BackendSpec* place = FindByName(spec.backends, backend);
    if (place == nullptr) return NoBackend(spec, backend);
    Set(policy.drained, 1u << place->slot, on);
    return absl::OkStatus();
  });
}

absl::Status KernelPolicy::SetDelay(const std::string& service, uint64_t delay_ns) {
  return Of(service, [&](const ServiceSpec& spec, Policy& policy) {
    if (delay_ns == 0) return absl::InvalidArgumentError("a delay of 0");
    uint64_t shortest_ns = delay_ns;
    for (const ServiceSpec& each : spec_.services)
      if (each.id != spec.id) shortest_ns = std::min<uint64_t>(shortest_ns, memory_.Policy(each.id).delay_ns);
    // A lap under way was chosen by the delays before: the first hedges of a much shorter delay may be late by
    // one lap.
    memory_.Wheel().shortest_delay_ns = shortest_ns;
    policy.delay_ns = delay_ns;
    return absl::OkStatus();
  });
}

absl::Status KernelPolicy::SetPreferred(const std::string& service, std::optional<size_t> backend) {
  return Of(service, [&](const ServiceSpec& spec, Policy& policy) {
    if (backend.has_value() && *backend >= spec.backends.size()) return absl::NotFoundError("no such backend");
    policy.preferred = backend.has_value() ? spec.backends[*backend].slot + 1 : 0;
    return absl::OkStatus();
  });
}

absl::Status KernelPolicy::SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) {
  return OfBackend(service, backend, [&](volatile hr_backend_tuning& tuning) { tuning.p95_ns = p95_ns; });
}

absl::Status KernelPolicy::SetBackendLoad(const std::string& service, size_t backend, const LearnedLoad& learned) {
  return OfBackend(service, backend, [&](volatile hr_backend_tuning& tuning) {
    tuning.slow_at = learned.slow_at;
    tuning.lost = learned.lost;
  });
}

absl::Status KernelPolicy::SetUnhealthy(const std::string& service, const std::vector<size_t>& backends) {
  return Of(service, [&](const ServiceSpec& spec, Policy& policy) {
    if (const uint64_t places = Places(spec, backends); policy.unhealthy != places) policy.unhealthy = places;
  });
}

// One of the two kinds of places in the word, which has one time: the other kind stays for as long as it was told. What
// an earlier daemon has told ends with the word.
absl::Status KernelPolicy::SetPlaces(const std::string& service, const std::vector<size_t>& backends, uint64_t until_ns,
                                     bool failing) {
  return Of(service, [&](const ServiceSpec& spec, Policy& policy) {
    std::array<uint64_t, 2>& until =
        until_ns_.try_emplace(spec.id, std::array<uint64_t, 2>{policy.unrouted, policy.unrouted}).first->second;
    until.at(failing) = until_ns;
    uint64_t others = policy.unrouted & HR_UNROUTED_PLACES << (failing ? 0 : HR_FAILING_SHIFT);
    if (until.at(!failing) <= static_cast<uint64_t>(MonotonicNs())) others = 0;
    const uint64_t places = Places(spec, backends) << (failing ? HR_FAILING_SHIFT : 0) | others;
    const uint64_t word = places == 0 ? 0 : (until_ns >> 2 * HR_FAILING_SHIFT << 2 * HR_FAILING_SHIFT) | places;
    if (policy.unrouted != word) policy.unrouted = word;
  });
}

absl::Status KernelPolicy::TestHedge(const std::string& service, const hr_address& client, uint16_t port,
                                     uint64_t until_ns) {
  return Of(service, [&](const ServiceSpec&, Policy& policy) {
    policy.test_until_ns = 0;  // a program that looks now finds no test, not half of each
    policy.test_client = hr_test_client(&client);
    policy.test_port_be = htons(port);
    __atomic_store_n(&policy.test_until_ns, until_ns, __ATOMIC_SEQ_CST);
  });
}

}  // namespace hedgerow
