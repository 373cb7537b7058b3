// SPDX-License-Identifier: Apache-2.0
//
// Reads RocksDB's write-ahead logs before they are opened for use, and says which batches are whole in them.
// RocksDB opens a log up to the first record that it cannot read and drops the rest without a word
// (kPointInTimeRecovery), and it can step over zeros; a batch was synced before the next one was
// begun, so a batch missing before another is damage, while one torn at the very end is what a crash leaves.
// Called once by RocksLog::Open; it changes nothing.

#ifndef HEDGEROW_CLUSTER_STORAGE_WAL_INSPECTOR_H_
#define HEDGEROW_CLUSTER_STORAGE_WAL_INSPECTOR_H_

#include <cstdint>
#include <string>

#include <rocksdb/options.h>

#include "absl/status/statusor.h"

namespace hedgerow::storage {

struct WalContents {
  uint64_t batches = 0;
  uint64_t first_batch = 0;  // 0: none
  uint64_t last_batch = 0;
  // Of the log, as far as its tables say; 0: they do not. Batches of a later format may look like damage.
  uint32_t format = 0;
  std::string damage;  // what is missing or wrong between the two; empty if nothing
};

// `folder` is RocksDB's, `options` those that it will be opened with.
absl::StatusOr<WalContents> InspectWal(const std::string& folder, const rocksdb::Options& options);

}  // namespace hedgerow::storage

#endif  // HEDGEROW_CLUSTER_STORAGE_WAL_INSPECTOR_H_
