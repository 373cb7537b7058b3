// SPDX-License-Identifier: Apache-2.0
//
// One daemon per instance or group: a locked file with the owner's pid. The lock is the
// kernel's (flock), so that it ends with its process however that dies; the
// file is removed at an orderly end.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow {

inline constexpr char kRunFolder[] = "/run/hedgerow";

class InstanceLock {
 public:
  // AlreadyExists, naming the pid, while another process holds the instance. Makes `folder` (0755) when
  // missing. `what` is the word for it in that error. Aborted: its file system is full, or read-only, which may pass.
  static absl::StatusOr<InstanceLock> Acquire(const std::string& folder, const std::string& instance,
                                              const std::string& what = "instance");
  InstanceLock(InstanceLock&&) = default;
  InstanceLock& operator=(InstanceLock&&) = delete;
  ~InstanceLock();

 private:
  InstanceLock(std::string path, net::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  net::UniqueFd fd_;
};

}  // namespace hedgerow
