// SPDX-License-Identifier: Apache-2.0
#include "steer/process.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace hedgerow::steer {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// The names in a folder that are numbers.
absl::StatusOr<std::vector<int>> NumbersIn(const std::string& path) {
  const Directory directory(opendir(path.c_str()));
  if (directory == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("read ", path));
  std::vector<int> numbers;
  while (const dirent* entry = readdir(directory.get())) {
    int number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number)) numbers.push_back(number);
  }
  return numbers;
}

std::string LinkAt(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t bytes = readlink(path.c_str(), target, sizeof(target));
  return bytes > 0 ? std::string(target, static_cast<size_t>(bytes)) : "";
}

// Of what a descriptor's link says: "socket:[4711]".
std::optional<uint32_t> SocketInode(absl::string_view link) {
  uint32_t inode = 0;
  if (!absl::ConsumePrefix(&link, "socket:[") || !absl::ConsumeSuffix(&link, "]") || !absl::SimpleAtoi(link, &inode))
    return std::nullopt;
  return inode;
}

// The device that all sockets' inodes are on, as fdinfo prints it: the kernel's own number.
uint64_t SocketDevice() {
  const net::UniqueFd any(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat status {};
  if (!any.valid() || fstat(any.get(), &status) != 0) return 0;
  return static_cast<uint64_t>(major(status.st_dev)) << 20 | minor(status.st_dev);
}

}  // namespace

// The name stands in parentheses and may contain any character, so the fields are counted from the last one.
std::optional<Process> ReadProcess(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(line).substr(close + 1), ' ', absl::SkipEmpty());
  constexpr size_t kState = 0, kParent = 1, kGroup = 2, kStart = 19;  // behind the name: fields 3, 4, 5 and 22
  Process process{.pid = pid, .name = line.substr(open + 1, close - open - 1)};
  if (fields.size() <= kStart || !absl::SimpleAtoi(fields[kParent], &process.parent) ||
      !absl::SimpleAtoi(fields[kGroup], &process.group) || !absl::SimpleAtoi(fields[kStart], &process.start_ticks)) {
    return std::nullopt;
  }
  process.has_ended = fields[kState] == "Z" || fields[kState] == "X";
  return process;
}

Process Identify(pid_t pid) {
  const auto process = pid > 0 ? ReadProcess(pid) : std::nullopt;
  return process.has_value() && !process->has_ended ? *process : Process();
}

bool Runs(const Process& process) {
  return process.pid != 0 && Identify(process.pid).start_ticks == process.start_ticks;
}

std::string ToString(const Process& process) { return absl::StrCat(process.pid, " (", process.name, ")"); }

Process FromRecord(const v1::Process& recorded) {
  return {.pid = static_cast<pid_t>(recorded.pid()), .start_ticks = recorded.start_ticks()};
}

absl::StatusOr<net::UniqueFd> OpenProcess(const Process& process) {
  const auto gone = [&process] { return absl::NotFoundError(absl::StrCat("pid ", process.pid, " has ended")); };
  if (process.pid <= 0) return gone();
  net::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd.valid())
    return errno == ESRCH ? gone() : absl::ErrnoToStatus(errno, absl::StrCat("watch pid ", process.pid));
  // Looked at with the descriptor in hand: the pid cannot come again now.
  if (!Runs(process)) return gone();
  return pidfd;
}

std::string LastMadeProcess() {
  std::ifstream file("/proc/loadavg");
  std::string line;
  std::getline(file, line);
  return line.substr(line.rfind(' ') + 1);
}

absl::Status Signal(const net::UniqueFd& pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0 || errno == ESRCH) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "signal a process");
}

bool WaitForEnd(const net::UniqueFd& pidfd, int milliseconds) {
  pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, milliseconds) > 0;
}

absl::StatusOr<std::vector<Process>> ListProcesses() {
  const auto pids = NumbersIn("/proc");
  if (!pids.ok()) return pids.status();
  std::vector<Process> processes;
  for (const int pid : *pids) {
    if (auto process = ReadProcess(pid); process && !process->has_ended) processes.push_back(*std::move(process));
  }
  std::sort(processes.begin(), processes.end(), [](const Process& a, const Process& b) {
    return std::pair(a.start_ticks, a.pid) < std::pair(b.start_ticks, b.pid);
  });
  return processes;
}

std::vector<Process> WithDescendants(const std::vector<Process>& processes, const std::vector<pid_t>& roots) {
  std::set<pid_t> chosen(roots.begin(), roots.end());
  // A child may stand before its parent: start times have a resolution of 10 ms.
  for (size_t before = 0; before != chosen.size();) {
    before = chosen.size();
    for (const Process& process : processes) {
      if (chosen.contains(process.parent)) chosen.insert(process.pid);
    }
  }
  std::vector<Process> family;
  std::copy_if(processes.begin(), processes.end(), std::back_inserter(family),
               [&](const Process& process) { return chosen.contains(process.pid); });
  return family;
}

// Lines "tfd: 7 events: 19 data: 7 pos:0 ino:1f3a sdev:8" (proc_pid_fdinfo(5)).
std::vector<Polled> PolledBy(pid_t pid, int descriptor) {
  static const uint64_t sockets = SocketDevice();
  std::ifstream file(absl::StrCat("/proc/", pid, "/fdinfo/", descriptor));
  std::vector<Polled> polled;
  for (std::string line; std::getline(file, line);) {
    int target = -1;
    unsigned events = 0;
    unsigned long long data = 0;
    unsigned long inode = 0, device = 0;
    if (std::sscanf(line.c_str(), "tfd: %d events: %x data: %llx pos:%*u ino:%lx sdev:%lx", &target, &events, &data,
                    &inode, &device) == 5 &&
        device == sockets)
      polled.push_back({target, events, data, static_cast<uint32_t>(inode)});
  }
  return polled;
}

absl::StatusOr<HeldSockets> SocketsOf(const Process& process, const std::set<uint32_t>& inodes) {
  const std::string folder = absl::StrCat("/proc/", process.pid, "/fd");
  const auto descriptors = NumbersIn(folder);
  if (absl::IsPermissionDenied(descriptors.status())) {
    return absl::PermissionDeniedError(absl::StrCat("cannot see the descriptors of process ", ToString(process),
                                                    ": that needs CAP_SYS_PTRACE (root)"));
  }
  if (!descriptors.ok()) return absl::NotFoundError(absl::StrCat("process ", ToString(process), " has ended"));
  HeldSockets held;
  std::vector<int> epoll_sets;
  for (const int descriptor : *descriptors) {
    const std::string link = LinkAt(absl::StrCat(folder, "/", descriptor));
    if (const auto inode = SocketInode(link); inode && inodes.contains(*inode)) {
      const auto [known, is_new] = held.descriptors.emplace(*inode, descriptor);
      if (!is_new) known->second = std::min(known->second, descriptor);
    } else if (link == "anon_inode:[eventpoll]") {
      epoll_sets.push_back(descriptor);
    }
  }
  if (held.descriptors.empty()) return held;
  for (const int descriptor : epoll_sets) {
    std::set<uint32_t> polled;
    for (const Polled& each : PolledBy(process.pid, descriptor)) {
      if (inodes.contains(each.inode)) polled.insert(each.inode);
    }
    if (!polled.empty()) held.polled.push_back(std::move(polled));
  }
  return held;
}

std::vector<Process> ProcessesWith(const std::set<uint32_t>& inodes, const std::function<bool(const Process&)>& among) {
  std::vector<Process> found;
  if (inodes.empty()) return found;
  const auto processes = ListProcesses();
  if (!processes.ok()) return found;
  std::copy_if(processes->begin(), processes->end(), std::back_inserter(found), [&](const Process& process) {
    if (among && !among(process)) return false;
    const auto held = SocketsOf(process, inodes);
    return held.ok() && !held->descriptors.empty();
  });
  return found;
}

std::string ProgramOf(pid_t pid) {
  std::string path = LinkAt(absl::StrCat("/proc/", pid, "/exe"));
  constexpr absl::string_view kReplaced = " (deleted)";  // an upgrade wrote a new file in its place
  if (absl::string_view stripped = path; absl::ConsumeSuffix(&stripped, kReplaced)) path = std::string(stripped);
  return path;
}

std::set<pid_t> SelfAndAncestors() {
  std::set<pid_t> line;
  for (auto process = ReadProcess(getpid()); process.has_value() && line.insert(process->pid).second;)
    process = ReadProcess(process->parent);
  return line;
}

std::string CommandOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"));
  return absl::StrCat(ProgramOf(pid), std::string(1, '\0'), std::string(std::istreambuf_iterator<char>(file), {}));
}

absl::StatusOr<net::UniqueFd> DescriptorOf(pid_t pid, int descriptor) {
  const net::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("open process ", pid));
  net::UniqueFd copy(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), descriptor, 0)));
  if (!copy.valid() && errno == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat("cannot take a socket of process ", pid,
                                                    ": pidfd_getfd(2) needs CAP_SYS_PTRACE (root), and is forbidden "
                                                    "where kernel.yama.ptrace_scope is 3"));
  }
  if (!copy.valid())
    return absl::ErrnoToStatus(errno, absl::StrCat("take descriptor ", descriptor, " of process ", pid));
  return copy;
}

}  // namespace hedgerow::steer
