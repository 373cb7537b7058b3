// SPDX-License-Identifier: Apache-2.0
//
// Starting a worker: the daemon's own program with a slot's sockets (sd_listen_fds(3)), as another user where one is
// named. The program and user are checked first, so that a command that cannot run is refused before sockets and pins
// are made. And what workers say of themselves (sd_notify(3)).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"
#include "steer/settings.h"

namespace hedgerow::steer {

struct StartedWorker {
  pid_t pid = 0;
  net::UniqueFd pidfd{};
};

class Launcher {
 public:
  // InvalidArgument: there is no such program, or it may not be run.
  static absl::StatusOr<Launcher> Create(const Settings& settings);

  // `sockets`: of Settings::transports(), in their order. FailedPrecondition: exec(2) failed, for the reason in the
  // message.
  absl::StatusOr<StartedWorker> Start(int slot, const std::vector<int>& sockets) const;

  // The command of a slot: %s is its number, %% is %.
  std::vector<std::string> CommandOf(int slot) const;

 private:
  explicit Launcher(const Settings& settings) : settings_(settings) {}
  std::vector<std::string> EnvironmentOf(int slot) const;

  Settings settings_;
  std::string program_{};  // its path
};

// "exit 1", "signal 9 (KILL)": of a child that has ended, which is reaped.
std::string ReapExit(const net::UniqueFd& pidfd);

// How long to wait before a worker is started again that has ended `failures` times in a row, each within a short time.
absl::Duration RestartDelay(int failures);
inline constexpr absl::Duration kSteadyAfter = absl::Seconds(10);  // the end of a worker that ran longer is no failure

struct Notice {
  pid_t pid = 0;  // of the process that wrote it
  bool ready = false;
  bool watchdog = false;
  bool stopping = false;
};

// The workers' NOTIFY_SOCKET: READY=1, WATCHDOG=1, STOPPING=1. One socket serves all workers; SCM_CREDENTIALS names the
// sender's process, and a message counts for the worker of that process alone.
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
