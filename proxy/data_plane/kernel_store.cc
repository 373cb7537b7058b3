// SPDX-License-Identifier: Apache-2.0
//
// Every single write of a reload to what the programs see. The packet tests send packets before each (OnWrite).
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy.skel.h"

namespace hedgerow {

absl::Status KernelDataPlane::Step(absl::string_view what) const {
  return before_write_ == nullptr ? absl::OkStatus() : before_write_(what);
}

absl::Status KernelDataPlane::Put(bpf_map* map, const void* key, const void* value) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? PutElement(map, key, value) : status;
}

absl::StatusOr<bool> KernelDataPlane::Delete(bpf_map* map, const void* key) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? DeleteElement(map, key) : status;
}

absl::Status KernelDataPlane::Zero(bpf_map* map, uint32_t index) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? ZeroElement(map, index) : status;
}

absl::Status KernelDataPlane::DeleteExcept(bpf_map* map, const std::set<std::string>& kept) {
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

hr_service_config KernelDataPlane::Config(uint32_t generation, uint32_t id) const {
  hr_service_config config{};
  memcpy(&config, const_cast<const hr_service_config*>(configs_.At<hr_service_config>(HR_CONFIG_ID(generation, id))),
         sizeof(config));
  return config;
}

absl::Status KernelDataPlane::StoreSpare(uint32_t id, const hr_service_config& config) {
  const uint32_t spare = Published() ^ 1;
  if (const hr_service_config there = Config(spare, id); memcmp(&there, &config, sizeof(config)) == 0)
    return absl::OkStatus();
  if (absl::Status status = Step("configs"); !status.ok()) return status;
  memcpy(const_cast<hr_service_config*>(configs_.At<hr_service_config>(HR_CONFIG_ID(spare, id))), &config, sizeof(config));
  return absl::OkStatus();
}

absl::Status KernelDataPlane::Publish(uint32_t generation) {
  if (absl::Status status = Step("generation"); !status.ok()) return status;
  __atomic_store_n(published_.At<uint64_t>(0), generation, __ATOMIC_SEQ_CST);
  return WaitForPrograms();
}

}  // namespace hedgerow
