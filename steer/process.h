// SPDX-License-Identifier: Apache-2.0
//
// Processes: an identity that survives the reuse of pids, and what /proc says of them: their descent, and the sockets
// that they hold. Needs CAP_SYS_PTRACE for the processes of other users.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "steer/api/record.pb.h"

namespace hedgerow::steer {

// A pid may be reused; pid and start time together are unique.
struct Process {
  pid_t pid = 0;  // 0: none
  pid_t parent = 0;
  pid_t group = 0;
  uint64_t start_ticks = 0;  // since boot (proc_pid_stat(5), field 22)
  std::string name{};
  bool has_ended = false;  // it waits for its parent
};
// Empty: there is no such process.
std::optional<Process> ReadProcess(pid_t pid);
// Of a running process; pid 0 where there is none.
Process Identify(pid_t pid);
bool Runs(const Process& process);
// "12 (nsd)"
std::string ToString(const Process& process);
Process FromRecord(const v1::Process& recorded);

// A pidfd of the process, if it still runs; NotFound: it has ended.
absl::StatusOr<net::UniqueFd> OpenProcess(const Process& process);
// The number of the process or thread that was made last (proc_loadavg(5)): while it stays, no process was made.
std::string LastMadeProcess();

// Every process that this one sees and that runs, oldest first.
absl::StatusOr<std::vector<Process>> ListProcesses();
// Of `processes`, the `roots` and all that descend from them.
std::vector<Process> WithDescendants(const std::vector<Process>& processes, const std::vector<pid_t>& roots);

struct HeldSockets {
  std::map<uint32_t, int> descriptors{};     // inode -> the lowest descriptor
  std::vector<std::set<uint32_t>> polled{};  // the inodes in each of its epoll sets, of those that were asked for
};
// A socket in an epoll set of a process.
struct Polled {
  int descriptor = -1;  // by which it was added
  uint32_t events = 0;
  uint64_t data = 0;
  uint32_t inode = 0;
};
std::vector<Polled> PolledBy(pid_t pid, int descriptor);
// Of `inodes`, those that the process holds. NotFound: it has ended. PermissionDenied says which capability is missing.
absl::StatusOr<HeldSockets> SocketsOf(const Process& process, const std::set<uint32_t>& inodes);
// The processes that hold one of the sockets, oldest first, the caller included; `among` restricts the search.
std::vector<Process> ProcessesWith(const std::set<uint32_t>& inodes,
                                   const std::function<bool(const Process&)>& among = {});
// The service manager among them, which may hold what was stored there.
std::set<pid_t> SelfAndAncestors();
// A duplicate of another process's descriptor (pidfd_getfd(2)).
absl::StatusOr<net::UniqueFd> DescriptorOf(pid_t pid, int descriptor);

// The path of its program; empty where it cannot be read.
std::string ProgramOf(pid_t pid);
// The path, and behind a zero byte the command line.
std::string CommandOf(pid_t pid);

// OK as well when the process has ended.
absl::Status Signal(const net::UniqueFd& pidfd, int signal);
// Whether it has ended by then.
bool WaitForEnd(const net::UniqueFd& pidfd, int milliseconds);

}  // namespace hedgerow::steer
