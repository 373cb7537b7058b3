// SPDX-License-Identifier: Apache-2.0
#include "operate/unix_socket.h"

#include <errno.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::operate {
namespace {

std::optional<gid_t> FindGroup(const std::string& name) {
  gid_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  std::vector<char> buffer(1 << 16);
  group found{};
  group* result = nullptr;
  if (getgrnam_r(name.c_str(), &found, buffer.data(), buffer.size(), &result) != 0 || result == nullptr)
    return std::nullopt;
  return found.gr_gid;
}

absl::Status MakeFolder(const std::string& path, const std::string& what) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make the folder of the ", what, " ", path, ": ", error.message()));
}

}  // namespace

int KnockOnUnixSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // The queue of a process that is stopped stays full.
  const timeval timeout{.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  const int error = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// A socket on which a process accepts connections is another process's. A file that is no socket is not ours to
// replace.
absl::Status PrepareUnixSocket(const std::string& path, const UnixSocketOptions& options) {
  if (absl::Status made = MakeFolder(path, options.what); !made.ok()) return made;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat("the ", options.what, "'s path ", path, " exists and is no socket"));
  }
  const int error = KnockOnUnixSocket(path);
  if (error == 0 || error == EAGAIN) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process listens on the ", options.what, " ", path, "; ", options.hint));
  }
  // Refused, or gone since: no process listens. After any other error a process may well listen, because the
  // socket may be another user's or of another kind.
  if (error == ECONNREFUSED || error == ENOENT) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot tell whether another process listens on the ", options.what,
                                                    " ", path, " (", strerror(error), "); ", options.hint));
}

absl::StatusOr<net::UniqueFd> ListenOnUnixSocket(const std::string& path, const UnixSocketOptions& options) {
  std::optional<gid_t> group;
  if (!options.group.empty()) {
    group = FindGroup(options.group);
    if (!group.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the socket ", path, " is for the group ", options.group,
          ", which does not exist on this host: make it (groupadd --system ", options.group, "), or name another one"));
    }
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on the ", options.what, " ", path, ": the path is too long"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  net::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "open a unix socket");
  unlink(path.c_str());  // a dead process's (PrepareUnixSocket)
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on the ", options.what, " ", path, ": ", strerror(errno)));
  }
  const auto made = [&]() -> absl::Status {
    // The rights are right before it listens: until then the kernel refuses connections.
    if (group.has_value() && lchown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("give the socket ", path, " to the group ", options.group,
                                                     " (the program's user must be a member, or root)"));
    }
    if (chmod(path.c_str(), group.has_value() ? 0660 : 0600) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("chmod of ", path));
    if (listen(fd.get(), options.backlog) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("listen on ", path));
    return absl::OkStatus();
  }();
  if (made.ok()) return fd;
  unlink(path.c_str());
  return made;
}

}  // namespace hedgerow::operate
