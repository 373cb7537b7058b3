// SPDX-License-Identifier: Apache-2.0
//
// The workers' NOTIFY_SOCKET (sd_notify(3)): READY=1, WATCHDOG=1, STOPPING=1. One socket serves all workers;
// SCM_CREDENTIALS names the sender's process, and a message counts for the worker of that process alone.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::steer {

struct Notice {
  pid_t pid = 0;  // of the process that wrote it
  bool ready = false;
  bool watchdog = false;
  bool stopping = false;
};

class NotifySocket {
 public:
  // A dead supervisor's socket is replaced.
  static absl::StatusOr<NotifySocket> Open(const std::string& path);
  int fd() const { return fd_.get(); }
  // Never blocks; a bounded number of messages at a time. False: there was none.
  bool Read(const std::function<void(const Notice&)>& visit) const;

 private:
  explicit NotifySocket(net::UniqueFd fd) : fd_(std::move(fd)) {}
  net::UniqueFd fd_;
};

}  // namespace hedgerow::steer
