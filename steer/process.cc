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

// proc_pid_stat(5), what stands behind the name, which may contain anything: state, parent, ... Empty: there is no such process.
std::vector<std::string> StatOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 > line.size()) return {};
  return absl::StrSplit(line.substr(name_end + 2), ' ');
}

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

v1::Process Identify(pid_t pid) {
  v1::Process process;
  const std::vector<std::string> fields = pid > 0 ? StatOf(pid) : std::vector<std::string>{};
  uint64_t ticks = 0;
  constexpr size_t kStart = 19;
  if (fields.size() <= kStart || fields[0] == "Z" || fields[0] == "X" || !absl::SimpleAtoi(fields[kStart], &ticks)) return process;
  process.set_pid(pid);
  process.set_start_ticks(ticks);
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
  const std::vector<std::string> fields = StatOf(pid);
  pid_t parent = 0;
  return fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent) ? parent : 0;
}

pid_t GroupOf(pid_t pid) {
  const std::vector<std::string> fields = StatOf(pid);
  pid_t group = 0;
  return fields.size() > 2 && absl::SimpleAtoi(fields[2], &group) ? group : 0;
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
