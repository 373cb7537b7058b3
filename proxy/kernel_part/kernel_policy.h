// SPDX-License-Identifier: Apache-2.0
//
// What an operator or the daemon's policy changes while the programs run: switches, drained and preferred backends,
// delays, pins, and the p95s that suspicion timeouts stand on. Each is one aligned word of a mapped array, so that no
// program ever sees half of a change; a pin goes through the control program. Called on the event loop's thread only.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/kernel_part/kernel_object.h"

namespace hedgerow {

class KernelPolicy final : public LivePolicy {
 public:
  // `spec`: what the names mean now.
  KernelPolicy(const KernelObject& object, const DataPlaneSpec& spec)
      : object_(object), memory_(object.memory()), spec_(spec) {}

  absl::Status PinLeader(const std::string& service, const std::string& backend) override;
  absl::Status UnpinLeader(const std::string& service) override;
  absl::Status ForgetLeader(const std::string& service) override;
  absl::Status SetBypass(const std::string& service, bool on) override;
  absl::Status SetDryRun(const std::string& service, bool on) override;
  absl::Status SetDrained(const std::string& service, const std::string& backend, bool on) override;
  absl::Status SetDelay(const std::string& service, uint64_t delay_ns) override;
  absl::Status SetPreferred(const std::string& service, std::optional<size_t> backend) override;
  absl::Status SetUnhealthy(const std::string& service, const std::vector<size_t>& backends) override;
  absl::Status SetUnrouted(const std::string& service, const std::vector<size_t>& backends,
                           uint64_t until_ns) override {
    return SetPlaces(service, backends, until_ns, false);
  }
  absl::Status SetFailing(const std::string& service, const std::vector<size_t>& backends, uint64_t until_ns) override {
    return SetPlaces(service, backends, until_ns, true);
  }
  absl::Status TestHedge(const std::string& service, const hr_address& client, uint16_t port,
                         uint64_t until_ns) override;
  absl::Status SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) override;
  absl::Status SetBackendLoad(const std::string& service, size_t backend, const LearnedLoad& learned) override;
  // The daemon's sign of life: without a further one hedging stops at this time, and traffic flows on. 0 = never.
  void HedgeUntil(uint64_t until_ns) { memory_.Wheel().hedge_until_ns = until_ns; }

 private:
  absl::Status SetPlaces(const std::string& service, const std::vector<size_t>& backends, uint64_t until_ns,
                         bool failing);
  // `change`: of the service of this name and its policy, or of one of its backends' tuning.
  template <typename Change>
  absl::Status Of(const std::string& name, const Change& change) const;
  template <typename Change>
  absl::Status OfBackend(const std::string& name, size_t backend, const Change& change) const;

  const KernelObject& object_;
  const KernelMemory& memory_;
  const DataPlaneSpec& spec_;
  std::map<uint32_t, std::array<uint64_t, 2>> until_ns_;  // by service: of unrouted, and of failing places
};

}  // namespace hedgerow
