// SPDX-License-Identifier: Apache-2.0
//
// KernelDataPlane from one configuration to the next, while the programs run. No lock holds the programs off, so each
// write must leave a state that is right for a packet which meets it, and for a packet whose program has read something
// before the write and reads the rest after it. Why that holds:
//
// - A service or backend keeps its id for as long as anything in flight may refer to it, because requests, parked
//   copies, flows, fragments and the scoreboard name it by id only. What a reload removes is *retired*: its elements
//   stay as they are, so that what was sent there is answered, dropped or hedged as if nothing had been, and only the
//   ways to it go (its VIP out of `vips`, its place into `absent`). When nothing refers to it any more it is forgotten
//   (kernel_forget.cc), and its ids are free for others.
// - What a reload adds is written from the inside out: the backends, the service with the new places unpublished
//   (`absent`), the ways back from the backends (`backend_ids`, by which the programs recognize replies and
//   announcements), the places, the leader, and at last the VIP by which the splitter finds the service. So no request
//   goes to a backend whose reply the programs would not recognize, and no leader's place leads to another backend.
// - A service that stays is changed word by word (kernel_store.cc). Most words stand alone: budget, delay, deadline,
//   each read once for a decision. An old one beside a new one is a setting that was in force a moment ago, or will be.
//   Places do not stand alone. A place is published after its id stands in `backends`, and after a grace period, so
//   that no program has read the id before and the place after. An id changes only in a place that no program can
//   reach.
// - First the added backends are published, then a backend that stays is made the leader, then the removed ones are
//   unpublished: at any time there is a leader, and a backend to hedge to, that one of the two configurations names. (In
//   the opposite order the requests of a moment would go to a leader that is removed because it is dead and, where one
//   backend alone is left, to no other.) The control program decides under the leader map's lock, so an announcement
//   that comes at the same time is neither lost nor undone; a removed leader's announcement that was under way is undone
//   after a grace period. A removed backend that is drained stays drained until it is unpublished.
// - A profile's words belong together. They change while requests are forwarded unparked, between two grace periods.
// - An element of a hash map that is given up may be used again at once, under a program that has just found it:
//   kernel_maps.h (PutElement) says what is done about that. A VIP that goes from one service to another is exchanged
//   in one step; it is never absent.
// - A daemon that is killed between two of these writes leaves some old and some new words, each in one of the states
//   above. Its record says which configuration it had begun with, and what an administrator had chosen until then
//   (Choices). The next daemon goes back to the configuration before, and from there to the one that it was given
//   (proxy/daemon/proxy_reload.cc).
//
// What cannot be at all is found before anything is written. Called by ProxyInstance::Reconfigure.
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

absl::Status CheckCluster(const ServiceSpec& spec) {
  if (!spec.cluster.has_value()) return absl::OkStatus();
  if (spec.cluster->id == 0 || spec.cluster->announce_port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("service ", spec.name, ": a cluster has an id and an announce port"));
  }
  if (spec.cluster->key.k0 == 0 && spec.cluster->key.k1 == 0)
    return absl::InvalidArgumentError(absl::StrCat("service ", spec.name, ": the cluster's key was not read"));
  return absl::OkStatus();
}

absl::Status CheckService(const ServiceSpec& spec) {
  if (spec.backends.empty() || spec.backends.size() > HR_MAX_BACKENDS_PER_SERVICE ||
      spec.primary >= spec.backends.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "service ", spec.name, ": 1 to ", HR_MAX_BACKENDS_PER_SERVICE, " backends with a primary among them"));
  }
  if (auto vip = ParseEndpoint(spec.vip, spec.port); !vip.ok()) return vip.status();
  for (const BackendSpec& backend : spec.backends)
    if (auto endpoint = ParseEndpoint(backend.address, backend.port); !endpoint.ok()) return endpoint.status();
  return CheckCluster(spec);
}

bool HasVip(const DataPlaneSpec& spec, const hr_endpoint& vip) {
  return std::any_of(spec.services.begin(), spec.services.end(), [&](const ServiceSpec& each) {
    const auto other = ParseEndpoint(each.vip, each.port);
    return other.ok() && memcmp(&*other, &vip, sizeof(vip)) == 0;
  });
}

const ServiceSpec* FindById(const DataPlaneSpec& spec, uint32_t id) {
  const auto found = std::find_if(spec.services.begin(), spec.services.end(),
                                  [id](const ServiceSpec& each) { return each.id == id; });
  return found == spec.services.end() ? nullptr : &*found;
}

}  // namespace

DataPlaneRoom KernelDataPlane::Room() const {
  return {.services = bpf_map__max_entries(skeleton_->maps.service_histograms) / HR_SERVICE_HISTOGRAMS,
          .backends = bpf_map__max_entries(skeleton_->maps.backend_histograms) / HR_BACKEND_HISTOGRAMS};
}

// Assigns ids, in order of appearance, to what has none yet.
absl::Status KernelDataPlane::Number() {
  uint32_t next_service = 0, next_backend = 0;
  for (ServiceSpec& service : spec_.services) {
    if (absl::Status status = CheckService(service); !status.ok()) return status;
    if (service.id == kUnnumbered) service.id = next_service++;
    uint32_t next_slot = 0;
    for (BackendSpec& backend : service.backends) {
      if (backend.id == kUnnumbered) backend.id = next_backend++;
      if (backend.slot == kUnnumbered) backend.slot = next_slot++;
    }
  }
  return absl::OkStatus();
}

// An id that is out of bounds, or that two entries share, would overwrite another entry's elements.
absl::Status KernelDataPlane::CheckNumbers(const DataPlaneSpec& spec) const {
  const DataPlaneRoom room = Room();
  std::set<uint32_t> services, backends;
  for (const ServiceSpec& service : spec.services) {
    if (service.id >= room.services) return absl::InvalidArgumentError("no room for so many services");
    bool unique = services.insert(service.id).second;
    std::set<uint32_t> slots;
    for (const BackendSpec& backend : service.backends) {
      if (backend.id >= room.backends || backend.slot >= HR_MAX_BACKENDS_PER_SERVICE)
        return absl::InvalidArgumentError("no room for so many backends");
      unique = backends.insert(backend.id).second && slots.insert(backend.slot).second && unique;
    }
    if (!unique) return absl::InvalidArgumentError(absl::StrCat("service ", service.name, ": a number twice"));
  }
  return absl::OkStatus();
}

absl::Status KernelDataPlane::Reconfigure(const DataPlaneSpec& next,
                                          const std::vector<RetiredService>& retired) {
  for (const ServiceSpec& service : next.services)
    if (absl::Status status = CheckService(service); !status.ok()) return status;
  if (absl::Status status = CheckNumbers(next); !status.ok()) return status;
  // Whatever the kernel calls it (E2BIG is an invalid argument): from here on something may have changed.
  const absl::Status status = Apply(next, retired);
  return status.ok() ? status : absl::InternalError(status.message());
}

absl::Status KernelDataPlane::Apply(const DataPlaneSpec& next, const std::vector<RetiredService>& retired) {
  // A lap is chosen by the shortest delay of all: while two configurations meet, of both.
  wheel_.At<hr_wheel>(0)->shortest_delay_ns = std::min(ShortestDelayNs(spec_), ShortestDelayNs(next));
  if (absl::Status status = ForgetClusters(next); !status.ok()) return status;
  for (const ServiceSpec& service : next.services)
    if (absl::Status status = FillService(service, FindById(spec_, service.id)); !status.ok()) return status;
  // After the new ones: a VIP may have passed to one of them.
  if (absl::Status status = CloseVips(next, retired); !status.ok()) return status;
  if (absl::Status status = SettleLeaders(next); !status.ok()) return status;
  spec_.services = next.services;
  wheel_.At<hr_wheel>(0)->shortest_delay_ns = ShortestDelayNs(spec_);
  return absl::OkStatus();
}

absl::Status KernelDataPlane::Assume(const DataPlaneSpec& half_done) {
  for (const ServiceSpec& service : half_done.services)
    if (absl::Status status = CheckService(service); !status.ok()) return status;
  if (absl::Status status = CheckNumbers(half_done); !status.ok()) return status;
  spec_.services = half_done.services;
  return absl::OkStatus();
}

// An adaptive delay is what it is at the moment.
uint64_t KernelDataPlane::ShortestDelayNs(const DataPlaneSpec& spec) const {
  uint64_t shortest_ns = ~0ull;
  for (const ServiceSpec& service : spec.services) {
    const uint64_t now_ns = services_.At<hr_service>(service.id)->delay_ns;
    shortest_ns = std::min(shortest_ns, service.adaptive && now_ns != 0 ? now_ns : service.delay_ns);
  }
  return shortest_ns;
}

// Before the next ones': there is room for as many as there may be services.
absl::Status KernelDataPlane::ForgetClusters(const DataPlaneSpec& next) {
  std::set<uint64_t> clusters;
  for (const ServiceSpec& service : next.services)
    if (service.cluster.has_value()) clusters.insert(service.cluster->id);
  bool gone = false;
  for (const ServiceSpec& service : spec_.services) {
    if (!service.cluster.has_value() || clusters.contains(service.cluster->id)) continue;
    const __u64 id = service.cluster->id;
    const auto there = Delete(skeleton_->maps.clusters, &id);
    if (!there.ok()) return there.status();
    gone = gone || *there;
  }
  return gone ? WaitForPrograms() : absl::OkStatus();
}

// A program that opened an announcement while its sender's place was present may accept it after the control program has
// replaced that leader. When all such programs have ended, the control program decides once more.
absl::Status KernelDataPlane::SettleLeaders(const DataPlaneSpec& next) {
  std::vector<const ServiceSpec*> reduced;
  for (const ServiceSpec& service : next.services) {
    const ServiceSpec* before = FindById(spec_, service.id);
    if (before == nullptr || !service.cluster.has_value()) continue;
    const bool loses =
        std::any_of(before->backends.begin(), before->backends.end(), [&](const BackendSpec& old) {
          return std::none_of(service.backends.begin(), service.backends.end(),
                              [&](const BackendSpec& each) { return each.slot == old.slot; });
        });
    if (loses) reduced.push_back(&service);
  }
  if (reduced.empty()) return absl::OkStatus();
  if (absl::Status status = WaitForPrograms(); !status.ok()) return status;
  for (const ServiceSpec* service : reduced) {
    const auto absent = services_.At<hr_service>(service->id)->absent;
    if (absl::Status status = ConfigureLeader(*service, absent, /*forget=*/false); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// The splitter finds the retired ones no longer. What they are stays.
absl::Status KernelDataPlane::CloseVips(const DataPlaneSpec& next, const std::vector<RetiredService>& retired) {
  bool gone = false;
  for (const RetiredService& service : retired) {
    const auto vip = ParseEndpoint(service.vip, service.port);
    if (!vip.ok()) return vip.status();
    if (HasVip(next, *vip)) continue;
    const auto there = Delete(skeleton_->maps.vips, &*vip);
    if (!there.ok()) return there.status();
    gone = gone || *there;
  }
  return gone ? WaitForPrograms() : absl::OkStatus();
}

}  // namespace hedgerow
