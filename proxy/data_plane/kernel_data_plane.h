// SPDX-License-Identifier: Apache-2.0
//
// The data plane in the kernel: loads the embedded BPF object, fills its maps from a DataPlaneSpec, and reads them
// back; pins all of it, and takes over what an earlier process pinned (kernel_adopt.cc). It attaches nothing (net does)
// and owns every descriptor: what is neither attached nor pinned is gone with it. One owner thread.
#ifndef HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_
#define HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/data_plane/kernel_maps.h"

struct proxy_bpf;
struct bpf_map;
struct bpf_program;

namespace hedgerow {

// What is pinned, as whoever takes it over must find it. Kept in the instance's record.
struct PinnedMap {
  std::string name;
  uint32_t id = 0;      // the kernel's
  uint64_t layout = 0;  // see map_layout.h
};
struct PinnedDataPlane {
  uint32_t abi_version = 0;
  uint64_t build = 0;  // of the programs
  uint64_t hash_seed = 0;
  std::string load_config;  // bytes of hr_load_config
  std::vector<PinnedMap> maps;
};

class KernelDataPlane : public DataPlane {
 public:
  // kInvalidArgument: the specification is wrong; kPermissionDenied: capabilities; kInternal with the tail of the
  // verifier's log: the kernel refused a program; kResourceExhausted: a map cannot be made, with its name and bytes.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Load(const DataPlaneSpec& spec);
  // Takes over the maps that are pinned in `folder`, with all that is in them, and the programs in `program_folder`. Where
  // those are of another build, or were loaded with other constants, it loads this build's on the same maps: then
  // has_new_programs(). Changes nothing. kFailedPrecondition: they are not what this build can take over; says why.
  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Adopt(const DataPlaneSpec& spec, const std::string& folder,
                                                                const std::string& program_folder,
                                                                const PinnedDataPlane& pinned);
  ~KernelDataPlane() override;

  // Every map that is not pinned there yet.
  absl::Status PinMaps(const std::string& folder);
  // Makes the folder, which must not exist.
  absl::Status PinPrograms(const std::string& program_folder);
  absl::StatusOr<PinnedDataPlane> Describe() const;
  bool has_new_programs() const { return adopted_programs_.empty(); }
  // Number of the programs that this process brings along.
  static uint64_t Build();

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
  absl::Status HedgeUntil(uint64_t until_ns) override;

  // Run time and count of each program are kept by the kernel while this descriptor is open (BPF_ENABLE_STATS).
  absl::Status EnableRunTimeStats();

  // For packet tests: maps and programs as they are.
  proxy_bpf* skeleton() { return skeleton_; }

 private:
  explicit KernelDataPlane(const DataPlaneSpec& spec) : spec_(spec) {}

  static absl::StatusOr<std::unique_ptr<KernelDataPlane>> Open(const DataPlaneSpec& spec);
  void SetSizes();
  void SetLoadConfig();
  absl::Status LoadObject();
  absl::Status TakeMap(bpf_map* map, const std::string& folder, const PinnedDataPlane& pinned);
  bool TakePrograms(const std::string& program_folder);
  std::string LoadConfigBytes() const;
  int ProgramFd(const bpf_program* program) const;
  void NoteLayouts();
  void NumberBackends();
  absl::Status MapMemory();
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
  std::map<std::string, uint64_t> layouts_;  // by map
  std::map<std::string, net::UniqueFd> adopted_programs_;  // by name; empty: the skeleton's own are loaded
  std::vector<uint32_t> first_backend_ids_;  // by service
  MappedArray services_, requests_, wheel_, backend_states_, service_states_, tuning_;
  std::shared_ptr<MappedArray> trace_;  // shared with whoever traces
  int stats_fd_ = -1;
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_
