// SPDX-License-Identifier: Apache-2.0
//
// The data plane in the kernel: loads the embedded BPF object, fills its maps from a DataPlaneSpec, and reads them
// back. It attaches nothing (net does) and owns every descriptor: programs that are not attached or pinned are
// gone with it. One owner thread.
#ifndef HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_
#define HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/data_plane/kernel_maps.h"

struct proxy_bpf;
struct bpf_program;

namespace hedgerow {

class KernelDataPlane : public DataPlane {
 public:
  // kInvalidArgument: the specification is wrong; kPermissionDenied: capabilities; kInternal with the tail of the
  // verifier's log: the kernel refused a program; kResourceExhausted: a map cannot be made, with its name and bytes.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Load(const DataPlaneSpec& spec);
  ~KernelDataPlane() override;

  std::vector<ProgramInfo> Programs() override;
  absl::StatusOr<Snapshot> Read(bool histograms) override;
  absl::Status PinLeader(const std::string& service, const std::string& backend) override;
  absl::Status UnpinLeader(const std::string& service) override;
  absl::Status SetBypass(const std::string& service, bool on) override;
  absl::Status SetDryRun(const std::string& service, bool on) override;
  absl::Status SetDrained(const std::string& service, const std::string& backend, bool on) override;
  absl::Status SetDelay(const std::string& service, uint64_t delay_ns) override;
  absl::Status SetPreferred(const std::string& service, std::optional<size_t> backend) override;
  absl::Status SetBackendP99(const std::string& service, size_t backend, uint64_t p99_ns) override;
  absl::StatusOr<bool> CheckClock() override;
  absl::StatusOr<std::unique_ptr<TraceSource>> OpenTrace(const hr_trace_filter& filter) override;

  // Run time and count of each program are kept by the kernel while this descriptor is open (BPF_ENABLE_STATS).
  absl::Status EnableRunTimeStats();

  // For packet tests: maps and programs as they are.
  proxy_bpf* skeleton() { return skeleton_; }

 private:
  explicit KernelDataPlane(const DataPlaneSpec& spec) : spec_(spec) {}

  void SetSizes();
  void SetLoadConfig();
  absl::Status Fill();
  absl::Status FillService(uint32_t service_id, uint32_t first_backend_id);
  absl::Status FillBackends(uint32_t service_id, uint32_t first_backend_id, hr_service& service);
  absl::Status FillCluster(const ServiceSpec& spec);
  absl::StatusOr<size_t> FindService(const std::string& name) const;
  absl::StatusOr<size_t> FindBackend(size_t service, const std::string& name) const;
  absl::Status Switch(const std::string& service, uint32_t bit, bool on);
  absl::StatusOr<uint32_t> Control(const hr_control_request& request);
  absl::Status ReadService(size_t service, bool histograms, ServiceSnapshot& snapshot);
  struct RequestUse {
    std::vector<uint64_t> in_flight;  // by service
    uint64_t parked = 0;
  };
  RequestUse CountRequests() const;
  std::vector<MapUse> ReadMapUse(uint64_t parked) const;

  DataPlaneSpec spec_;
  proxy_bpf* skeleton_ = nullptr;
  std::vector<uint32_t> first_backend_ids_;  // by service
  MappedArray services_, requests_, wheel_, backend_states_, service_states_, tuning_;
  int stats_fd_ = -1;
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_
