// SPDX-License-Identifier: Apache-2.0
//
// The newest part of a log in memory mode: batches in plain files, one behind the other. There durable means in
// the page cache, so a batch costs one system call, and RocksDB, which would keep a second copy in memory and
// write a third one into a table, gets it at the next start if it is still needed then; mostly a snapshot has
// made it superfluous (docs/adr/0025). Written by RocksLog; journal_reader.h reads it.
//
// A file begins with which log it is of, its first batch, and the furthest entry that the log had reached
// before it. Records follow: length, checksum, number of the batch, the batch as RocksDB's own bytes. Nothing
// is ever written over but what a failed write has left. Files are dropped from the oldest on.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/types.h"
#include "cluster/storage/descriptor.h"

namespace hedgerow::storage {

inline constexpr std::string_view kJournalMagic = "hrjourn1";
inline constexpr size_t kJournalHeader_bytes = 8 + 3 * 8 + 4;
inline constexpr size_t kJournalRecordHead_bytes = 4 + 4 + 8;

std::string JournalFolderOf(const std::string& log_path);
// What both sides seal with: which log and which batch it is, so that no record is taken for another.
uint32_t JournalChecksum(uint64_t log_id, uint64_t number, std::string_view bytes);

class Journal {
 public:
  // In the folder of the log. What an earlier life has left there is removed: the caller has taken it over.
  // `reached`: the last entry that the log has.
  static absl::StatusOr<std::unique_ptr<Journal>> Create(const std::string& log_path, uint64_t log_id,
                                                         raft::LogIndex reached, size_t file_bytes);

  // All of it, if there is one.
  static absl::Status Remove(const std::string& log_path);

  // Of one thread at a time. `batch` is one more than that of the call before, and `last` the log's end after
  // it. ResourceExhausted: the disk is full, nothing is lost, call it again. Any other error is final.
  absl::Status Append(uint64_t batch, raft::LogIndex last, std::string_view bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // One thread: what was appended before is on the disk when this returns, but for files in which nothing later
  // than `start` stands, which are about to go. False: it could not be done. After a sync that has failed it
  // never can, and nothing is appended from then on: Linux may report the next one as good.
  bool Sync(raft::LogIndex start = raft::LogIndex()) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: the log begins after `start`, which is synced. Removes whole files in which nothing later
  // stands.
  void DropUpTo(raft::LogIndex start) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct File {
    std::shared_ptr<const Descriptor> open;  // of the last one only, and of a Sync that is under way
    std::string path;
    uint64_t first_batch = 0;
    size_t bytes = 0;  // of whole records, with the header
    size_t synced_bytes = 0;
    raft::LogIndex reached{};  // the furthest entry that the log has had, up to its end
  };

  Journal(std::string folder, uint64_t log_id, raft::LogIndex reached, size_t file_bytes)
      : folder_(std::move(folder)), log_id_(log_id), file_bytes_(file_bytes), reached_(reached) {}
  absl::Status Begin(uint64_t batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const uint64_t log_id_;
  const size_t file_bytes_;
  uint64_t last_batch_ = 0;  // appended; of the thread that appends

  absl::Mutex mutex_;
  // In order; the last one is written to. Shared with a Sync that is under way.
  std::deque<std::shared_ptr<File>> files_ ABSL_GUARDED_BY(mutex_);
  raft::LogIndex reached_ ABSL_GUARDED_BY(mutex_);
  absl::Status sync_error_ ABSL_GUARDED_BY(mutex_);
  // Of the file with the last batch that is synced. What comes after it may be lost, so it stays.
  uint64_t synced_file_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hedgerow::storage
