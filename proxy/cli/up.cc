// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow up`: starts hedgerowd in a session of its own, with its output in a log file, and returns when it serves,
// or with its error and exit code. Where a daemon serves this very configuration already, nothing is left to do.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "operate/unit.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/cli/running_daemon.h"
#include "proxy/start/readiness.h"
#include "net/capabilities.h"
#include "net/unique_fd.h"

namespace hedgerow::cli {
namespace {

constexpr char kLogFolder[] = "/var/log/hedgerow";

// hedgerowd stands beside this program.
absl::StatusOr<std::string> DaemonPath() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / "hedgerowd").string();
  if (error || access(path.c_str(), X_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot run ", path, ": ", strerror(errno)));
  }
  return path;
}

absl::StatusOr<net::UniqueFd> OpenLog(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  net::UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot write the log ", path, ": ", strerror(errno)));
  }
  return fd;
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void Become(const std::string& daemon, const std::string& config, int log, int report) {
  setsid();
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  // A lock or a pipe of the caller would be held as long as the daemon runs; it inherits `report` alone.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  fcntl(report, F_SETFD, 0);
  char number[16];
  snprintf(number, sizeof(number), "%d", report);
  if (chdir("/") != 0) _exit(kExitFailure);
  execl(daemon.c_str(), "hedgerowd", "--config", config.c_str(), "--ready-fd", number, nullptr);
  _exit(127);
}

std::string HowItEnded(pid_t pid) {
  int state = 0;
  if (waitpid(pid, &state, 0) != pid) return "";
  if (WIFSIGNALED(state)) return absl::StrCat(" (signal ", WTERMSIG(state), ")");
  return absl::StrCat(" (exit code ", WEXITSTATUS(state), ")");
}

}  // namespace

int RunUp(const Call& call) {
  const absl::StatusOr<v1::Config> config = RequireConfig(call.arguments);
  if (!config.ok()) return call.Fail(config.status());
  // Before a log file is opened, so that a user without privilege hears of that and nothing else.
  absl::Status status = net::RequireCapabilities(net::kCapabilitiesAlways);
  if (!status.ok()) return call.Fail(status);
  if (const auto running = FindRunningDaemon(*config, call.arguments.Get("config")); running.has_value()) {
    const std::string who = absl::StrCat("instance ", config->instance(), ", pid ", running->status.pid());
    if (running->reload.changes_size() + running->reload.problems_size() > 0) {
      return call.Fail(
          kExitFailure,
          absl::StrCat(who, ", is up already, under another configuration: `hedgerow plan --config ",
                       call.arguments.Get("config"), "` shows what differs, `hedgerow reload` applies it"));
    }
    v1::UpReport up;
    up.set_instance(config->instance());
    up.set_pid(running->status.pid());
    return call.Print(up, absl::StrCat("up already: ", who, ", serves this configuration\n"));
  }
  const absl::StatusOr<std::string> daemon = DaemonPath();
  if (!daemon.ok()) return call.Fail(daemon.status());
  std::error_code error;
  const std::string config_path = std::filesystem::absolute(call.arguments.Get("config"), error).string();
  const std::string log_path =
      std::filesystem::absolute(call.arguments.Get("log", absl::StrCat(kLogFolder, "/", config->instance(), ".log")),
                                error)
          .string();
  const absl::StatusOr<net::UniqueFd> log = OpenLog(log_path);
  if (!log.ok()) return call.Fail(log.status());

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return call.Fail(absl::ErrnoToStatus(errno, "making a pipe"));
  const net::UniqueFd reading(ends[0]);
  net::UniqueFd writing(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return call.Fail(absl::ErrnoToStatus(errno, "starting hedgerowd"));
  if (pid == 0) Become(*daemon, config_path, log->get(), writing.get());
  writing.Reset();
  StartReport report = ReadStartReport(reading.get());
  if (!report.ready) {
    const std::string end = HowItEnded(pid);
    if (report.text == kDiedSilently) report.text = absl::StrCat(kDiedSilently, end, "; its log is ", log_path);
    return call.Fail(report.exit_code, report.text);
  }
  v1::UpReport up;
  up.set_instance(config->instance());
  up.set_pid(pid);
  up.set_log(log_path);
  if (!report.text.empty()) call.err << "it serves with problems, and follows the network:\n" << report.text << "\n";
  return call.Print(
      up,
      absl::StrCat("up: instance ", config->instance(), ", pid ", pid, ", log ", log_path, "\n",
                   access(operate::kProxyUnit, F_OK) == 0 ? "`systemctl start hedgerowd` starts it confined\n" : ""));
}

}  // namespace hedgerow::cli
