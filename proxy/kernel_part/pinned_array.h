// SPDX-License-Identifier: Apache-2.0
//
// Memory that outlives the daemon: a pinned BPF array that no program reads, mapped. What the daemon alone
// knows and its successor needs stands in such arrays, beside the kernel part that it is about: the instance's
// record (record_map.h) and the history of answer times (proxy/instance/answer_history.h). They end with the
// pins.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "proxy/kernel_part/kernel_maps.h"

namespace hedgerow {

struct PinnedArraySpec {
  std::string name;  // at most 15 bytes
  uint32_t value_bytes = 0;
  uint32_t entries = 0;
};

class PinnedArray {
 public:
  static constexpr uint32_t kAnySize = 0;  // as the entries of what is opened

  PinnedArray() = default;  // holds nothing

  // All zeros. AlreadyExists when something is pinned at `path`.
  static absl::StatusOr<PinnedArray> Create(const std::string& path, const PinnedArraySpec& spec);
  // NotFound: nothing is pinned there. FailedPrecondition: something other than `spec`.
  static absl::StatusOr<PinnedArray> Open(const std::string& path, const PinnedArraySpec& spec);

  template <typename T>
  volatile T* At(uint32_t index) const {
    return memory_.At<T>(index);
  }
  uint32_t entries() const { return memory_.entries(); }
  // Pins it again where nothing is pinned at `path` any more. True: so it was.
  absl::StatusOr<bool> RestorePin(const std::string& path) const;

 private:
  absl::Status Map(const PinnedArraySpec& spec, uint32_t entries);

  net::UniqueFd fd_;
  MappedArray memory_;
};

}  // namespace hedgerow
