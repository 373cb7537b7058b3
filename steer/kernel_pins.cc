// SPDX-License-Identifier: Apache-2.0
#include "steer/kernel_pins.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "net/bpffs.h"
#include "net/unique_fd.h"

namespace hedgerow::steer {
namespace {

constexpr size_t kMaxName = 64;
constexpr int kLockTries = 10;

std::string Parent(const std::string& bpffs) { return absl::StrCat(bpffs, "/hedgerow-steer"); }

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error && error != std::errc::no_such_file_or_directory)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("removing ", path));
  return absl::OkStatus();
}

// The parent folder, locked: only one process at a time makes or removes groups. A folder that the holder
// before us removed is made anew.
absl::StatusOr<net::UniqueFd> LockParent(const std::string& parent) {
  for (int attempt = 0; attempt < kLockTries; ++attempt) {
    if (mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST)
      return absl::ErrnoToStatus(errno, absl::StrCat("making ", parent));
    net::UniqueFd fd(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", parent));
    if (absl::Status status = net::CheckPinFolder(parent); !status.ok()) return status;
    if (flock(fd.get(), LOCK_EX) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("locking ", parent));
    struct stat locked {
    }, there{};
    if (fstat(fd.get(), &locked) == 0 && stat(parent.c_str(), &there) == 0 && locked.st_ino == there.st_ino) return fd;
  }
  return absl::UnavailableError(absl::StrCat(parent, ": other processes make and remove it all the time"));
}

}  // namespace

absl::Status CheckGroupName(const std::string& name) {
  const bool known = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
  if (!name.empty() && name.size() <= kMaxName && known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no name of a group: letters, digits, '-' and '_', at most ", kMaxName, " of them"));
}

std::string GroupPinDir(const std::string& bpffs, const std::string& name) {
  return absl::StrCat(Parent(bpffs), "/", name);
}

absl::Status MakeGroupPins(const std::string& bpffs, const std::string& name,
                           const std::function<absl::Status(const std::string&)>& pin) {
  if (const auto mounted = net::EnsureBpffs(bpffs); !mounted.ok()) return mounted.status();
  const auto lock = LockParent(Parent(bpffs));
  if (!lock.ok()) return lock.status();
  const std::string path = GroupPinDir(bpffs, name);
  const std::string unfinished = absl::StrCat(path, "+");  // no group has such a name
  if (access(path.c_str(), F_OK) == 0)
    return absl::AlreadyExistsError(absl::StrCat("the group '", name, "' has pins in ", path));
  absl::Status status = RemoveTree(unfinished);
  if (status.ok() && mkdir(unfinished.c_str(), 0700) != 0)
    status = absl::ErrnoToStatus(errno, absl::StrCat("making ", unfinished));
  if (status.ok()) status = pin(unfinished);
  if (status.ok() && rename(unfinished.c_str(), path.c_str()) != 0)
    status = absl::ErrnoToStatus(errno, absl::StrCat("making ", path));
  if (status.ok()) return status;
  RemoveTree(unfinished).IgnoreError();
  rmdir(Parent(bpffs).c_str());  // fails while another group is there, and shall
  net::ReleaseBpffs(bpffs).IgnoreError();
  return status;
}

absl::Status RemoveGroupPins(const std::string& bpffs, const std::string& name) {
  if (absl::Status status = CheckGroupName(name); !status.ok()) return status;
  if (access(Parent(bpffs).c_str(), F_OK) != 0) return absl::OkStatus();
  {
    const auto lock = LockParent(Parent(bpffs));
    if (!lock.ok()) return lock.status();
    // Unfinished again first: the next start must find no half of a group where this is cut short.
    const std::string path = GroupPinDir(bpffs, name), unfinished = absl::StrCat(path, "+");
    absl::Status status = RemoveTree(unfinished);
    if (status.ok() && rename(path.c_str(), unfinished.c_str()) != 0 && errno != ENOENT)
      status = absl::ErrnoToStatus(errno, absl::StrCat("removing ", path));
    if (status.ok()) status = RemoveTree(unfinished);
    if (!status.ok()) return status;
    rmdir(Parent(bpffs).c_str());
  }
  return net::ReleaseBpffs(bpffs).status();
}

}  // namespace hedgerow::steer
