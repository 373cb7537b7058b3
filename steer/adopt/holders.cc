// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "steer/process.h"
#include "steer/sock_diag.h"

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

std::optional<Process> ReadProcess(pid_t pid) {
  const auto stat = ReadProcessStat(pid);
  if (!stat.has_value() || stat->state == 'Z' || stat->state == 'X') return std::nullopt;
  return Process{.pid = pid, .parent = stat->parent, .start_ticks = stat->start_ticks, .name = stat->name};
}

// The device that all sockets' inodes are on, as fdinfo prints it: the kernel's own number.
uint64_t SocketDevice() {
  const net::UniqueFd any(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat status {};
  if (!any.valid() || fstat(any.get(), &status) != 0) return 0;
  return static_cast<uint64_t>(major(status.st_dev)) << 20 | minor(status.st_dev);
}

// The wanted inodes in an epoll set: lines "tfd: 7 events: 19 data: 7 pos:0 ino:1f3a sdev:8" (proc_pid_fdinfo(5)).
std::set<uint32_t> PolledBy(pid_t pid, int descriptor, const std::set<uint32_t>& inodes) {
  static const uint64_t sockets = SocketDevice();
  std::ifstream file(absl::StrCat("/proc/", pid, "/fdinfo/", descriptor));
  std::set<uint32_t> polled;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("tfd:", 0) != 0) continue;
    std::istringstream words(line);
    uint64_t inode = 0, device = 0;
    for (std::string word; words >> word;) {
      absl::string_view text = word;
      if (absl::ConsumePrefix(&text, "ino:")) (void)absl::SimpleHexAtoi(text, &inode);
      if (absl::ConsumePrefix(&text, "sdev:")) (void)absl::SimpleHexAtoi(text, &device);
    }
    if (device == sockets && inodes.contains(static_cast<uint32_t>(inode))) polled.insert(static_cast<uint32_t>(inode));
  }
  return polled;
}

}  // namespace

std::string ToString(const Process& process) { return absl::StrCat(process.pid, " (", process.name, ")"); }

bool Runs(const Process& process) {
  const auto now = ReadProcess(process.pid);
  return now.has_value() && now->start_ticks == process.start_ticks;
}

absl::StatusOr<std::vector<Process>> ListProcesses() {
  const auto pids = NumbersIn("/proc");
  if (!pids.ok()) return pids.status();
  std::vector<Process> processes;
  for (const int pid : *pids) {
    if (auto process = ReadProcess(pid)) processes.push_back(*std::move(process));
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

absl::StatusOr<HeldSockets> SocketsOf(const Process& process, const std::set<uint32_t>& inodes) {
  const std::string folder = absl::StrCat("/proc/", process.pid, "/fd");
  const auto descriptors = NumbersIn(folder);
  if (absl::IsPermissionDenied(descriptors.status())) {
    return absl::PermissionDeniedError(absl::StrCat("cannot see the descriptors of process ", ToString(process),
                                                    ": that needs CAP_SYS_PTRACE (root)"));
  }
  if (!descriptors.ok()) return absl::NotFoundError(absl::StrCat("process ", ToString(process), " has ended"));
  HeldSockets held;
  for (const int descriptor : *descriptors) {
    const std::string link = LinkAt(absl::StrCat(folder, "/", descriptor));
    if (const auto inode = SocketInode(link); inode && inodes.contains(*inode)) {
      const auto [known, is_new] = held.descriptors.emplace(*inode, descriptor);
      if (!is_new) known->second = std::min(known->second, descriptor);
    } else if (link == "anon_inode:[eventpoll]") {
      if (auto polled = PolledBy(process.pid, descriptor, inodes); !polled.empty()) held.polled.push_back(std::move(polled));
    }
  }
  return held;
}

std::string ProgramOf(pid_t pid) {
  std::string path = LinkAt(absl::StrCat("/proc/", pid, "/exe"));
  constexpr absl::string_view kReplaced = " (deleted)";  // an upgrade wrote a new file in its place
  if (absl::string_view stripped = path; absl::ConsumeSuffix(&stripped, kReplaced)) path = std::string(stripped);
  return path;
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
  if (!copy.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("take descriptor ", descriptor, " of process ", pid));
  return copy;
}

}  // namespace hedgerow::steer
