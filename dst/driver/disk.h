// SPDX-License-Identifier: Apache-2.0
//
// A node's disk that forgets what was not synced: one hr-unsynced-fs (chaos/unsynced), obeyed over two pipes.
// It ends with the process that started it.

#pragma once

#include <memory>
#include <string>

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::dst {

class UnsyncedDisk {
 public:
  // Mounted when this returns.
  static absl::StatusOr<std::unique_ptr<UnsyncedDisk>> Mount(const std::string& backing, const std::string& mount,
                                                             const std::string& log);
  ~UnsyncedDisk();
  UnsyncedDisk(const UnsyncedDisk&) = delete;
  UnsyncedDisk& operator=(const UnsyncedDisk&) = delete;

  // What it has lost, as it reports; no process may be using it. `torn`: a seed, or empty for all that was not synced.
  absl::StatusOr<std::string> Cut(const std::string& torn);

 private:
  UnsyncedDisk() = default;
  absl::StatusOr<std::string> Line();

  pid_t pid_ = -1;
  net::UniqueFd to_{};
  net::UniqueFd from_{};
};

}  // namespace hedgerow::dst
