// SPDX-License-Identifier: Apache-2.0
//
// The data plane in the kernel: loads the embedded BPF object, fills its maps from a DataPlaneSpec, and reads them
// back; pins all of it, and takes over what an earlier process pinned (kernel_adopt.cc). It attaches nothing (net does)
// and owns every descriptor: what is neither attached nor pinned is gone with it. One owner thread.
#ifndef HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_
#define HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "net/unique_fd.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/data_plane/kernel_maps.h"

struct proxy_bpf;
struct bpf_map;
struct bpf_program;

namespace hedgerow {

// What is pinned, as the daemon that takes it over must find it. Kept in the instance's record.
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
  // The data plane under another configuration, while the programs run: `next` is numbered. `let_traffic_in` is called when
  // what is added works and before anything that goes is touched. kInvalidArgument: `next` itself is wrong; nothing is
  // changed. After any other error, as after a kill, the maps may hold some of it: a Reconfigure to any configuration,
  // with the same numbers for the same things, puts that right.
  absl::Status Reconfigure(
      const DataPlaneSpec& next, const std::function<absl::Status()>& let_traffic_in = [] { return absl::OkStatus(); });
  // Does a request still refer to these places (a mask) of a service?
  bool IsKnown(uint32_t service, uint32_t places) const;
  // What was retired, when no request refers to it: the flows of its last packets go, and all that it was.
  absl::Status Forget(const std::vector<RetiredService>& services, const std::vector<RetiredBackend>& backends);
  // Called before each single write to what the programs see; an error ends the work there, as the daemon's death
  // would. For packet tests, which send packets at every one of these moments.
  using BeforeWrite = std::function<absl::Status(absl::string_view what)>;
  void OnWrite(BeforeWrite before_write) { before_write_ = std::move(before_write); }
  DataPlaneRoom Room() const;
  const DataPlaneSpec& spec() const { return spec_; }  // numbered
  bool has_new_programs() const { return adopted_programs_.empty(); }
  // On which ports programs with these constants (PinnedDataPlane::load_config) await announcements.
  static std::set<uint32_t> AwaitedPorts(const std::string& load_config);
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
  absl::Status SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) override;
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
  absl::Status SetSizes();
  void SetLoadConfig();
  absl::Status LoadObject();
  absl::Status TakeMap(bpf_map* map, const std::string& folder, const PinnedDataPlane& pinned);
  bool TakePrograms(const std::string& program_folder);
  std::string LoadConfigBytes() const;
  int ProgramFd(const bpf_program* program) const;
  void NoteLayouts();
  absl::Status Number();
  absl::Status MapMemory();
  static absl::StatusOr<hr_service_config> MakeConfig(const ServiceSpec& spec, const hr_service_config& before);
  absl::Status PutBackend(const ServiceSpec& spec, const BackendSpec& backend);
  absl::Status PutCluster(const ClusterSpec& spec);
  uint32_t Published() const { return static_cast<uint32_t>(*published_.At<uint64_t>(0)) & 1; }
  hr_service_config Config(uint32_t generation, uint32_t id) const;
  // Each write of a reload: kernel_store.cc.
  absl::Status Step(absl::string_view what) const;
  absl::Status Put(bpf_map* map, const void* key, const void* value);
  absl::StatusOr<bool> Delete(bpf_map* map, const void* key);
  absl::Status DeleteExcept(bpf_map* map, const std::set<std::string>& kept);
  absl::Status Zero(bpf_map* map, uint32_t index);
  absl::Status StoreSpare(uint32_t id, const hr_service_config& config);
  absl::Status Publish(uint32_t generation);
  // The steps of a reload: kernel_reconfigure.cc.
  absl::Status Fill(const DataPlaneSpec& next);
  absl::Status OpenServices(const DataPlaneSpec& next, std::set<uint32_t>& opened);
  absl::Status GoBack(uint32_t generation);
  absl::Status Follow(const std::set<uint32_t>& opened);
  absl::Status FollowOne(const ServiceSpec& service);
  absl::Status FollowChange(uint32_t id, bool forget);
  absl::Status Close(const DataPlaneSpec& spec);
  absl::Status ConfigureLeader(uint32_t id, bool forget);
  absl::StatusOr<hr_leader_view> ReadLeader(uint32_t service_id) const;
  absl::Status CheckNumbers(const DataPlaneSpec& spec) const;
  uint64_t ShortestDelayNs(const DataPlaneSpec& spec) const;
  absl::Status ForgetFlows(const std::vector<RetiredService>& services,
                           const std::vector<RetiredBackend>& backends);
  absl::Status ClearConfigs(const std::vector<RetiredService>& services);
  absl::Status ClearService(uint32_t id);
  absl::Status ClearBackend(uint32_t id);
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
  MappedArray configs_, published_, policies_, requests_, wheel_, backend_states_, service_states_, tuning_;
  std::shared_ptr<MappedArray> trace_;  // shared with the open trace
  int stats_fd_ = -1;
  BeforeWrite before_write_;
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_KERNEL_DATA_PLANE_H_
