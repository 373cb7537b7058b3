// SPDX-License-Identifier: Apache-2.0
#include "operate/file_opener.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "net/pass_fd.h"

namespace hedgerow::operate {
namespace {

int opener = -1;  // set before there are threads

int OpenFile(const std::string& path) { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

std::string Normal(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

// Answers with errno, or 0 and a descriptor, until the daemon has ended.
void ServeOpens(int socket, const std::vector<std::string>& folders) {
  char path[PATH_MAX];
  net::UniqueFd none;
  for (ssize_t bytes = 0; (bytes = net::ReceiveWithFd(socket, path, sizeof(path), none)) > 0;) {
    const std::string wanted = Normal(std::string(path, static_cast<size_t>(bytes)));
    const bool allowed = std::any_of(folders.begin(), folders.end(), [&wanted](const std::string& folder) {
      return absl::StartsWith(wanted, absl::StrCat(folder, "/"));
    });
    const net::UniqueFd fd(allowed ? OpenFile(wanted) : -1);
    const int error = fd.valid() ? 0 : allowed ? errno : EACCES;
    net::SendWithFd(socket, &error, sizeof(error), fd.get());
  }
}

}  // namespace

int OpenToRead(const std::string& path) {
  const int fd = OpenFile(path);
  if (fd >= 0 || errno != EACCES || opener < 0) return fd;
  static absl::Mutex one_at_a_time(absl::kConstInit);
  const absl::MutexLock lock(&one_at_a_time);
  const std::string wanted = Normal(path);
  int error = EACCES;  // where the opener is gone
  net::UniqueFd answer;
  if (net::SendWithFd(opener, wanted.data(), wanted.size(), -1) > 0)
    net::ReceiveWithFd(opener, &error, sizeof(error), answer);
  errno = error == 0 && !answer.valid() ? EMFILE : error;  // this process had no number left for it
  return answer.Release();
}

absl::StatusOr<FileText> ReadText(const std::string& path, size_t max_bytes) {
  const auto refused = [](const auto&... why) { return absl::InvalidArgumentError(absl::StrCat(why...)); };
  const net::UniqueFd fd(OpenToRead(path));
  if (!fd.valid()) return refused("cannot be opened: ", strerror(errno));
  FileText read;
  if (fstat(fd.get(), &read.info) != 0 || !S_ISREG(read.info.st_mode))
    return refused(S_ISDIR(read.info.st_mode) ? "is a directory, expected a file" : "is no regular file");
  read.text.resize(max_bytes + 1);
  size_t bytes = 0;
  while (bytes < read.text.size()) {
    const ssize_t got = ::read(fd.get(), read.text.data() + bytes, read.text.size() - bytes);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refused("cannot be read: ", strerror(errno));
    bytes += static_cast<size_t>(got);
  }
  read.text.resize(bytes);
  return read;
}

void StartFileOpener(const std::vector<std::string>& folders, const std::function<bool()>& confine) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    // What ends the daemon ends this process, by its end of the pair alone.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    dup2(ends[1], STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    if (confine()) ServeOpens(STDIN_FILENO, folders);
    _exit(0);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return;
  }
  opener = ends[0];
}

}  // namespace hedgerow::operate
