// SPDX-License-Identifier: Apache-2.0
//
// The data plane in the kernel, in its four parts: the loaded object, the writer of configurations, the live policy,
// and the reader of what the programs count. One owner thread. Callers hold the part that they need.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/kernel_part/config_writer.h"
#include "proxy/kernel_part/kernel_object.h"

namespace hedgerow {

// What an operator or the daemon's policy changes while the programs run: switches, drained and preferred backends,
// delays, pins, and the p95s that suspicion timeouts stand on. Each is one aligned word of a mapped array, so that no
// program ever sees half of a change; a pin goes through the control program. Called on the event loop's thread only.
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

// What the programs have counted and decided: snapshots of services, backends, clock and maps, and the trace of single
// requests. Reads only, but for the trace's filter and lease.
class KernelReader final : public DataPlaneReader {
 public:
  // `spec`: what the ids mean now.
  KernelReader(const KernelObject& object, const DataPlaneSpec& spec)
      : object_(object), memory_(object.memory()), spec_(spec) {}

  std::vector<ProgramInfo> Programs() override { return object_.Programs(); }
  absl::StatusOr<Snapshot> Read(bool histograms) override;
  absl::StatusOr<std::unique_ptr<TraceSource>> OpenTrace(const hr_trace_filter& filter) override;

 private:
  struct RequestUse {
    std::vector<uint64_t> in_flight;  // by service
    uint64_t requests = 0, parked = 0;
  };
  RequestUse CountRequests() const;
  std::vector<MapUse> ReadMapUse(const RequestUse& use) const;
  absl::StatusOr<ServiceSnapshot> ReadService(const ServiceSpec& spec, bool histograms);
  absl::StatusOr<BackendSnapshot> ReadBackend(const ServiceSpec& service, const BackendSpec& spec, bool histograms);
  absl::StatusOr<std::vector<Histogram>> Histograms(bpf_map* map, uint32_t id, uint32_t kinds,
                                                    std::vector<uint64_t> counts);

  // Histograms of one service or backend, and what it had counted when they were read.
  struct Kept {
    std::vector<uint64_t> counts;
    bool settled = false;
    std::vector<Histogram> histograms;
  };

  const KernelObject& object_;
  const KernelMemory& memory_;
  const DataPlaneSpec& spec_;
  std::map<std::pair<const bpf_map*, uint32_t>, Kept> kept_;  // by map and id
};

class KernelDataPlane {
 public:
  // Loads the programs, with `spec` (which gets its ids here) as the first configuration. For errors see KernelObject
  // and ConfigWriter.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Load(const DataPlaneSpec& spec);
  // Takes over what is pinned; see KernelObject::Adopt. Changes nothing.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Adopt(const DataPlaneSpec& spec, const std::string& folder,
                                                                const std::string& program_folder,
                                                                const v1::KernelRecord& pinned);

  KernelObject& object() { return *object_; }
  ConfigWriter& config() { return config_; }
  KernelPolicy& policy() { return policy_; }
  KernelReader& reader() { return reader_; }
  const DataPlaneSpec& spec() const { return config_.spec(); }  // with ids

 private:
  KernelDataPlane(std::unique_ptr<KernelObject> object, const DataPlaneSpec& spec)
      : object_(std::move(object)),
        config_(*object_, spec),
        policy_(*object_, config_.spec()),
        reader_(*object_, config_.spec()) {}

  std::unique_ptr<KernelObject> object_;
  ConfigWriter config_;
  KernelPolicy policy_;
  KernelReader reader_;
};

}  // namespace hedgerow
