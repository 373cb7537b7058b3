// SPDX-License-Identifier: Apache-2.0
//
// One node's log and hard state on disk, without threads: it gathers what is to be persisted into a batch and
// commits that as one record. Whose log it is, whether what is found is whole, and what of it was durable is
// settled here when it is opened. LogStorage calls it, one thread at a time.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/storage/log_tail.h"
#include "cluster/storage/segments.h"
#include "cluster/storage/storage_options.h"
#include "cluster/storage/watermark.h"

namespace hedgerow::storage {

class DurableLog {
 public:
  // Errors as in errors.h. What it restores is durable when it returns, whatever mode it was written in.
  static absl::StatusOr<std::unique_ptr<DurableLog>> Open(const StorageOptions& options,
                                                          const StoredIdentity& identity);
  // In memory mode it syncs what was written, so that the log survives a restart of the host.
  ~DurableLog();
  DurableLog(const DurableLog&) = delete;
  DurableLog& operator=(const DurableLog&) = delete;

  raft::RestoredState TakeRestored() { return std::move(restored_); }
  const raft::Configuration& began_with() const { return header_.began_with; }
  const RecoveryGeneration& generation() const { return header_.generation; }
  uint64_t copy_id() const { return header_.copy_id; }

  // Adds to the batch being gathered. Not between a commit that failed and one that succeeds.
  void Gather(const raft::Persist& persist);

  // Writes the batch as one, durably as the options say. ResourceExhausted (the disk is full): nothing is lost,
  // call it again. Unavailable, if it may not wait: it would have to wait for the disk; call it again from a
  // thread that may. Any other error is final.
  absl::Status Commit(bool may_wait = true);

  // Any thread: syncs what was committed, in memory mode as well, and so that the log begins after `start`, but
  // for what DropUpTo removes then. False: it could not be done, and nothing may be removed that the log of
  // before needs.
  bool StartIsDurable(raft::LogIndex start) { return options_.sync || segments_->Sync(start); }
  // Any thread: files in which nothing after `index` stands are used again or removed; a power cut may bring some of
  // them back.
  void DropUpTo(raft::LogIndex index) { segments_->DropUpTo(index); }
  // Any thread.
  bool wants_spare() const { return segments_->wants_spare(); }
  // Any thread that may wait for the disk. What fails here fails again when it is needed, and is told then.
  bool PrepareSpare() { return segments_->PrepareSpare().ok(); }

 private:
  DurableLog(StorageOptions options, Watermark watermark, LogHeader header);

  absl::Status Begin();
  absl::Status Restore(const Watermark::Value& mark);
  absl::Status TryCommit(bool may_wait);
  absl::Status WriteWatermark();
  absl::Status CheckThere(bool may_wait);

  const StorageOptions options_;
  Watermark watermark_;
  const LogHeader header_;
  std::unique_ptr<Segments> segments_;
  raft::RestoredState restored_;

  LogTail tail_;                   // with the batch being gathered
  std::string* record_ = nullptr;  // of tail_, once the batch is to be committed
  absl::Status final_error_;
  uint64_t committed_batch_ = 0;
  std::chrono::steady_clock::time_point looked_at_{};  // whether the folder is there
};

}  // namespace hedgerow::storage
