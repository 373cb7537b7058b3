// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cluster/storage/descriptor.h"
#include "cluster/storage/errors.h"

namespace hedgerow::storage {

absl::Status MakeFolder(const std::string& path) {
  const bool made = mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return FromErrno(path, "make", errno);
  const std::string parent = std::filesystem::absolute(path).parent_path();
  const Descriptor folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A parent that only others can read, who have made the folder, too.
  if (!folder.ok() && errno == EACCES && !made) return absl::OkStatus();
  if (!folder.ok() || fsync(folder.get()) != 0) return FromErrno(parent, "sync the folder", errno);
  return absl::OkStatus();
}

absl::Status SyncParent(const std::string& path) {
  return SyncFolder(std::filesystem::absolute(path).parent_path());
}

absl::Status SyncFolder(const std::string& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok() || fsync(folder.get()) != 0) return FromErrno(path, "sync the folder", errno);
  return absl::OkStatus();
}

absl::Status WriteSynced(const std::string& path, const std::string& text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.ok() || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(file.get()) != 0) {
    return FromErrno(path, "write", errno);
  }
  return SyncParent(path);
}

}  // namespace hedgerow::storage
