// SPDX-License-Identifier: Apache-2.0
//
// The log of a node that does not run, read and not changed: also one that its node may not go on with, since
// its end may be missing (docs/adr/0019). Used by `hedgerow-node recover`, which says what is in doubt.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/snapshot_choice.h"
#include "cluster/storage/storage_options.h"
#include "cluster/storage/watermark.h"

namespace hedgerow::storage {

struct StoppedLog {
  Watermark lock;  // no node can start on the folder as long as this is there
  RecoveryGeneration generation{};
  uint64_t copy_id = 0;
  raft::RestoredState raft{};
  raft::EntryId last{};
  std::vector<std::string> doubts{};  // sentences: why something may be missing that was acknowledged
};

// `load` as in snapshot_choice.h; called with the snapshot that the log goes on from, if there is one. A
// snapshot that goes further than the log stands for all of it. Unavailable: a node runs on it. DataLoss: not
// even a beginning of it can be read.
absl::StatusOr<StoppedLog> ReadStoppedLog(const StorageOptions& options, const StoredIdentity& expected,
                                          const LoadSnapshot& load);

// Which recovery generation of its cluster the log is of, and nothing else.
absl::StatusOr<RecoveryGeneration> ReadGenerationOfStopped(const StorageOptions& options,
                                                           const StoredIdentity& expected);

}  // namespace hedgerow::storage
