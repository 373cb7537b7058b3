// SPDX-License-Identifier: Apache-2.0
#include "dst/driver/disk.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dst/driver/process.h"

namespace hedgerow::dst {
namespace {

constexpr int kAnswersWithin_ms = 30'000;

}  // namespace

absl::StatusOr<std::unique_ptr<UnsyncedDisk>> UnsyncedDisk::Mount(const std::string& backing, const std::string& mount,
                                                                  const std::string& log) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  const net::UniqueFd its_input(in[0]), its_output(out[1]);
  auto disk = std::unique_ptr<UnsyncedDisk>(new UnsyncedDisk());
  disk->to_.Reset(in[1]);
  disk->from_.Reset(out[0]);
  const absl::StatusOr<pid_t> pid = Start({.argv = {"hr-unsynced-fs", backing, mount},
                                           .errors = log,
                                           .input_fd = its_input.get(),
                                           .output_fd = its_output.get()});
  if (!pid.ok()) return pid.status();
  disk->pid_ = *pid;
  const absl::StatusOr<std::string> said = disk->Line();
  if (!said.ok()) return said.status();
  if (*said != "ready") return absl::InternalError(absl::StrCat(mount, ": it says '", *said, "'"));
  return disk;
}

UnsyncedDisk::~UnsyncedDisk() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> UnsyncedDisk::Cut(const std::string& torn) {
  const std::string command = torn.empty() ? "cut\n" : absl::StrCat("cut ", torn, "\n");
  if (write(to_.get(), command.data(), command.size()) != static_cast<ssize_t>(command.size())) {
    return absl::ErrnoToStatus(errno, "cannot ask the disk");
  }
  absl::StatusOr<std::string> answer = Line();
  if (answer.ok() && absl::StrContains(*answer, "\"error\"")) return absl::InternalError(*answer);
  return answer;
}

absl::StatusOr<std::string> UnsyncedDisk::Line() {
  std::string line;
  for (char next = 0;;) {
    pollfd readable{.fd = from_.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, kAnswersWithin_ms) != 1) return absl::DeadlineExceededError("the disk does not answer");
    if (read(from_.get(), &next, 1) != 1) return absl::UnavailableError("the disk has ended");
    if (next == '\n') return line;
    line.push_back(next);
  }
}

}  // namespace hedgerow::dst
