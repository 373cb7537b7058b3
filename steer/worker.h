// SPDX-License-Identifier: Apache-2.0
//
// Starting a worker: the daemon's own program with a slot's sockets (sd_listen_fds(3)), as another user where one is
// named. The program and user are checked first, so that a command that cannot run is refused before sockets and pins
// are made.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
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

}  // namespace hedgerow::steer
