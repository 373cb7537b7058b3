// SPDX-License-Identifier: Apache-2.0
#include "net/bpffs.h"

#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace hedgerow::net {
namespace {

constexpr char kMountSource[] = "hedgerow";
constexpr char kParent[] = "hedgerow";
constexpr mode_t kFolderMode = 0700;

absl::StatusOr<bool> IsBpffs(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("look at ", path));
  return static_cast<uint32_t>(info.f_type) == BPF_FS_MAGIC;
}

// The source of the topmost mount at `path`; "" when it is no mount point. A line of mountinfo reads
// "36 35 98:0 /root /mount/point options... - type source superoptions".
std::string MountSource(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) return "";
  std::ifstream mounts("/proc/thread-self/mountinfo");
  std::string source;
  for (std::string line; std::getline(mounts, line);) {
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<std::string> left = absl::StrSplit(halves[0], ' ');
    if (halves.size() != 2 || left.size() < 5 || left[4] != resolved) continue;
    const std::vector<std::string> right = absl::StrSplit(halves[1], ' ');
    source = right.size() > 1 ? right[1] : "";
  }
  return source;
}

// A fresh bpffs is not empty: kernels with CONFIG_BPF_PRELOAD put two iterators there.
bool HasOnlyTheKernelsOwnPins(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name != "progs.debug" && name != "maps.debug") return false;
  }
  return !error;
}

absl::Status CheckInstance(const std::string& instance) {
  const bool bad = instance.empty() || instance[0] == '.' || instance.find('/') != std::string::npos;
  if (!bad) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", instance, "' is no instance name"));
}

absl::Status MakeDir(const std::string& path) {
  if (mkdir(path.c_str(), kFolderMode) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("make ", path));
}

}  // namespace

absl::Status CheckPinFolder(const std::string& path) {
  const std::string above = std::filesystem::path(path).parent_path().string();
  struct stat info {
  }, parent{};
  if (lstat(path.c_str(), &info) != 0 || stat(above.c_str(), &parent) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("look at ", path));
  const bool made_by_us = info.st_uid == 0 || info.st_uid == geteuid() || (parent.st_mode & S_IWOTH) == 0;
  const bool closed = (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (info.st_mode & S_ISVTX) != 0;
  if (S_ISDIR(info.st_mode) && made_by_us && closed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s is another user's or can be changed by others (owner %d, mode %04o%s), and so could what is pinned there: "
      "look at who may write to %s (`mount -o remount,mode=0700 %s`), and remove it or run `chmod 0700 %s`",
      path, info.st_uid, info.st_mode & 07777, S_ISDIR(info.st_mode) ? "" : ", no folder", above, above, path));
}

absl::StatusOr<bool> EnsureBpffs(const std::string& path) {
  const auto mounted = IsBpffs(path);
  if (!mounted.ok()) return mounted.status();
  if (*mounted) {
    if (absl::Status status = CheckPinFolder(path); !status.ok()) return status;
    return false;
  }
  std::error_code error;
  if (!std::filesystem::is_empty(path, error) || error) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not an empty folder, and a bpffs mounted there would hide what is in it: name ",
                     kDefaultBpffs, " or an empty folder"));
  }
  if (mount(kMountSource, path.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mount a bpffs at ", path, " (needs CAP_SYS_ADMIN)"));
  }
  return true;
}

absl::StatusOr<bool> ReleaseBpffs(const std::string& path) {
  const auto mounted = IsBpffs(path);
  if (absl::IsNotFound(mounted.status())) return false;
  if (!mounted.ok()) return mounted.status();
  if (!*mounted || MountSource(path) != kMountSource) return false;
  if (!HasOnlyTheKernelsOwnPins(path)) return false;
  if (umount2(path.c_str(), UMOUNT_NOFOLLOW) == 0) return true;
  if (errno == EBUSY) return false;  // A process still uses it, perhaps as its working directory.
  return absl::ErrnoToStatus(errno, absl::StrCat("unmount ", path));
}

std::string PinDir(const std::string& bpffs, const std::string& instance) {
  return absl::StrCat(bpffs, "/", kParent, "/", instance);
}

absl::StatusOr<std::string> MakePinDir(const std::string& bpffs, const std::string& instance) {
  if (absl::Status status = CheckInstance(instance); !status.ok()) return status;
  const std::string path = PinDir(bpffs, instance);
  for (const std::string& folder : {absl::StrCat(bpffs, "/", kParent), path}) {
    absl::Status status = MakeDir(folder);
    if (status.ok()) status = CheckPinFolder(folder);
    if (!status.ok()) return status;
  }
  return path;
}

absl::Status RemovePinDir(const std::string& bpffs, const std::string& instance) {
  if (absl::Status status = CheckInstance(instance); !status.ok()) return status;
  const std::string path = PinDir(bpffs, instance);
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("remove ", path));
  }
  // The parent goes with the last instance; while another is there this fails, and shall. One that an administrator
  // made for other users (tmpfiles.d) has another mode than ours, and stays.
  const std::string parent = absl::StrCat(bpffs, "/", kParent);
  struct stat info {};
  if (stat(parent.c_str(), &info) == 0 && (info.st_mode & 07777) == kFolderMode) rmdir(parent.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListPinnedInstances(const std::string& bpffs) {
  std::vector<std::string> instances;
  std::error_code error;
  std::filesystem::directory_iterator entries(absl::StrCat(bpffs, "/", kParent), error);
  if (error == std::errc::no_such_file_or_directory) return instances;
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("list the instances below ", bpffs));
  for (const auto& entry : entries) {
    if (entry.is_directory(error)) instances.push_back(entry.path().filename().string());
  }
  return instances;
}

}  // namespace hedgerow::net
