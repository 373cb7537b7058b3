// SPDX-License-Identifier: Apache-2.0
#include "operate/instance_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

std::string ReadPid(int fd) {
  char text[32] = "";
  const ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text, got > 0 ? got : 0)));
}

// Whether the path still names the file behind the descriptor: its last owner may have removed it between our
// open and our lock.
bool StillThere(const std::string& path, int fd) {
  struct stat by_path {};
  struct stat by_fd {};
  return stat(path.c_str(), &by_path) == 0 && fstat(fd, &by_fd) == 0 && by_path.st_ino == by_fd.st_ino &&
         by_path.st_dev == by_fd.st_dev;
}

absl::Status Failed(int error, const std::string& what) {
  const absl::Status status = absl::ErrnoToStatus(error, what);
  return error == EROFS || error == ENOSPC ? absl::AbortedError(status.message()) : status;
}

}  // namespace

absl::StatusOr<InstanceLock> InstanceLock::Acquire(const std::string& folder, const std::string& instance,
                                                   const std::string& what) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Failed(error.value(), absl::StrCat("cannot make ", folder));
  const std::string path = absl::StrCat(folder, "/", instance, ".lock");
  // Each turn lost means that another owner came and went in between.
  for (int turn = 0; turn < 100; ++turn) {
    net::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    // Another user's, who may hold it; whether that one does, and its pid, can be read.
    if (!fd.valid() && errno == EACCES) fd.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) return Failed(errno, absl::StrCat("opening ", path));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat("locking ", path));
      const std::string pid = ReadPid(fd.get());
      return absl::AlreadyExistsError(absl::StrCat(what, " \"", instance, "\" is already running",
                                                   pid.empty() ? "" : absl::StrCat(" as pid ", pid),
                                                   "; take it down first, or choose another ", what, " name"));
    }
    if (!StillThere(path, fd.get())) continue;
    const std::string pid = absl::StrCat(getpid(), "\n");
    if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
      return Failed(errno, absl::StrCat("writing ", path));
    }
    return InstanceLock(path, std::move(fd));
  }
  return absl::UnavailableError(absl::StrCat("cannot lock ", path));
}

InstanceLock::~InstanceLock() {
  if (fd_.valid() && StillThere(path_, fd_.get())) unlink(path_.c_str());  // not one that has been made since
}

}  // namespace hedgerow
