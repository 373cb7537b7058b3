// SPDX-License-Identifier: Apache-2.0
//
// The object of the kernel programs: loaded with its maps' sizes and its constants, or taken over from where an earlier
// process pinned it (kernel_object_adopt.cc), with the memory of the maps that are mapped. It attaches nothing (net
// does) and owns every descriptor: what is neither attached nor pinned is gone with it. ConfigWriter, KernelPolicy and
// KernelReader write and read what stands in the maps.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "proxy/api/record.pb.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/kernel_part/kernel_maps.h"

struct proxy_bpf;
struct bpf_map;
struct bpf_program;

namespace hedgerow {

// The mapped maps, shared with the programs.
struct KernelMemory {
  volatile hr_wheel& Wheel() const { return *wheels.At<hr_wheel>(0); }
  volatile hr_service_policy& Policy(uint32_t service) const { return *policies.At<hr_service_policy>(service); }
  // The published generation; the other one is the spare.
  uint32_t Published() const { return static_cast<uint32_t>(live->At<hr_live>(0)->published) & 1; }
  hr_service_config Config(uint32_t generation, uint32_t service) const;

  MappedArray configs, policies, requests, wheels, backend_states, service_states, backend_loads, tuning;
  std::shared_ptr<MappedArray> live;  // shared with the open trace
};

class KernelObject {
 public:
  // `spec` has ids. kInvalidArgument: a limit of it is wrong; kPermissionDenied: capabilities; kInternal with the tail
  // of the verifier's log: the kernel refused a program; kResourceExhausted: a map cannot be made, with its name and
  // bytes.
  static absl::StatusOr<std::unique_ptr<KernelObject>> Load(const DataPlaneSpec& spec);
  // Takes over the maps that are pinned in `folder`, with all that is in them, and the programs in `program_folder`.
  // Where those are of another build, or were loaded with other constants, it loads this build's on the same maps: then
  // has_new_programs(). Changes nothing. kFailedPrecondition: they are not what this build can take over; says why.
  static absl::StatusOr<std::unique_ptr<KernelObject>> Adopt(const DataPlaneSpec& spec, const std::string& folder,
                                                             const std::string& program_folder,
                                                             const v1::KernelRecord& pinned);
  ~KernelObject();

  // Every map that is not pinned there yet.
  absl::Status PinMaps(const std::string& folder);
  // Makes the folder, which must not exist.
  absl::Status PinPrograms(const std::string& program_folder);
  // Pins maps and programs again whose pins were removed from outside; how many.
  absl::StatusOr<int> RestorePins(const std::string& folder, const std::string& program_folder);
  // Fills in what is pinned, as the daemon that takes it over must find it.
  absl::Status Describe(v1::KernelRecord& record) const;
  bool has_new_programs() const { return adopted_programs_.empty(); }
  // On which ports programs with these constants (KernelRecord.load_config) await announcements.
  static std::set<uint32_t> AwaitedPorts(const std::string& load_config);
  // The random number by which the programs know the proxy's own packets; only root may know it.
  uint64_t SelfTestTag() const;
  // Number of the programs that this process brings along.
  static uint64_t Build();

  // Those of kHooks.
  std::vector<ProgramInfo> Programs() const;
  // Runs the control program, which alone changes the leader map. kInternal: it refused.
  absl::Status Control(hr_control_operation operation, uint32_t service, uint32_t leader = 0,
                       uint64_t sequence = 0) const;
  // Restarts a clock whose packet was lost while no client sends; false = it was fine.
  absl::StatusOr<bool> CheckClock() const;

  const DataPlaneRoom& room() const { return room_; }
  const KernelMemory& memory() const { return memory_; }
  proxy_bpf* skeleton() const { return skeleton_; }

 private:
  KernelObject() = default;

  static absl::StatusOr<std::unique_ptr<KernelObject>> Open(const DataPlaneSpec& spec);
  void SetLoadConfig(const DataPlaneSpec& spec);
  absl::Status LoadPrograms();
  absl::Status MapMemory();
  absl::Status TakeMap(bpf_map* map, const std::string& folder, const v1::KernelRecord& pinned);
  bool TakePrograms(const std::string& program_folder);
  std::string LoadConfigBytes() const;
  int ProgramFd(const bpf_program* program) const;
  void NoteLayouts();

  proxy_bpf* skeleton_ = nullptr;
  KernelMemory memory_;
  DataPlaneRoom room_;
  std::map<std::string, uint64_t> layouts_;                // by map
  std::map<std::string, net::UniqueFd> adopted_programs_;  // by name; empty: the skeleton's own are loaded
};

}  // namespace hedgerow
