// SPDX-License-Identifier: Apache-2.0
//
// One node's log and hard state in a RocksDB database, without threads: it gathers what is to be persisted into
// a batch and commits that; in memory mode to a journal, which RocksDB takes over at the next start. What
// RocksDB leaves to its user is done here: which end of a write-ahead log may be missing, whose log it is,
// whether it links up, and going on after a full disk. LogStorage calls it, one thread at a time.
//
// A handle on which a write has failed is thrown away, and the database is opened again, which is what happens
// after a crash, too. DB::Resume is not used: if the memtable was empty, the next write after it ends the
// process with a failed assertion (Debian's 7.8.3, seen) or fails for good, because the log file keeps its
// error; and it does not know of quotas.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/storage/journal.h"
#include "cluster/storage/log_tail.h"
#include "cluster/storage/storage_options.h"
#include "cluster/storage/watermark.h"

namespace hedgerow::storage {

class RocksLog {
 public:
  // Errors as in errors.h. What it restores is durable when it returns, whatever mode it was written in.
  static absl::StatusOr<std::unique_ptr<RocksLog>> Open(const StorageOptions& options,
                                                        const StoredIdentity& identity);
  // In memory mode it syncs what was written, so that the log survives a restart of the host.
  ~RocksLog();
  RocksLog(const RocksLog&) = delete;
  RocksLog& operator=(const RocksLog&) = delete;

  raft::RestoredState TakeRestored() { return std::move(restored_); }
  const raft::Configuration& began_with() const { return began_with_; }
  const Origin& origin() const { return origin_; }
  uint64_t log_id() const { return log_id_; }

  // Adds to the batch being gathered. Not between a commit that failed and one that succeeds.
  void Gather(const raft::Persist& persist);

  // Writes the batch as one, durably as the options say. ResourceExhausted (the disk is full): nothing is lost,
  // call it again. Any other error is final.
  absl::Status Commit();

  // Any thread: syncs what was committed, in memory mode as well, and so that the log begins after `start`, but
  // for what DropUpTo removes then. False: it could not be done, and nothing may be removed that the log of
  // before needs.
  bool StartIsDurable(raft::LogIndex start);
  // Any thread: removes what the log does not begin with any more, durably. Entries up to `index` may be gone
  // when it returns.
  void DropUpTo(raft::LogIndex index) ABSL_LOCKS_EXCLUDED(db_mutex_);

  uint64_t reopened() const { return reopened_; }

 private:
  RocksLog(StorageOptions options, Watermark watermark);

  std::string database_path() const { return options_.path + "/rocksdb"; }
  absl::Status OpenDatabase();
  absl::Status Restore(const StoredIdentity& identity, uint64_t last_batch_in_wal);
  absl::Status TakeOverJournal();
  absl::Status BeginJournal();
  absl::Status TryCommit();
  absl::Status WriteToRocks();
  void CloseDatabase();
  absl::Status WriteIdentity(const StoredIdentity& identity, bool converting);
  bool HoldsFormerKeys() const;
  absl::Status ForgetFormerKeys();
  absl::Status MakeDurable();
  absl::Status Reopen();
  absl::Status ProbeSpace() const;
  absl::Status WriteWatermark();

  const StorageOptions options_;
  Watermark watermark_;
  rocksdb::Options database_options_;
  // Null between a write that failed and the next attempt. Changed by the thread that commits, under the lock,
  // so that DropUpTo does not lose it while it is at work.
  absl::Mutex db_mutex_;
  std::unique_ptr<rocksdb::DB> db_;
  std::unique_ptr<Journal> journal_;  // in memory mode: takes the batches in RocksDB's place
  raft::RestoredState restored_;
  raft::Configuration began_with_;
  Origin origin_;  // as it was when the log was opened, for good
  uint64_t log_id_ = 0;

  LogTail tail_;  // with the batch being gathered
  rocksdb::WriteBatch batch_;
  bool finished_ = false;  // batch_ has its state record
  absl::Status final_error_;
  uint64_t committed_batch_ = 0;
  uint64_t reopened_ = 0;
};

}  // namespace hedgerow::storage
