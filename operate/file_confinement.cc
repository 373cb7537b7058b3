// SPDX-License-Identifier: Apache-2.0
#include "operate/file_confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "operate/file_opener.h"

namespace hedgerow::operate {
namespace {

// By number: Debian 12's headers are of Linux 6.1, and know neither the later rights nor all of the names.
constexpr uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3;
constexpr uint64_t kRefer = 1 << 13;     // to rename between folders; since 5.19 (version 2)
constexpr uint64_t kTruncate = 1 << 14;  // since 6.2 (version 3)
constexpr uint64_t kOfVersion2 = (kRefer << 1) - 1;
// What the kernel takes in a rule for a file that is no folder.
constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate;
constexpr int kLeastVersion = 2;
constexpr int kVersionOfTruncate = 3;

// Libraries that are loaded late (the name service), what they read, and the kernel's view of itself.
constexpr const char* kAlwaysRead[] = {"/usr",
                                       "/lib",
                                       "/lib64",
                                       "/proc",
                                       "/sys",
                                       "/dev/null",
                                       "/dev/urandom",
                                       "/etc/passwd",
                                       "/etc/group",
                                       "/etc/nsswitch.conf",
                                       "/etc/ld.so.cache",
                                       "/etc/localtime"};

uint64_t RightsOf(FileAccess::Kind kind, uint64_t handled) {
  return kind == FileAccess::Kind::kRead ? kReadFile | kReadDir : handled & ~kExecute;
}

absl::Status Allow(int ruleset, const std::string& path, uint64_t rights) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();  // it grants nothing
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  struct stat info {};
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("look at ", path));
  if (!S_ISDIR(info.st_mode)) rights &= kOfFiles;
  if (rights == 0) return absl::OkStatus();
  const landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = fd};
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("allow ", path, " by Landlock"));
}

absl::Status Restrict(int ruleset) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return absl::ErrnoToStatus(errno, "set no_new_privs");
  if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
    return absl::ErrnoToStatus(errno, "put Landlock's rules in force");
  return absl::OkStatus();
}

}  // namespace

absl::Status ConfineFiles(const std::vector<FileAccess>& allowed) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 0) {
    return absl::UnimplementedError(errno == EOPNOTSUPP ? "Landlock is switched off on this host (lsm= of the kernel)"
                                    : errno == EPERM    ? "the calls of Landlock are not allowed (SystemCallFilter=)"
                                                        : "this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK)");
  }
  if (version < kLeastVersion) return absl::UnimplementedError("this kernel's Landlock is of before Linux 5.19");
  const uint64_t handled = kOfVersion2 | (version >= kVersionOfTruncate ? kTruncate : 0);
  const landlock_ruleset_attr attributes{.handled_access_fs = handled};
  const int ruleset =
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes.handled_access_fs), 0));
  if (ruleset < 0) return absl::ErrnoToStatus(errno, "make rules of Landlock");
  const auto closer = absl::MakeCleanup([ruleset] { close(ruleset); });
  // libbpf opens the root folder where it wants no more than a descriptor's number (bpf_map__reuse_fd), and a node
  // syncs the folder above its own.
  if (absl::Status status = Allow(ruleset, "/", kReadDir); !status.ok()) return status;
  for (const char* path : kAlwaysRead) {
    if (absl::Status status = Allow(ruleset, path, RightsOf(FileAccess::Kind::kRead, handled)); !status.ok())
      return status;
  }
  for (const FileAccess& access : allowed) {
    if (absl::Status status = Allow(ruleset, access.path, RightsOf(access.kind, handled)); !status.ok()) return status;
  }
  std::vector<std::string> folders;
  for (const FileAccess& access : allowed)
    if (access.kind == FileAccess::Kind::kRead) folders.push_back(access.path);
  // It reads, and does nothing else.
  StartFileOpener(folders, [&attributes] {
    const auto reads =
        static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes.handled_access_fs), 0));
    return reads >= 0 && Allow(reads, "/", kReadFile | kReadDir).ok() && Restrict(reads).ok();
  });
  return Restrict(ruleset);
}

void AllowReading(const std::string& file, std::vector<FileAccess>& allowed) {
  std::error_code error;
  const std::filesystem::path named = std::filesystem::absolute(file, error);
  allowed.push_back({named.parent_path().string(), FileAccess::Kind::kRead});
  const std::filesystem::path meant = std::filesystem::canonical(named, error);
  if (!error && meant.parent_path() != named.parent_path())
    allowed.push_back({meant.parent_path().string(), FileAccess::Kind::kRead});
}

void AllowMaking(const std::string& file, std::vector<FileAccess>& allowed) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
  std::filesystem::create_directories(folder, error);  // what stands in the way is reported when the file is made
  allowed.push_back({folder.string(), FileAccess::Kind::kWrite});
}

}  // namespace hedgerow::operate
