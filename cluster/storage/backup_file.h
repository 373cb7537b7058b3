// SPDX-License-Identifier: Apache-2.0
//
// A file that a cluster can be recovered from (docs/adr/0019): a header of its own, and behind it a snapshot as
// in snapshot_file.h, whose checksums cover the contents. `backup` and `recover` write one; `restore` makes a
// log of it. Little-endian:
//
//   magic, format version, length of the rest; cluster, the recovery generation it is of, the recovery
//   generation that begins with it, node, index, term, when it was made; checksum

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/snapshot_file.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// Raised when an older program could misread what a newer one writes; what was written before is read for ever.
inline constexpr uint32_t kBackupVersion = 1;
inline constexpr size_t kBackupHeader_bytes = 108;

struct BackupHeader {
  uint64_t cluster_id = 0;
  RecoveryGeneration of{};      // the cluster it was made of
  RecoveryGeneration begins{};  // the cluster that begins with it
  raft::NodeId node{};
  raft::EntryId last{};  // what it holds ends here
  uint64_t made_s = 0;   // since 1970, as the node's host had it

  bool operator==(const BackupHeader&) const = default;
};

// The generation after `of`, in which no node has taken part yet.
RecoveryGeneration NextGeneration(const RecoveryGeneration& of);

std::string EncodeBackupHeader(const BackupHeader& header);

struct Backup {
  BackupHeader header{};
  std::unique_ptr<SnapshotReader> snapshot{};  // at its beginning
};

// DataLoss: it is damaged, or none. FailedPrecondition: a format of a later program.
absl::StatusOr<Backup> OpenBackup(const std::string& path);

}  // namespace hedgerow::storage
