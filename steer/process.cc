// SPDX-License-Identifier: Apache-2.0
#include "steer/process.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hedgerow::steer {
namespace {

constexpr int kClonePidfd = 0x1000;  // CLONE_PIDFD

}  // namespace

absl::StatusOr<Forked> Fork() {
  int pidfd = -1;
  // Without a stack of its own the child has a copy of ours. The pidfd's place is the third argument on both architectures.
  const long pid = syscall(SYS_clone, kClonePidfd | SIGCHLD, nullptr, &pidfd, nullptr, nullptr);
  if (pid < 0) return absl::ErrnoToStatus(errno, "start a process");
  return Forked{static_cast<pid_t>(pid), net::UniqueFd(pid == 0 ? -1 : pidfd)};
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int each = 1; each < 65; ++each) sigaction(each, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void CloseFrom(unsigned first) { syscall(SYS_close_range, first, ~0u, 0); }

// The name stands in parentheses and may contain any character, so the fields are counted from the last one.
std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(absl::string_view(line).substr(close + 1), ' ', absl::SkipEmpty());
  constexpr size_t kState = 0, kParent = 1, kGroup = 2, kStart = 19;  // behind the name: fields 3, 4, 5 and 22
  ProcessStat stat{.name = line.substr(open + 1, close - open - 1)};
  if (fields.size() <= kStart || !absl::SimpleAtoi(fields[kParent], &stat.parent) || !absl::SimpleAtoi(fields[kGroup], &stat.group) ||
      !absl::SimpleAtoi(fields[kStart], &stat.start_ticks)) {
    return std::nullopt;
  }
  stat.state = fields[kState][0];
  return stat;
}

v1::Process Identify(pid_t pid) {
  v1::Process process;
  const auto stat = pid > 0 ? ReadProcessStat(pid) : std::nullopt;
  if (!stat.has_value() || stat->state == 'Z' || stat->state == 'X') return process;
  process.set_pid(pid);
  process.set_start_ticks(stat->start_ticks);
  return process;
}

absl::StatusOr<net::UniqueFd> OpenProcess(const v1::Process& process) {
  const auto gone = [&process] { return absl::NotFoundError(absl::StrCat("pid ", process.pid(), " has ended")); };
  if (process.pid() <= 0) return gone();
  net::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid()), 0)));
  if (!pidfd.valid()) return errno == ESRCH ? gone() : absl::ErrnoToStatus(errno, absl::StrCat("watch pid ", process.pid()));
  // Looked at with the descriptor in hand: the pid cannot come again now.
  const v1::Process now = Identify(static_cast<pid_t>(process.pid()));
  if (now.pid() == 0 || now.start_ticks() != process.start_ticks()) return gone();
  return pidfd;
}

pid_t ParentOf(pid_t pid) {
  const auto stat = ReadProcessStat(pid);
  return stat.has_value() ? stat->parent : 0;
}

std::string LastMadeProcess() {
  std::ifstream file("/proc/loadavg");
  std::string line;
  std::getline(file, line);
  return line.substr(line.rfind(' ') + 1);
}

pid_t GroupOf(pid_t pid) {
  const auto stat = ReadProcessStat(pid);
  return stat.has_value() ? stat->group : 0;
}

absl::Status Signal(const net::UniqueFd& pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0 || errno == ESRCH) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "signal a process");
}

bool WaitForEnd(const net::UniqueFd& pidfd, int milliseconds) {
  pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, milliseconds) > 0;
}

}  // namespace hedgerow::steer
