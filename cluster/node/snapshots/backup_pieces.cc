// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/snapshots/backup_pieces.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <utility>

#include "net/unique_fd.h"
#include "cluster/storage/errors.h"

namespace hedgerow::node {
namespace {

constexpr size_t kPiece_bytes = 64 * 1024;

struct Reading {
  std::string path;
  std::string header;  // until it was given
  net::UniqueFd file;
};

absl::StatusOr<std::string> Next(Reading& reading) {
  if (!reading.header.empty()) return std::exchange(reading.header, {});
  std::string piece(kPiece_bytes, '\0');
  ssize_t got = 0;
  do {
    got = read(reading.file.get(), piece.data(), piece.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return storage::FromErrno(reading.path, "read", errno);
  piece.resize(static_cast<size_t>(got));
  return piece;
}

}  // namespace

absl::StatusOr<BackupPieces> ReadBackup(storage::BackupHeader header, const std::string& snapshot_path) {
  if (header.last.index == raft::LogIndex()) {
    return absl::FailedPreconditionError("there is no snapshot yet: nothing was ever applied here");
  }
  header.begins = storage::NextGeneration(header.of);
  header.made_s = static_cast<uint64_t>(time(nullptr));
  net::UniqueFd file(open(snapshot_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return storage::FromErrno(snapshot_path, "open", errno);
  const auto reading = std::make_shared<Reading>(
      Reading{.path = snapshot_path, .header = storage::EncodeBackupHeader(header), .file = std::move(file)});
  return BackupPieces([reading] { return Next(*reading); });
}

}  // namespace hedgerow::node
