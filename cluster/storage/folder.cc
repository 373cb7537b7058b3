// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "net/unique_fd.h"
#include "cluster/storage/errors.h"

namespace hedgerow::storage {

bool IsPartOfLog(std::string_view name) {
  return name == "segments" || name == "snapshots" || name == "log-header" || name == "watermark" || name == "rocksdb";
}

absl::Status MakeFolder(const std::string& path) {
  const bool made = mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return FromErrno(path, "make", errno);
  const std::string parent = std::filesystem::absolute(path).parent_path();
  const net::UniqueFd folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A parent that this user cannot read; its owner has made the folder, too.
  if (!folder.valid() && errno == EACCES && !made) return absl::OkStatus();
  if (!folder.valid() || fsync(folder.get()) != 0) return FromErrno(parent, "sync the folder", errno);
  return absl::OkStatus();
}

absl::Status SyncParent(const std::string& path) { return SyncFolder(std::filesystem::absolute(path).parent_path()); }

absl::Status SyncFolder(const std::string& path) {
  const net::UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || fsync(folder.get()) != 0) return FromErrno(path, "sync the folder", errno);
  return absl::OkStatus();
}

absl::Status WriteAll(int file, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FromErrno(path, "write", written < 0 ? errno : ENOSPC);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

namespace {

absl::Status WriteAndSync(const net::UniqueFd& file, const std::string& path, const std::string& text) {
  if (!file.valid()) return FromErrno(path, "write", errno);
  if (absl::Status status = WriteAll(file.get(), path, text); !status.ok()) return status;
  return fsync(file.get()) == 0 ? absl::OkStatus() : FromErrno(path, "write", errno);
}

}  // namespace

absl::Status WriteSynced(const std::string& path, const std::string& text) {
  const net::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (absl::Status status = WriteAndSync(file, path, text); !status.ok()) return status;
  return SyncParent(path);
}

absl::Status ReplaceSynced(const std::string& path, const std::string& text) {
  const std::string unfinished = absl::StrCat(path, ".unfinished");
  if (absl::Status status = WriteSynced(unfinished, text); !status.ok()) return status;
  if (rename(unfinished.c_str(), path.c_str()) != 0) return FromErrno(path, "write", errno);
  return SyncParent(path);
}

// Of two at once each has a file of its own until one of them gets the name.
absl::Status CreateSynced(const std::string& path, const std::string& text) {
  std::string unfinished = absl::StrCat(path, ".XXXXXX");
  const net::UniqueFd file(mkostemp(unfinished.data(), O_CLOEXEC));
  absl::Status status = WriteAndSync(file, path, text);
  if (status.ok() && link(unfinished.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? absl::AlreadyExistsError(absl::StrCat(path, " is there already"))
                             : FromErrno(path, "make", errno);
  }
  if (file.valid()) (void)unlink(unfinished.c_str());
  return status.ok() ? SyncParent(path) : status;
}

absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path) {
  const net::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  if (!file.valid()) return FromErrno(path, "read", errno);
  std::string text;
  std::array<char, 4096> some;
  while (true) {
    const ssize_t size = read(file.get(), some.data(), some.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return FromErrno(path, "read", errno);
    if (size == 0) return text;
    text.append(some.data(), static_cast<size_t>(size));
  }
}

}  // namespace hedgerow::storage
