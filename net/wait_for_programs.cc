// SPDX-License-Identifier: Apache-2.0
#include "net/wait_for_programs.h"

#include <bpf/bpf.h>

#include <cerrno>
#include <cstdint>

#include "net/unique_fd.h"

namespace hedgerow::net {

// When a map of maps is changed the kernel waits for the running programs, so that a caller which removes an inner map
// may rely on their end (maybe_wait_bpf_programs() in kernel/bpf/syscall.c, since 4.19). membarrier(2) would do the
// same, but not with nohz_full.
absl::Status WaitForPrograms() {
  const UniqueFd inner(
      bpf_map_create(BPF_MAP_TYPE_ARRAY, "hr_wait_inner", sizeof(uint32_t), sizeof(uint32_t), 1, nullptr));
  if (!inner.valid()) return absl::ErrnoToStatus(errno, "waiting for the programs: making a map");
  LIBBPF_OPTS(bpf_map_create_opts, options, .inner_map_fd = static_cast<uint32_t>(inner.get()));
  const UniqueFd outer(
      bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "hr_wait", sizeof(uint32_t), sizeof(uint32_t), 1, &options));
  if (!outer.valid()) return absl::ErrnoToStatus(errno, "waiting for the programs: making a map of maps");
  const uint32_t zero = 0;
  const int fd = inner.get();
  if (bpf_map_update_elem(outer.get(), &zero, &fd, BPF_ANY) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "waiting for the programs");
}

}  // namespace hedgerow::net
