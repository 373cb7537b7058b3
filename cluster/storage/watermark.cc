// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/watermark.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/raft/bytes.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

// One sector, which a disk writes as a whole: checksum, batch, unsynced, length of the boot id, boot id, zeros.
constexpr size_t kFile_bytes = 128;
constexpr size_t kBootIdMax = 64;
constexpr std::string_view kChecksumKey = "hedgerow watermark 1";

std::string Encode(const Watermark::Value& value) {
  HEDGEROW_CHECK(value.boot_id.size() <= kBootIdMax);
  std::string body;
  AppendNumber<uint64_t>(body, value.batch);
  AppendNumber<uint8_t>(body, value.unsynced ? 1 : 0);
  AppendNumber<uint8_t>(body, value.boot_id.size());
  body += value.boot_id;
  body.resize(kFile_bytes - 4);
  std::string bytes;
  AppendNumber<uint32_t>(bytes, Checksum(kChecksumKey, body));
  return bytes + body;
}

}  // namespace

std::string KernelBootId() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  return boot_id;
}

absl::StatusOr<Watermark> Watermark::Open(const std::string& path, bool must_exist) {
  Watermark watermark(absl::StrCat(path, "/watermark"));
  const int create = must_exist ? 0 : O_CREAT;
  watermark.file_ = net::UniqueFd(open(watermark.path_.c_str(), O_RDWR | O_CLOEXEC | create, 0600));
  if (!watermark.file_.valid()) {
    if (errno == ENOENT) {
      return DamagedError(path, "the file `watermark` is missing, so it is unknown whether the rest is whole");
    }
    return FromErrno(watermark.path_, "open", errno);
  }
  if (flock(watermark.file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FromErrno(watermark.path_, "lock", errno);
    return absl::FailedPreconditionError(
        absl::StrCat("the log in ", path,
                     " is in use by another process: is this node running already? Two nodes need two folders"));
  }
  if (absl::Status status = watermark.Read(must_exist); !status.ok()) return status;
  if (watermark.value_ == Value{} && !must_exist) {
    for (const absl::Status& status : {watermark.Write({}), watermark.Sync(), SyncFolder(path)}) {
      if (!status.ok()) return status;
    }
  }
  return watermark;
}

absl::Status Watermark::Read(bool must_exist) {
  std::array<char, kFile_bytes> buffer{};
  const ssize_t size = pread(file_.get(), buffer.data(), buffer.size(), 0);
  if (size < 0) return FromErrno(path_, "read", errno);
  // Made by a process that died before it wrote to it, and so before it made the rest.
  if (size == 0 && !must_exist) return absl::OkStatus();

  const std::string_view bytes(buffer.data(), static_cast<size_t>(size));
  ByteReader reader(bytes);
  const uint64_t checksum = reader.Get<uint32_t>();
  Value value;
  value.batch = reader.Get<uint64_t>();
  value.unsynced = reader.Get<uint8_t>() != 0;
  const size_t boot_id_bytes = reader.Get<uint8_t>();
  const std::string_view rest = reader.GetRest();
  if (bytes.size() != kFile_bytes || checksum != Checksum(kChecksumKey, bytes.substr(4)) ||
      boot_id_bytes > kBootIdMax) {
    return DamagedError(std::filesystem::path(path_).parent_path().native(),
                        "the file `watermark` is not what was written to it");
  }
  value.boot_id = std::string(rest.substr(0, boot_id_bytes));
  value_ = value;
  return absl::OkStatus();
}

absl::Status Watermark::Write(const Value& value) {
  const std::string bytes = Encode(value);
  ssize_t written = 0;
  do {
    written = pwrite(file_.get(), bytes.data(), bytes.size(), 0);
  } while (written < 0 && errno == EINTR);
  if (written < 0) return FromErrno(path_, "write", errno);
  if (static_cast<size_t>(written) != bytes.size()) return FromErrno(path_, "write", ENOSPC);
  value_ = value;
  return absl::OkStatus();
}

bool Watermark::IsThere(bool may_wait) const {
  struct stat opened {};
  struct stat named {};
  if (fstat(file_.get(), &opened) != 0) return true;  // says nothing of the name
  if (opened.st_nlink == 0 || !may_wait) return opened.st_nlink != 0;
  if (stat(path_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

absl::Status Watermark::Sync() {
  if (fdatasync(file_.get()) != 0) return FromErrno(path_, "sync", errno);
  return absl::OkStatus();
}

}  // namespace hedgerow::storage
