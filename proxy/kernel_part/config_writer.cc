// SPDX-License-Identifier: Apache-2.0
//
// ConfigWriter from one configuration to the next, while the programs run. Requests, parked copies, flows and the
// scoreboard name services and backends by id only, so what stays keeps its id, and what goes is retired: its elements
// stay as they are until nothing refers to them (config_forget.cc).
//
//   1. Elements of what is added: nothing refers to them yet.
//   2. A grace period: programs may still read the spare generation if an earlier reload was cut short.
//   3. The spare generation is filled with all services, also the retired ones, and published by one store. After
//   another
//      grace period no program decides by the configuration before. The leader map may still name a removed place,
//      which counts as absent (choose.h).
//   4. Added services are opened: their leader, their policy, their VIP. Then the caller lets traffic in (routes). An
//   error
//      up to here publishes the generation before again, and nothing that was there has changed.
//   5. Leaders and policies follow the configuration, what it no longer has is closed, and the other generation becomes
//      the same. An error here, or a kill anywhere, leaves the rest to the next reload, whichever configuration that
//      one has.
//
// Between two writes every packet meets one of the two configurations. An element of a hash map that is given up may be
// used again at once, under a program that has just found it: see PutElement (kernel_maps.h).
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "proxy/kernel_part/config_spec.h"
#include "proxy/kernel_part/config_writer.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

const ServiceSpec* FindById(const DataPlaneSpec& spec, uint32_t id) {
  const auto found =
      std::find_if(spec.services.begin(), spec.services.end(), [id](const ServiceSpec& each) { return each.id == id; });
  return found == spec.services.end() ? nullptr : &*found;
}

template <typename Key>
std::string BytesOf(const Key& key) {
  return std::string(reinterpret_cast<const char*>(&key), sizeof(key));
}

}  // namespace

absl::Status ConfigWriter::Reconfigure(const DataPlaneSpec& next, const std::function<absl::Status()>& let_traffic_in) {
  if (absl::Status status = CheckSpec(next, object_.room()); !status.ok()) return status;
  const uint32_t generation = memory_.Published();
  std::set<uint32_t> opened;
  absl::Status status = Fill(next);
  if (status.ok()) status = Publish(generation ^ 1);
  if (status.ok()) status = OpenServices(next, opened);
  if (status.ok()) status = let_traffic_in();
  if (status.ok()) {
    spec_.services = next.services;
    status = Follow(opened);
  } else {
    GoBack(generation).IgnoreError();  // the next reload does what this could not
  }
  // Whatever the kernel calls it (E2BIG is an invalid argument): something may have changed.
  return status.ok() ? status : absl::InternalError(status.message());
}

absl::Status ConfigWriter::RouteVip(const std::string& vip, uint32_t uplink_ifindex) {
  bpf_map* map = object_.skeleton()->maps.vip_addresses;
  const auto key = ParseEndpoint(vip, /*port=*/0);
  if (!key.ok()) return key.status();
  hr_vip entry{};
  if (bpf_map_lookup_elem(bpf_map__fd(map), &key->address, &entry) != 0)
    return absl::NotFoundError(absl::StrCat("the kernel part knows no VIP ", vip));
  entry.uplink_ifindex = uplink_ifindex;
  return Put(map, &key->address, &entry);
}

absl::Status ConfigWriter::SetOwnAddresses(const std::set<std::string>& addresses) {
  bpf_map* map = object_.skeleton()->maps.own_addresses;
  std::set<std::string> keys;
  for (const std::string& address : addresses) {
    const auto key = ParseEndpoint(address, /*port=*/0);
    if (!key.ok()) return key.status();
    if (keys.size() < HR_MAX_OWN_ADDRESSES)
      keys.emplace(reinterpret_cast<const char*>(&key->address), sizeof(key->address));
  }
  if (const absl::Status status = DeleteExcept(map, keys); !status.ok()) return status;
  const uint32_t known = 1;
  for (const std::string& each : keys) {
    if (const absl::Status status = Put(map, each.data(), &known); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ConfigWriter::MoveBackends(const DataPlaneSpec& next, int64_t now_ns) {
  if (absl::Status status = CheckSpec(next, object_.room()); !status.ok()) return status;
  uint64_t services = 0;
  for (const ServiceSpec& service : next.services) {
    const ServiceSpec* before = FindById(spec_, service.id);
    uint32_t moved = 0;
    for (const BackendSpec& backend : service.backends) {
      if (absl::Status status = PutBackend(service, backend); !status.ok()) return status;
      const bool same = before != nullptr &&
                        std::any_of(before->backends.begin(), before->backends.end(), [&](const BackendSpec& each) {
                          return each.id == backend.id && each.uplink_ifindex == backend.uplink_ifindex;
                        });
      if (!same) moved |= 1u << backend.slot;
    }
    if (moved == 0) continue;
    volatile hr_service_policy& policy = memory_.Policy(service.id);
    policy.moved = moved;
    policy.moved_ns = static_cast<uint64_t>(now_ns);
    services |= 1ull << service.id;
  }
  // The clock's next laps give the leaders again what may have been lost (handover.bpf.h).
  __atomic_fetch_or(&memory_.Wheel().handover, services, __ATOMIC_SEQ_CST);
  spec_.services = next.services;
  return absl::OkStatus();
}

absl::Status ConfigWriter::GoBack(uint32_t generation) {
  std::set<uint32_t> opened;
  absl::Status status = memory_.Published() == generation ? absl::OkStatus() : Publish(generation);
  if (status.ok()) status = OpenServices(spec_, opened);
  return status.ok() ? Close(spec_) : status;
}

absl::Status ConfigWriter::Fill(const DataPlaneSpec& next) {
  // A lap is chosen by the shortest delay of all: while two configurations meet, of both.
  memory_.Wheel().shortest_delay_ns = std::min(ShortestDelayNs(spec_), ShortestDelayNs(next));
  for (const ServiceSpec& service : next.services) {
    for (const BackendSpec& backend : service.backends)
      if (absl::Status status = PutBackend(service, backend); !status.ok()) return status;
    if (!service.cluster.has_value()) continue;
    if (absl::Status status = PutCluster(*service.cluster); !status.ok()) return status;
  }
  if (absl::Status status = WaitForPrograms(); !status.ok()) return status;
  for (uint32_t id = 0; id < HR_MAX_SERVICES; ++id) {
    const hr_service_config published = memory_.Config(memory_.Published(), id);
    const hr_service_config spare = memory_.Config(memory_.Published() ^ 1, id);
    // Left by a reload that was cut short, and about to be overwritten: what it had published is followed first.
    if (memcmp(&spare, &published, sizeof(spare)) != 0)
      if (absl::Status status = FollowChange(id, /*forget=*/false); !status.ok()) return status;
    const ServiceSpec* spec = FindById(next, id);
    const hr_service_config config = spec == nullptr ? published : MakeConfig(next, *spec, published);
    if (absl::Status status = StoreSpare(id, config); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A VIP may pass from a retired service to an added one, in one step.
absl::Status ConfigWriter::OpenServices(const DataPlaneSpec& next, std::set<uint32_t>& opened) {
  const auto& maps = object_.skeleton()->maps;
  for (const ServiceSpec& service : next.services) {
    const hr_endpoint vip = *ParseEndpoint(service.vip, service.port);
    // Of several services on one VIP the last one says whose pings are answered. Its route stays as it is.
    hr_vip entry{};
    bpf_map_lookup_elem(bpf_map__fd(maps.vip_addresses), &vip.address, &entry);
    entry.service = service.id;
    if (absl::Status status = Put(maps.vip_addresses, &vip.address, &entry); !status.ok()) return status;
    uint32_t open = 0;
    if (bpf_map_lookup_elem(bpf_map__fd(maps.vips), &vip, &open) == 0 && open == service.id) continue;
    absl::Status status = FollowOne(service);
    if (status.ok()) status = Put(maps.vips, &vip, &service.id);
    if (!status.ok()) return status;
    opened.insert(service.id);
  }
  return absl::OkStatus();
}

absl::Status ConfigWriter::Follow(const std::set<uint32_t>& opened) {
  for (const ServiceSpec& service : spec_.services) {
    if (opened.contains(service.id)) continue;
    if (absl::Status status = FollowOne(service); !status.ok()) return status;
  }
  memory_.Wheel().shortest_delay_ns = ShortestDelayNs(spec_);
  return Close(spec_);
}

absl::Status ConfigWriter::FollowOne(const ServiceSpec& service) {
  const absl::StatusOr<hr_leader_view> leader = ReadLeader(object_.skeleton()->maps.leaders, service.id);
  if (!leader.ok()) return leader.status();
  // Whatever this cluster announces from now on could be below what stands there.
  const bool out_of_order = service.cluster.has_value() && leader->cluster_epoch > service.cluster->epoch;
  if (absl::Status status = FollowChange(service.id, out_of_order); !status.ok()) return status;
  volatile hr_service_policy& policy = memory_.Policy(service.id);
  const uint32_t preferred = policy.preferred, present = memory_.Config(memory_.Published(), service.id).present;
  policy.drained = policy.drained & present;
  if (service.config.spreads != HR_SPREAD_FASTEST || (present << 1 >> preferred & 1) == 0) policy.preferred = 0;
  // An adaptive delay is SetDelay's to write.
  if (!service.adaptive || policy.delay_ns == 0) policy.delay_ns = service.config.delay_ns;
  return absl::OkStatus();
}

// What follows from the difference of the generations, so that a later reload finds what this one has not come to.
// `forget`: what was announced is of an epoch that is not to come any more; another cluster's is forgotten in any case.
absl::Status ConfigWriter::FollowChange(uint32_t id, bool forget) {
  const hr_service_config now = memory_.Config(memory_.Published(), id);
  const hr_service_config before = memory_.Config(memory_.Published() ^ 1, id);
  absl::Status status = ConfigureLeader(id, forget || now.cluster_id != before.cluster_id);
  if (status.ok()) status = Step("policies");
  if (!status.ok()) return status;
  // What an administrator has switched holds unless the configuration itself has changed.
  const uint32_t changed = now.switches ^ before.switches;
  volatile hr_service_policy& policy = memory_.Policy(id);
  if (changed != 0) policy.switches = (policy.switches & ~changed) | (now.switches & changed);
  return absl::OkStatus();
}

// Closes what `spec` does not have: from here on the splitter finds retired services no longer. What they are stays.
absl::Status ConfigWriter::Close(const DataPlaneSpec& spec) {
  std::set<std::string> vips, clusters;
  for (const ServiceSpec& service : spec.services) {
    vips.insert(BytesOf(*ParseEndpoint(service.vip, service.port)));
    if (service.cluster.has_value()) clusters.insert(BytesOf(service.cluster->id));
  }
  absl::Status status = DeleteExcept(object_.skeleton()->maps.vips, vips);
  if (status.ok()) status = DeleteExcept(object_.skeleton()->maps.clusters, clusters);
  for (uint32_t id = 0; id < HR_MAX_SERVICES && status.ok(); ++id)
    status = StoreSpare(id, memory_.Config(memory_.Published(), id));
  return status;
}

// An adaptive delay is what it is at the moment.
uint64_t ConfigWriter::ShortestDelayNs(const DataPlaneSpec& spec) const {
  uint64_t shortest_ns = ~0ull;
  for (const ServiceSpec& service : spec.services) {
    const uint64_t now_ns = memory_.Policy(service.id).delay_ns;
    shortest_ns = std::min<uint64_t>(shortest_ns, service.adaptive && now_ns != 0 ? now_ns : service.config.delay_ns);
  }
  return shortest_ns;
}

}  // namespace hedgerow
