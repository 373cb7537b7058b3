// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/backup_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "net/unique_fd.h"
#include "cluster/storage/errors.h"
#include "cluster/raft/bytes.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

constexpr std::string_view kMagic = "hedgerow backup\n";
constexpr std::string_view kChecksumKey = "backup";
constexpr size_t kBody_bytes = kBackupHeader_bytes - kMagic.size() - 12;

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("the backup ", path, " is damaged: ", what, ". Nothing was done with it: take another one"));
}

absl::StatusOr<BackupHeader> Parse(const std::string& path, std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) return Damaged(path, "it is no backup");
  ByteReader reader(bytes.substr(kMagic.size()));
  const uint64_t version = reader.Get<uint32_t>();
  const uint64_t length = reader.Get<uint32_t>();
  if (version > kBackupVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the backup ", path, " has format ", version,
                                                      ", and this program reads formats up to ", kBackupVersion,
                                                      ": restore it with the version of the program that wrote it"));
  }
  if (bytes.size() != kBackupHeader_bytes || length != kBody_bytes) return Damaged(path, "it is cut short");
  ByteReader checksum(bytes.substr(bytes.size() - 4));
  if (checksum.Get<uint32_t>() != Checksum(kChecksumKey, bytes.substr(0, bytes.size() - 4))) {
    return Damaged(path, "its header has a wrong checksum");
  }
  BackupHeader header;
  header.cluster_id = reader.Get<uint64_t>();
  for (RecoveryGeneration* const generation : {&header.of, &header.begins}) {
    generation->epoch = reader.Get<uint64_t>();
    generation->nonce = reader.Get<uint64_t>();
  }
  header.node = raft::NodeId(reader.Get<uint64_t>());
  header.last.index = raft::LogIndex(reader.Get<uint64_t>());
  header.last.term = raft::Term(reader.Get<uint64_t>());
  header.made_s = reader.Get<uint64_t>();
  return header;
}

}  // namespace

RecoveryGeneration NextGeneration(const RecoveryGeneration& of) {
  std::random_device device;
  RecoveryGeneration next{.epoch = of.epoch + 1};
  while (next.nonce == 0) next.nonce = static_cast<uint64_t>(device()) << 32 | device();
  return next;
}

std::string EncodeBackupHeader(const BackupHeader& header) {
  std::string bytes(kMagic);
  AppendNumber<uint32_t>(bytes, kBackupVersion);
  AppendNumber<uint32_t>(bytes, kBody_bytes);
  for (const uint64_t value :
       {header.cluster_id, header.of.epoch, header.of.nonce, header.begins.epoch, header.begins.nonce,
        header.node.value(), header.last.index.value(), header.last.term.value(), header.made_s, uint64_t{0}}) {
    AppendNumber<uint64_t>(bytes, value);
  }
  AppendNumber<uint32_t>(bytes, Checksum(kChecksumKey, bytes));
  HEDGEROW_CHECK(bytes.size() == kBackupHeader_bytes);
  return bytes;
}

absl::StatusOr<Backup> OpenBackup(const std::string& path) {
  const net::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no file ", path));
  if (!file.valid()) return FromErrno(path, "open", errno);
  std::string bytes(kBackupHeader_bytes, '\0');
  const ssize_t got = pread(file.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return FromErrno(path, "read", errno);
  bytes.resize(static_cast<size_t>(got));
  absl::StatusOr<BackupHeader> header = Parse(path, bytes);
  if (!header.ok()) return header.status();
  absl::StatusOr<std::unique_ptr<SnapshotReader>> snapshot = SnapshotReader::Open(path, kBackupHeader_bytes);
  if (!snapshot.ok()) return snapshot.status();
  const SnapshotHeader& inside = (*snapshot)->header();
  if (inside.cluster_id != header->cluster_id || inside.snapshot.last != header->last) {
    return Damaged(path, "its header is not that of what it holds");
  }
  return Backup{.header = *header, .snapshot = *std::move(snapshot)};
}

}  // namespace hedgerow::storage
