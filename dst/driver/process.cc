// SPDX-License-Identifier: Apache-2.0
#include "dst/driver/process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "operate/clock.h"

namespace hedgerow::dst {
namespace {

constexpr int kCannotStart = 127;
constexpr uint64_t kLookEvery_ns = 2'000'000;

bool Enter(const std::string& host) {
  if (host.empty()) return true;
  const int netns = open(absl::StrCat("/run/netns/", host).c_str(), O_RDONLY | O_CLOEXEC);
  return netns >= 0 && setns(netns, CLONE_NEWNET) == 0;
}

bool Redirect(const std::string& file, std::initializer_list<int> targets) {
  const int fd = open(file.empty() ? "/dev/null" : file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  for (const int target : targets) {
    if (dup2(fd, target) < 0) return false;
  }
  return true;
}

bool RedirectAll(const Command& command) {
  if (command.input_fd >= 0 && dup2(command.input_fd, STDIN_FILENO) < 0) return false;
  if (command.output_fd < 0 && !Redirect(command.output, {STDOUT_FILENO, STDERR_FILENO})) return false;
  if (command.output_fd >= 0 && dup2(command.output_fd, STDOUT_FILENO) < 0) return false;
  return command.errors.empty() || Redirect(command.errors, {STDERR_FILENO});
}

// In the child, between fork and exec.
[[noreturn]] void Become(const Command& command) {
  std::vector<char*> argv;
  for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const std::string& variable : command.environment) putenv(const_cast<char*>(variable.c_str()));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();
  if (Enter(command.host) && RedirectAll(command)) execvp(argv[0], argv.data());
  _exit(kCannotStart);
}

}  // namespace

void SleepUntil(uint64_t at_ns) {
  const timespec at{.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000),
                    .tv_nsec = static_cast<long>(at_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

absl::StatusOr<pid_t> Start(const Command& command) {
  const pid_t pid = fork();
  if (pid == 0) Become(command);
  if (pid < 0) return absl::ErrnoToStatus(errno, absl::StrCat("fork for ", command.argv[0]));
  return pid;
}

std::string Ending(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
  return absl::StrCat("exit ", WEXITSTATUS(status));
}

absl::StatusOr<int> WaitFor(pid_t pid, uint64_t within_ns) {
  const uint64_t until_ns = operate::Monotonic_ns() + within_ns;
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    if (ended < 0) return absl::ErrnoToStatus(errno, "waitpid");
    if (operate::Monotonic_ns() >= until_ns) break;
    SleepUntil(operate::Monotonic_ns() + kLookEvery_ns);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return absl::DeadlineExceededError(absl::StrCat("no end within ", within_ns / 1'000'000, " ms"));
}

absl::Status RunToEnd(const Command& command, uint64_t within_ns) {
  const absl::StatusOr<pid_t> pid = Start(command);
  if (!pid.ok()) return pid.status();
  const absl::StatusOr<int> status = WaitFor(*pid, within_ns);
  if (!status.ok())
    return absl::Status(status.status().code(), absl::StrCat(command.argv[0], ": ", status.status().message()));
  if (*status == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(command.argv[0], ": ", Ending(*status)));
}

}  // namespace hedgerow::dst
