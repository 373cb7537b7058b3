// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/kernel_keys.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>

namespace hedgerow::offload {
namespace {

absl::Status Put(int map_fd, uint32_t id, const hr_node_key& key) {
  if (bpf_map_update_elem(map_fd, &id, &key, BPF_ANY) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "write a cluster key for the kernel programs");
}

std::vector<uint32_t> Ids(int map_fd) {
  std::vector<uint32_t> ids;
  uint32_t id = 0;
  for (const uint32_t* from = nullptr; bpf_map_get_next_key(map_fd, from, &id) == 0; from = &ids.back())
    ids.push_back(id);
  return ids;
}

}  // namespace

// In this order no program seals with a key that the others do not open.
absl::Status WriteKeys(int map_fd, const std::vector<hr_node_key>& keys) {
  for (const hr_node_key& key : keys) {
    if (absl::Status status = Put(map_fd, key.id, key); !status.ok()) return status;
  }
  if (!keys.empty()) {
    if (absl::Status status = Put(map_fd, HR_NODE_KEY_SEALS, keys.front()); !status.ok()) return status;
  }
  for (const uint32_t id : Ids(map_fd)) {
    const bool kept = std::any_of(keys.begin(), keys.end(), [id](const hr_node_key& key) { return key.id == id; });
    if (id != HR_NODE_KEY_SEALS && !kept) bpf_map_delete_elem(map_fd, &id);
  }
  return absl::OkStatus();
}

}  // namespace hedgerow::offload
