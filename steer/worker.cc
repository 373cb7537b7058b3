// SPDX-License-Identifier: Apache-2.0
#include "steer/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace hedgerow::steer {
namespace {

constexpr int kFirstSocket = 3;  // SD_LISTEN_FDS_START
constexpr absl::string_view kPidVariable = "LISTEN_PID=";

bool IsProgram(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (absl::StrContains(name, "/")) {
    if (IsProgram(name)) return name;
    return absl::NotFoundError(absl::StrCat("cannot run ", name, ": it is no program, or may not be run"));
  }
  const char* path = getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string program = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (IsProgram(program)) return program;
  }
  return absl::NotFoundError(absl::StrCat("cannot run ", name, ": no such program in PATH"));
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that the child needs, allocated before the fork.
struct Plan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  char* pid_digits = nullptr;  // in the environment
  const int* sockets = nullptr;
  int socket_count = 0;
  int error_pipe = -1;
  int input = -1;  // /dev/null: several workers cannot share a terminal
  const WorkerUser* user = nullptr;
};

void WriteDecimal(char* to, long number) {
  char reversed[24];
  int digits = 0;
  do reversed[digits++] = static_cast<char>('0' + number % 10);
  while ((number /= 10) > 0);
  while (digits > 0) *to++ = reversed[--digits];
  *to = '\0';
}

// Safe in a signal handler. The C library's setresuid(2) would ask the threads of the process, which the child does not
// have. `error_pipe` becomes a number that no socket takes.
int Become(const Plan& plan, int& error_pipe) {
  constexpr int kBehindSockets = 16;
  error_pipe = fcntl(plan.error_pipe, F_DUPFD_CLOEXEC, kBehindSockets);
  if (error_pipe < 0) return errno;
  if (dup2(plan.input, 0) < 0) return errno;
  int copies[2];
  for (int i = 0; i < plan.socket_count; ++i) {
    copies[i] = fcntl(plan.sockets[i], F_DUPFD_CLOEXEC, kBehindSockets);
    if (copies[i] < 0) return errno;
  }
  for (int i = 0; i < plan.socket_count; ++i) {
    if (dup2(copies[i], kFirstSocket + i) < 0) return errno;
  }
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC
  if (syscall(SYS_close_range, static_cast<unsigned>(kFirstSocket + plan.socket_count), ~0u, kCloseOnExec) != 0)
    return errno;
  setpgid(0, 0);  // Ctrl-C is the supervisor's
  if (const WorkerUser& user = *plan.user; user.set) {
    if (syscall(SYS_setgroups, user.groups.size(), user.groups.data()) != 0 ||
        syscall(SYS_setresgid, user.gid, user.gid, user.gid) != 0 ||
        syscall(SYS_setresuid, user.uid, user.uid, user.uid) != 0)
      return errno;
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  WriteDecimal(plan.pid_digits, syscall(SYS_getpid));
  // Signals as a new program expects them.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int each = 1; each < 65; ++each) sigaction(each, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(plan.program, plan.arguments, plan.environment);
  return errno;
}

// fork(2) with a pidfd, and without the handlers that libraries have registered. Other threads may hold locks, so the
// child calls nothing but what is safe in a signal handler, until it execs or ends. Pid 0: this is the child.
absl::StatusOr<StartedWorker> Fork() {
  constexpr int kClonePidfd = 0x1000;  // CLONE_PIDFD
  int pidfd = -1;
  // Without a stack of its own the child has a copy of ours. The pidfd's place is the third argument on both
  // architectures.
  const long pid = syscall(SYS_clone, kClonePidfd | SIGCHLD, nullptr, &pidfd, nullptr, nullptr);
  if (pid < 0) return absl::ErrnoToStatus(errno, "start a process");
  return StartedWorker{static_cast<pid_t>(pid), net::UniqueFd(pid == 0 ? -1 : pidfd)};
}

[[noreturn]] void RunChild(const Plan& plan) {
  int error_pipe = plan.error_pipe;
  const int error = Become(plan, error_pipe);
  [[maybe_unused]] const ssize_t written = write(error_pipe, &error, sizeof(error));
  _exit(127);
}

constexpr int kMessagesAtATime = 256;

pid_t WriterOf(msghdr& header) {
  const cmsghdr* const part = CMSG_FIRSTHDR(&header);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) return 0;
  ucred writer;
  memcpy(&writer, CMSG_DATA(part), sizeof(writer));
  return writer.pid;
}

}  // namespace

absl::StatusOr<Launcher> Launcher::Create(const Settings& settings) {
  Launcher launcher(settings);
  if (settings.command.empty())
    return absl::InvalidArgumentError("which command? It stands behind --: run ... -- CMD...");
  const auto program = FindProgram(launcher.CommandOf(0)[0]);
  if (!program.ok()) return program.status();
  launcher.program_ = *program;
  return launcher;
}

std::vector<std::string> Launcher::CommandOf(int slot) const {
  std::vector<std::string> words;
  for (const std::string& word : settings_.command)
    words.push_back(absl::StrReplaceAll(word, {{"%%", "%"}, {"%s", absl::StrCat(slot)}}));
  return words;
}

std::vector<std::string> Launcher::EnvironmentOf(int slot) const {
  std::vector<std::string> names = {"LISTEN_FDS",    "LISTEN_FDNAMES", "LISTEN_PID",         "NOTIFY_SOCKET",
                                    "WATCHDOG_USEC", "WATCHDOG_PID",   "HEDGEROW_STEER_SLOT"};
  if (!settings_.user.name.empty()) names.insert(names.end(), {"USER", "LOGNAME", "HOME"});
  std::vector<std::string> out;
  for (char** each = environ; *each != nullptr; ++each) {
    const absl::string_view name = absl::string_view(*each).substr(0, absl::string_view(*each).find('='));
    if (std::find(names.begin(), names.end(), name) == names.end()) out.emplace_back(*each);
  }
  std::vector<std::string> transports;
  for (const Transport transport : settings_.transports()) transports.push_back(TransportText(transport));
  out.push_back(absl::StrCat("LISTEN_FDS=", transports.size()));
  out.push_back(absl::StrCat("LISTEN_FDNAMES=", absl::StrJoin(transports, ":")));
  out.push_back(absl::StrCat("NOTIFY_SOCKET=", settings_.places.notify()));
  out.push_back(absl::StrCat("HEDGEROW_STEER_SLOT=", slot));
  if (settings_.heartbeat > absl::ZeroDuration()) {
    out.push_back(absl::StrCat("WATCHDOG_USEC=", absl::ToInt64Microseconds(settings_.heartbeat)));
  }
  if (!settings_.user.name.empty()) {
    out.push_back(absl::StrCat("USER=", settings_.user.name));
    out.push_back(absl::StrCat("LOGNAME=", settings_.user.name));
    out.push_back(absl::StrCat("HOME=", settings_.user.home));
  }
  out.push_back(absl::StrCat(kPidVariable, std::string(24, '\0')));
  return out;
}

absl::StatusOr<StartedWorker> Launcher::Start(int slot, const std::vector<int>& sockets) const {
  std::vector<std::string> command = CommandOf(slot);
  std::vector<std::string> environment = EnvironmentOf(slot);
  const std::vector<char*> arguments = Pointers(command);
  const std::vector<char*> variables = Pointers(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "make a pipe to a worker");
  const net::UniqueFd reading(ends[0]);
  net::UniqueFd writing(ends[1]);
  const net::UniqueFd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.valid()) return absl::ErrnoToStatus(errno, "open /dev/null");
  const Plan plan{.program = program_.c_str(),
                  .arguments = arguments.data(),
                  .environment = variables.data(),
                  .pid_digits = environment.back().data() + kPidVariable.size(),
                  .sockets = sockets.data(),
                  .socket_count = static_cast<int>(sockets.size()),
                  .error_pipe = writing.get(),
                  .input = input.get(),
                  .user = &settings_.user};
  auto forked = Fork();
  if (!forked.ok()) return forked.status();
  if (forked->pid == 0) RunChild(plan);
  writing.Reset();
  int error = 0;
  ssize_t got;
  do got = read(reading.get(), &error, sizeof(error));
  while (got < 0 && errno == EINTR);
  if (got == sizeof(error)) {
    ReapExit(forked->pidfd);
    return absl::FailedPreconditionError(absl::StrCat("cannot run ", program_, ": ", strerror(error)));
  }
  return forked;
}

std::string ReapExit(const net::UniqueFd& pidfd) {
  siginfo_t info{};
  if (waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd.get()), &info, WEXITED) != 0)
    return "ended, of an earlier supervisor";
  if (info.si_code == CLD_EXITED) return absl::StrCat("exit ", info.si_status);
  const char* name = sigabbrev_np(info.si_status);
  return absl::StrCat("signal ", info.si_status, name == nullptr ? "" : absl::StrCat(" (", name, ")"));
}

absl::Duration RestartDelay(int failures) {
  if (failures <= 1) return absl::Milliseconds(20);
  return std::min(absl::Seconds(5), absl::Milliseconds(50) * (1 << std::min(failures - 2, 10)));
}

absl::StatusOr<NotifySocket> NotifySocket::Open(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path ", path, " is too long for a socket; choose a shorter --run-dir or --name"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  net::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  unlink(path.c_str());
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0666) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make the workers' socket ", path));
  }
  return NotifySocket(std::move(fd));
}

bool NotifySocket::Read(const std::function<void(const Notice&)>& visit) const {
  for (int i = 0; i < kMessagesAtATime; ++i) {
    char text[4096];
    iovec part{.iov_base = text, .iov_len = sizeof(text)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};  // no place for descriptors: the kernel closes them
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return i > 0;
    Notice notice{.pid = WriterOf(header)};
    for (const absl::string_view line : absl::StrSplit(absl::string_view(text, static_cast<size_t>(got)), '\n')) {
      notice.ready |= line == "READY=1";
      notice.watchdog |= line == "WATCHDOG=1";
      notice.stopping |= line == "STOPPING=1";
    }
    if (notice.pid > 0) visit(notice);
  }
  return true;
}

}  // namespace hedgerow::steer
