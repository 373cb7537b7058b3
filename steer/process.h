// SPDX-License-Identifier: Apache-2.0
//
// Processes as the supervisor needs them: a fork that is safe beside other threads, and an identity that survives the reuse of pids.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "steer/api/record.pb.h"

namespace hedgerow::steer {

struct Forked {
  pid_t pid = 0;  // 0: this is the child
  net::UniqueFd pidfd{};
};
// fork(2) with a pidfd, and without the handlers that libraries have registered. Other threads may hold locks, so the child calls
// nothing but what is safe in a signal handler, until it execs or ends.
absl::StatusOr<Forked> Fork();

// In a child: signals as a new program expects them, and no descriptor from `first` on.
void ResetSignals();
void CloseFrom(unsigned first);

// /proc/PID/stat (proc_pid_stat(5)). Empty: there is no such process.
struct ProcessStat {
  std::string name{};
  char state = 0;  // 'Z', 'X': it has ended
  pid_t parent = 0;
  pid_t group = 0;
  uint64_t start_ticks = 0;  // since boot
};
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// Of a running process; pid 0 where there is none.
v1::Process Identify(pid_t pid);
// A pidfd of the process, if it still runs; NotFound: it has ended.
absl::StatusOr<net::UniqueFd> OpenProcess(const v1::Process& process);
// The parent's pid; 0: unknown.
pid_t ParentOf(pid_t pid);
// The number of the process or thread that was made last (proc_loadavg(5)): while it stays, no process was made.
std::string LastMadeProcess();
// The process group's number; 0: unknown.
pid_t GroupOf(pid_t pid);
// OK as well when the process has ended.
absl::Status Signal(const net::UniqueFd& pidfd, int signal);
// Whether it has ended by then.
bool WaitForEnd(const net::UniqueFd& pidfd, int milliseconds);

}  // namespace hedgerow::steer
