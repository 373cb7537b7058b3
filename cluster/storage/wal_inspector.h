// SPDX-License-Identifier: Apache-2.0
//
// Reads RocksDB's write-ahead logs before they are opened for use, and says which batches are whole in them.
// RocksDB opens a log up to the first record that it cannot read and drops the rest without a word
// (kPointInTimeRecovery), and it can step over zeros; a batch was synced before the next one was
// begun, so a batch missing before another is damage, while one torn at the very end is what a crash leaves.
// Called by RocksLog::Open and ReadStoppedLog; it changes nothing. For logs that were not synced batch by
// batch (memory mode of programs from before the journal), WalPrefix reads what comes before the first gap.

#pragma once

#include <cstdint>
#include <string>

#include <rocksdb/options.h>
#include <rocksdb/wal_filter.h>

#include "absl/status/statusor.h"
#include "cluster/raft/types.h"

namespace hedgerow::storage {

struct WalContents {
  uint64_t batches = 0;
  uint64_t first_batch = 0;  // 0: none
  uint64_t last_batch = 0;
  // Of the log, as far as its tables say; 0: they do not. Batches of a later format may look like damage.
  uint32_t format = 0;
  uint64_t last_batch_in_tables = 0;  // 0: none, or they do not say
  raft::LogIndex last_in_tables{};    // entry; of the same state
  raft::LogIndex log_begins{};        // after this one, says the last batch
  std::string damage;                 // what is missing or wrong between the two; empty if nothing
};

// `folder` is RocksDB's, `options` those that it will be opened with.
absl::StatusOr<WalContents> InspectWal(const std::string& folder, const rocksdb::Options& options);

// Lets batches into the database up to the first one that is missing. A power cut can take the end of one log
// file of memory mode and leave the file that follows; RocksDB reads both. To be set as `wal_filter`.
class WalPrefix : public rocksdb::WalFilter {
 public:
  explicit WalPrefix(uint64_t last_batch_in_tables) : last_batch_(last_batch_in_tables) {}

  WalProcessingOption LogRecordFound(unsigned long long log, const std::string& file,
                                     const rocksdb::WriteBatch& batch, rocksdb::WriteBatch* changed,
                                     bool* is_changed) override;
  const char* Name() const override { return "hedgerow.wal_prefix"; }

 private:
  uint64_t last_batch_;
};

}  // namespace hedgerow::storage
