// SPDX-License-Identifier: Apache-2.0
//
// The files of a log as it is written: batches go to the end of the last one, whole files go from the beginning
// once a snapshot has made them superfluous, and are used again. The next file is made ready before it is
// needed, by a thread that may wait for the disk, so that an append in memory mode is one write into a file
// that is there. DurableLog appends; LogStorage's compactor calls the rest.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/types.h"
#include "cluster/storage/load_progress.h"
#include "net/unique_fd.h"
#include "cluster/storage/log_reader.h"
#include "cluster/storage/segment_file.h"

namespace hedgerow::storage {

class Segments {
 public:
  // How many files wait to be used again; more are removed.
  static constexpr size_t kPoolMax_files = 8;

  struct Options {
    std::string log_path;
    uint64_t copy_id = 0;
    size_t file_bytes = 0;
    bool sync = false;                 // an append is durable when it returns
    LoadProgress* progress = nullptr;  // of Open
  };

  // Of a log that was read and is whole. What it holds is on the disk when this returns, and is written to it
  // once more from batch `unsynced_from` on: a page whose sync has failed is clean to Linux and not on the
  // disk.
  static absl::StatusOr<std::unique_ptr<Segments>> Open(Options options, const ReadLog& found, uint64_t unsynced_from);

  // Of one thread at a time. `last`: the log's end after the batch. ResourceExhausted: the disk is full,
  // nothing is lost, call it again. Unavailable, if it may not wait: the next file is not there yet. Any other
  // error is final.
  absl::Status Append(std::string& record, raft::LogIndex last, bool may_wait) ABSL_LOCKS_EXCLUDED(mutex_);

  // One thread: what was appended before is on the disk when this returns, but for files in which nothing later
  // than `start` stands, which are about to go. False: it could not be done. After a sync that has failed it
  // never can, and nothing is appended from then on: Linux may report the next one as good.
  bool Sync(raft::LogIndex start = raft::LogIndex()) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: the log begins after `start`, which is synced. Files in which nothing later stands are used
  // again or removed.
  void DropUpTo(raft::LogIndex start) ABSL_LOCKS_EXCLUDED(mutex_);

  // That the log stands in.
  size_t files() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool wants_spare() const { return wants_spare_.load(std::memory_order_relaxed); }
  // Any thread that may wait for the disk.
  absl::Status PrepareSpare() ABSL_LOCKS_EXCLUDED(mutex_, preparing_);

 private:
  struct File {
    std::string path;
    std::shared_ptr<const net::UniqueFd> open;  // of the last one only, and of a Sync that is under way
    uint64_t salt = 0;
    size_t bytes = 0;          // of the file
    size_t end = kPage_bytes;  // of whole records
    size_t synced_end = kPage_bytes;
    size_t padded_end = kPage_bytes;  // up to here pages were written whole
    raft::LogIndex reached{};         // the furthest entry that the log has had, up to here
  };

  explicit Segments(Options options) : options_(std::move(options)) {}
  absl::Status TakeOver(const FoundSegment& found, uint64_t unsynced_from);
  void BeginFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteRecord(const std::shared_ptr<File>& file, std::string& record, raft::LogIndex last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::atomic<bool> wants_spare_ = true;

  absl::Mutex preparing_ ABSL_ACQUIRED_BEFORE(mutex_);
  uint64_t next_name_ ABSL_GUARDED_BY(preparing_) = 1;

  mutable absl::Mutex mutex_;
  // In the order of their batches; the last one is written to. Shared with a Sync that is under way.
  std::deque<std::shared_ptr<File>> files_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<File> spare_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> pool_ ABSL_GUARDED_BY(mutex_);
  // The newest one of which a record is synced. What comes after may be lost, so it stays.
  std::shared_ptr<const File> synced_ ABSL_GUARDED_BY(mutex_);
  raft::LogIndex reached_ ABSL_GUARDED_BY(mutex_);
  absl::Status sync_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::storage
