// SPDX-License-Identifier: Apache-2.0
//
// What the programs have counted and decided: snapshots of services, backends, clock and maps, and the trace of single
// requests. Reads only, but for the trace's filter and lease.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/kernel_part/kernel_object.h"

namespace hedgerow {

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

}  // namespace hedgerow
