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
#include "cluster/storage/descriptor.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/record_bytes.h"
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
  RecordReader reader(bytes.substr(kMagic.size()));
  const uint64_t version = reader.Number(4);
  const uint64_t length = reader.Number(4);
  if (version > kBackupVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the backup ", path, " has format ", version, ", and this program reads formats up to ",
                     kBackupVersion, ": restore it with the version of the program that wrote it"));
  }
  if (bytes.size() != kBackupHeader_bytes || length != kBody_bytes) return Damaged(path, "it is cut short");
  RecordReader checksum(bytes.substr(bytes.size() - 4));
  if (checksum.Number(4) != Checksum(kChecksumKey, bytes.substr(0, bytes.size() - 4))) {
    return Damaged(path, "its header has a wrong checksum");
  }
  BackupHeader header;
  header.cluster_id = reader.Number(8);
  for (RecoveryGeneration* const generation : {&header.of, &header.begins}) {
    generation->epoch = reader.Number(8);
    generation->nonce = reader.Number(8);
  }
  header.node = raft::NodeId(reader.Number(8));
  header.last.index = raft::LogIndex(reader.Number(8));
  header.last.term = raft::Term(reader.Number(8));
  header.made_s = reader.Number(8);
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
  AppendNumber(bytes, kBackupVersion, 4);
  AppendNumber(bytes, kBody_bytes, 4);
  for (const uint64_t value :
       {header.cluster_id, header.of.epoch, header.of.nonce, header.begins.epoch, header.begins.nonce,
        header.node.value(), header.last.index.value(), header.last.term.value(), header.made_s, uint64_t{0}}) {
    AppendNumber(bytes, value, 8);
  }
  AppendNumber(bytes, Checksum(kChecksumKey, bytes), 4);
  HEDGEROW_CHECK(bytes.size() == kBackupHeader_bytes);
  return bytes;
}

absl::StatusOr<Backup> OpenBackup(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok() && errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no file ", path));
  if (!file.ok()) return FromErrno(path, "open", errno);
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
