// SPDX-License-Identifier: Apache-2.0
#include "dst/driver/roles.h"

#include <cstddef>

#include <bpf/bpf.h>

#include "absl/strings/str_cat.h"
#include "bpf/node/raft/node_abi.h"
#include "net/fnv.h"
#include "net/unique_fd.h"

namespace hedgerow::dst {

std::string PinsOf(uint32_t node, const std::string& data_dir) {
  return absl::StrCat("/sys/fs/bpf/hedgerow/node-", node, "-", absl::Hex(net::Fnv1a(data_dir), absl::kZeroPad8));
}

std::optional<Standing> StandingOf(uint32_t node, const std::string& data_dir) {
  const std::string path = absl::StrCat(PinsOf(node, data_dir), "/node");
  const net::UniqueFd map(bpf_obj_get(path.c_str()));
  if (!map.valid()) return std::nullopt;
  // As state.bpf.h has it, which is for BPF alone: the lock's 4 bytes and 4 of padding, then the state.
  constexpr size_t kBeforeShared_bytes = 8;
  struct {
    uint8_t before[kBeforeShared_bytes];
    hr_node_shared shared;
  } element{};
  static_assert(offsetof(decltype(element), shared) == kBeforeShared_bytes);
  bpf_map_info info{};
  uint32_t info_bytes = sizeof(info);
  const bool fits = bpf_obj_get_info_by_fd(map.get(), &info, &info_bytes) == 0 && info.value_size == sizeof(element);
  const uint32_t key = 0;
  if (!fits || bpf_map_lookup_elem(map.get(), &key, &element) != 0) return std::nullopt;
  return Standing{.leads = element.shared.role == HR_NODE_LEADER, .term = element.shared.raft.term};
}

}  // namespace hedgerow::dst
