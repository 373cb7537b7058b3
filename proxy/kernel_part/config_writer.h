// SPDX-License-Identifier: Apache-2.0
//
// The one writer of configurations: goes from one to the next while the programs run (config_writer.cc), and forgets
// what was retired (config_forget.cc). Everything that a reload changes is written here, one step after the other, and
// each step is one that packet tests can look at. Owned by KernelDataPlane.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proxy/kernel_part/kernel_object.h"

namespace hedgerow {

class ConfigWriter {
 public:
  // `spec`: with ids, and what the maps hold or, in newly made ones, are to hold by the first Reconfigure().
  ConfigWriter(KernelObject& object, const DataPlaneSpec& spec)
      : object_(object), memory_(object.memory()), spec_(spec) {}

  const DataPlaneSpec& spec() const { return spec_; }
  // Another configuration, while the programs run: `next` has ids. `let_traffic_in` is called when what is added works
  // and before anything that goes is touched. kInvalidArgument: `next` itself is wrong; nothing is changed. After any
  // other error, as after a kill, the maps may hold some of it: a Reconfigure to any configuration, with the same ids
  // for the same things, puts that right.
  absl::Status Reconfigure(
      const DataPlaneSpec& next, const std::function<absl::Status()>& let_traffic_in = [] { return absl::OkStatus(); });
  // The spec's backends as they are, reached by other interfaces: one store for each. Requests that wait and were sent
  // before go to the leader once more, where it is among them. `now_ns`: CLOCK_MONOTONIC.
  absl::Status MoveBackends(const DataPlaneSpec& next, int64_t now_ns);
  // By which uplink the route to a VIP leads; 0: by the proxy interface. NotFound: no
  // service has this VIP.
  absl::Status RouteVip(const std::string& vip, uint32_t uplink_ifindex);
  // The first HR_MAX_OWN_ADDRESSES of them.
  absl::Status SetOwnAddresses(const std::set<std::string>& addresses);
  // Does a request still refer to these places (a mask) of a service?
  bool IsKnown(uint32_t service, uint32_t places) const;
  // What was retired, when no request refers to it: the flows of its last packets go, and all that it was.
  absl::Status Forget(const std::vector<RetiredService>& services, const std::vector<RetiredBackend>& backends);

  // Called before each single write to what the programs see; an error ends the work there, as the daemon's death
  // would. For packet tests, which send packets at every one of these moments.
  using BeforeWrite = std::function<absl::Status(absl::string_view what)>;
  void OnWrite(BeforeWrite before_write) { before_write_ = std::move(before_write); }

 private:
  // The steps of a reload.
  absl::Status Fill(const DataPlaneSpec& next);
  absl::Status OpenServices(const DataPlaneSpec& next, std::set<uint32_t>& opened);
  absl::Status GoBack(uint32_t generation);
  absl::Status Follow(const std::set<uint32_t>& opened);
  absl::Status FollowOne(const ServiceSpec& service);
  absl::Status FollowChange(uint32_t id, bool forget);
  absl::Status Close(const DataPlaneSpec& spec);
  uint64_t ShortestDelayNs(const DataPlaneSpec& spec) const;

  absl::Status PutBackend(const ServiceSpec& spec, const BackendSpec& backend);
  absl::Status PutCluster(const ClusterSpec& spec);
  absl::Status ForgetFlows(const std::vector<RetiredService>& services, const std::vector<RetiredBackend>& backends);
  absl::Status ClearConfigs(const std::vector<RetiredService>& services);
  absl::Status ClearService(uint32_t id);
  absl::Status ClearBackend(uint32_t id);

  // Each single write.
  absl::Status Step(absl::string_view what) const;
  absl::Status Put(bpf_map* map, const void* key, const void* value);
  absl::StatusOr<bool> Delete(bpf_map* map, const void* key);
  absl::Status DeleteExcept(bpf_map* map, const std::set<std::string>& kept);
  absl::Status Zero(bpf_map* map, uint32_t index);
  absl::Status StoreSpare(uint32_t id, const hr_service_config& config);
  absl::Status Publish(uint32_t generation);
  absl::Status ConfigureLeader(uint32_t id, bool forget);

  KernelObject& object_;
  const KernelMemory& memory_;
  DataPlaneSpec spec_;
  BeforeWrite before_write_;
};

}  // namespace hedgerow
