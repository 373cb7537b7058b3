// SPDX-License-Identifier: Apache-2.0
//
// ConfigWriter's single writes to what the programs see. The packet tests send packets before each (OnWrite).
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstring>

#include "net/netlink/link.h"
#include "proxy/kernel_part/config_writer.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy.skel.h"

namespace hedgerow {

absl::Status ConfigWriter::Step(absl::string_view what) const {
  return before_write_ == nullptr ? absl::OkStatus() : before_write_(what);
}

absl::Status ConfigWriter::Put(bpf_map* map, const void* key, const void* value) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? PutElement(map, key, value) : status;
}

absl::StatusOr<bool> ConfigWriter::Delete(bpf_map* map, const void* key) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? DeleteElement(map, key) : status;
}

absl::Status ConfigWriter::Zero(bpf_map* map, uint32_t index) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? ZeroElement(map, index) : status;
}

absl::Status ConfigWriter::DeleteExcept(bpf_map* map, const std::set<std::string>& kept) {
  const size_t bytes = bpf_map__key_size(map);
  std::vector<std::string> gone;
  std::string key(bytes, '\0'), next(bytes, '\0');
  for (const void* from = nullptr; bpf_map_get_next_key(bpf_map__fd(map), from, next.data()) == 0; from = key.data()) {
    key = next;
    if (!kept.contains(key)) gone.push_back(key);
  }
  for (const std::string& each : gone) {
    if (const auto there = Delete(map, each.data()); !there.ok()) return there.status();
  }
  return gone.empty() ? absl::OkStatus() : WaitForPrograms();
}

absl::Status ConfigWriter::StoreSpare(uint32_t id, const hr_service_config& config) {
  const uint32_t spare = memory_.Published() ^ 1;
  if (const hr_service_config there = memory_.Config(spare, id); memcmp(&there, &config, sizeof(config)) == 0)
    return absl::OkStatus();
  if (absl::Status status = Step("configs"); !status.ok()) return status;
  volatile hr_service_config* element = memory_.configs.At<hr_service_config>(HR_CONFIG_ID(spare, id));
  memcpy(const_cast<hr_service_config*>(element), &config, sizeof(config));
  return absl::OkStatus();
}

absl::Status ConfigWriter::Publish(uint32_t generation) {
  if (absl::Status status = Step("generation"); !status.ok()) return status;
  __atomic_store_n(&memory_.live->At<hr_live>(0)->published, generation, __ATOMIC_SEQ_CST);
  return WaitForPrograms();
}

// The control program decides under the leader map's lock, so that an announcement that comes at the same time is
// neither lost nor undone.
absl::Status ConfigWriter::ConfigureLeader(uint32_t id, bool forget) {
  if (absl::Status status = Step("leaders"); !status.ok()) return status;
  return object_.Control(HR_CONTROL_CONFIGURE, id, /*leader=*/0, /*sequence=*/forget ? 1 : 0);
}

absl::Status ConfigWriter::PutBackend(const ServiceSpec& spec, const BackendSpec& backend) {
  const hr_endpoint endpoint = *ParseEndpoint(backend.address, backend.port);
  hr_backend entry{};
  entry.address = endpoint.address;
  entry.port_be = endpoint.port_be;
  entry.service = static_cast<uint16_t>(spec.id);
  entry.uplink_ifindex = backend.uplink_ifindex;
  entry.also_ifindex = backend.also_ifindex;
  entry.index = static_cast<uint8_t>(backend.slot);
  // Never taken back: its last answers may come when it is retired.
  if (backend.uplink_ifindex == static_cast<uint32_t>(net::kLoopbackIfindex)) memory_.Wheel().backends_here = 1;
  // Of a backend that the map already holds at most the uplinks change, each of which is one word.
  const absl::Status status = Put(object_.skeleton()->maps.backends, &backend.id, &entry);
  // By this entry the programs recognize the backend's replies and announcements.
  return status.ok() ? Put(object_.skeleton()->maps.backend_ids, &endpoint, &backend.id) : status;
}

absl::Status ConfigWriter::PutCluster(const ClusterSpec& spec) {
  hr_cluster cluster{};
  for (size_t i = 0; i < spec.keys.size() && i < HR_CLUSTER_KEYS; ++i) {
    cluster.keys[i] = spec.keys[i];
    cluster.key_ids[i] = hr_key_id(&spec.keys[i]);
  }
  cluster.epoch = spec.epoch;
  const __u64 id = spec.id;
  return Put(object_.skeleton()->maps.clusters, &id, &cluster);
}

}  // namespace hedgerow
