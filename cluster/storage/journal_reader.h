// SPDX-License-Identifier: Apache-2.0
//
// Reads a journal (journal.h) and says which of its batches continue what RocksDB's tables hold. A torn end is
// what a crash leaves. Files at the beginning may be gone, with all that stood in them: the log begins later
// then. Any other gap is damage. Changes nothing. Called by RocksLog::Open and ReadStoppedLog.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <rocksdb/write_batch.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"

namespace hedgerow::storage {

class JournalReader {
 public:
  // Of the log in `log_path`; `batch_in_tables` is the last one in RocksDB, 0 if none is there any more.
  static absl::StatusOr<JournalReader> Open(const std::string& log_path, uint64_t log_id,
                                            uint64_t batch_in_tables);

  bool empty() const { return files_.empty(); }
  // The last one that ForEach gives; that in the tables if it gives none.
  uint64_t last_batch() const { return last_batch_; }
  // What is missing before batches that are there, and that ForEach passes over; empty: nothing.
  const std::string& damage() const { return damage_; }

  size_t bytes() const;  // of the files, about

  // Every batch after those in the tables, in order. Ends with the first error of `take`.
  absl::Status ForEach(const std::function<absl::Status(rocksdb::WriteBatch batch)>& take) const;

 private:
  struct File {
    std::string path;
    size_t bytes = 0;
    uint64_t first_batch = 0;
    uint64_t last_batch = 0;      // first_batch - 1: none is whole
    raft::LogIndex reached{};     // before it
    raft::LogIndex log_begins{};  // after this one, says its last batch
  };

  static absl::StatusOr<File> Look(const std::string& path, uint64_t log_id);
  void Choose(std::vector<File> found, uint64_t batch_in_tables);

  uint64_t log_id_ = 0;
  uint64_t batch_in_tables_ = 0;
  uint64_t last_batch_ = 0;
  std::vector<File> files_;  // without a gap between them
  std::string damage_;
};

}  // namespace hedgerow::storage
