// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/pinned_array.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hedgerow {

absl::Status PinnedArray::Map(const PinnedArraySpec& spec, uint32_t entries) {
  auto memory = MappedArray::Open(fd_.get(), spec.value_bytes, entries);
  if (memory.ok()) memory_ = *std::move(memory);
  return memory.status();
}

absl::StatusOr<PinnedArray> PinnedArray::Create(const std::string& path, const PinnedArraySpec& spec) {
  PinnedArray array;
  LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
  array.fd_.Reset(bpf_map_create(BPF_MAP_TYPE_ARRAY, spec.name.c_str(), sizeof(uint32_t), spec.value_bytes,
                                 spec.entries, &options));
  if (!array.fd_.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("making the map ", spec.name));
  if (const absl::Status status = array.Map(spec, spec.entries); !status.ok()) return status;
  if (bpf_obj_pin(array.fd_.get(), path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
  return array;
}

absl::StatusOr<bool> PinnedArray::RestorePin(const std::string& path) const {
  if (access(path.c_str(), F_OK) == 0) return false;
  if (bpf_obj_pin(fd_.get(), path.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
  return true;
}

absl::StatusOr<PinnedArray> PinnedArray::Open(const std::string& path, const PinnedArraySpec& spec) {
  PinnedArray array;
  array.fd_.Reset(bpf_obj_get(path.c_str()));
  if (!array.fd_.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  // For a program or a link this call fills another struct, in which these fields cannot all fit.
  if (bpf_obj_get_info_by_fd(array.fd_.get(), &info, &bytes) != 0 || info.type != BPF_MAP_TYPE_ARRAY ||
      info.key_size != sizeof(uint32_t) || info.value_size != spec.value_bytes ||
      (spec.entries != kAnySize && info.max_entries != spec.entries) || absl::string_view(info.name) != spec.name) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not the map ", spec.name, " of this build"));
  }
  if (const absl::Status status = array.Map(spec, info.max_entries); !status.ok()) return status;
  return array;
}

}  // namespace hedgerow
