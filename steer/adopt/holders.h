// SPDX-License-Identifier: Apache-2.0
//
// The processes that hold a port's sockets, by /proc: their descent, their descriptors of these sockets, and the epoll sets that
// contain them. Called by adopted_sockets.cc. Needs CAP_SYS_PTRACE for the processes of other users.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::steer {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  uint64_t start_ticks = 0;  // since boot
  std::string name{};
};

// Every process that this one sees and that has not ended, oldest first.
absl::StatusOr<std::vector<Process>> ListProcesses();

// Of `processes`, the `roots` and all that descend from them.
std::vector<Process> WithDescendants(const std::vector<Process>& processes, const std::vector<pid_t>& roots);

// Whether it has not ended. A process that got its pid later is another one.
bool Runs(const Process& process);

// "12 (nsd)"
std::string ToString(const Process& process);

struct HeldSockets {
  std::map<uint32_t, int> descriptors{};           // inode -> the lowest descriptor
  std::vector<std::set<uint32_t>> polled{};        // the inodes in each of its epoll sets, of those that were asked for
};

// Of `inodes`, those that the process holds. NotFound: it has ended. PermissionDenied says which capability is missing.
absl::StatusOr<HeldSockets> SocketsOf(const Process& process, const std::set<uint32_t>& inodes);

// The path of its program; empty where it cannot be read.
std::string ProgramOf(pid_t pid);

// A duplicate of another process's descriptor (pidfd_getfd(2)).
absl::StatusOr<net::UniqueFd> DescriptorOf(pid_t pid, int descriptor);

}  // namespace hedgerow::steer
