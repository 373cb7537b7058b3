// SPDX-License-Identifier: Apache-2.0
//
// The durable log and hard state of a node, as cluster/node uses it: writes go in, the highest durable sequence
// comes out, and an eventfd tells when. One thread writes; what gathers while it syncs becomes the next batch,
// so a sync is shared by everything that waited for it (group commit). While syncs are quick the owner may commit on
// its own thread (CommitHere), and in memory mode Write does the work itself.
//
// A full disk delays: writes wait in order and are tried again, and health() says so. Any other failed write is
// final: nothing is reported durable any more, and the node must end, because what a disk holds after a failed
// sync can only be learned by reading it again.

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "net/steady_wait.h"
#include "net/unique_fd.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/log_compactor.h"
#include "cluster/storage/snapshot_choice.h"
#include "cluster/storage/snapshot_folder.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// Whether a disk's syncs are so quick that their owner may wait for them. A few that take longer than `quick_ns` are
// borne; after one of ten times that, which the lease of a follower that waits would not bear, it is long so no more.
class QuickSyncs {
 public:
  explicit QuickSyncs(uint64_t quick_ns) : quick_ns_(quick_ns) {}
  void Took(uint64_t duration_ns) {
    if (duration_ns <= quick_ns_) {
      credit_ = std::min(credit_ + 1, kMost);
    } else {
      credit_ = duration_ns > 10 * quick_ns_ ? kAfterStall : std::min(credit_, credit_ / 2);
    }
  }
  bool hold() const { return credit_ >= kEnough; }

 private:
  // Quick syncs: before the owner waits for one, that are remembered, and that a stall outweighs.
  static constexpr int32_t kEnough = 32, kMost = 128, kAfterStall = -20'000;
  uint64_t quick_ns_;
  int32_t credit_ = 0;
};

class LogStorage {
 public:
  // Reads the whole log, and a snapshot if there is one (`load`: snapshot_choice.h), so it takes its time. Its
  // errors say what to do; errors.h lists their codes.
  static absl::StatusOr<std::unique_ptr<LogStorage>> Open(const StorageOptions& options, const StoredIdentity& expected,
                                                          const LoadSnapshot& load = ReadThrough);
  // Writes what waits, unless the disk is full: what was not reported durable may then be missing.
  ~LogStorage();
  LogStorage(const LogStorage&) = delete;
  LogStorage& operator=(const LogStorage&) = delete;

  // The owner's thread: the five below, and no other thread.
  //
  // What was found at Open; empty when called again.
  raft::RestoredState TakeRestored();
  // What the log began with, whatever StorageOptions::begins_with says by now.
  const raft::Configuration& began_with() const { return began_with_; }
  // Which recovery generation of its cluster the log is of.
  const RecoveryGeneration& generation() const { return log_->generation(); }
  // Which log it is: drawn when it began, never 0.
  uint64_t copy_id() const { return log_->copy_id(); }
  // Never refuses and never waits for the disk. Sequences must grow. Without sync it is durable on return, as a
  // rule: a full disk sends it to the thread, and so does a next file that is not ready yet. `here`: the owner calls
  // CommitHere before it sleeps.
  void Write(raft::Persist persist, bool here = false);
  // Commits on this thread what was left for it: while the disk is quick, being woken by another thread and waking it
  // takes longer than the sync. False: there was nothing.
  bool CommitHere();
  // The highest sequence up to which everything is durable; 0 is none yet.
  uint64_t TakeDurable();
  // Readable when TakeDurable() has something new that a Write did not leave behind on return, or health() has
  // changed, until ReadEvent(). An owner calls that whenever it finds the descriptor readable, and takes what is
  // durable after it.
  int event_fd() const { return event_.get(); }
  void ReadEvent();
  // What was wrong with snapshots at Open, for the operator; empty as a rule.
  const std::string& snapshot_trouble() const { return snapshot_trouble_; }

  // Any thread.
  //
  // OK; ResourceExhausted while the disk is full; anything else is final.
  absl::Status health() const;
  // How long the owner's thread has been in its present CommitHere; 0: it is in none.
  uint64_t here_for_ns() const;
  StorageStatistics statistics() const;
  // Where snapshots are written and received. Once one is published there, the core may hear of it.
  const SnapshotFolder& snapshots() const { return snapshots_; }

 private:
  LogStorage(const StorageOptions& options, std::unique_ptr<DurableLog> log, SnapshotFolder snapshots,
             net::UniqueFd event);

  void Run();
  bool SomethingToDo() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void CommitNow(std::vector<raft::Persist> batch) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<raft::Persist> NextBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tries again while the disk is full; gives the duration of the attempt that ended it.
  absl::Status CommitPatiently(uint64_t& duration_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  void Account(const std::vector<raft::Persist>& batch, uint64_t duration_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Signal();

  const StorageOptions options_;
  const net::UniqueFd event_;
  // Belongs to the thread that has set committing_, and before the writer starts to none.
  const std::unique_ptr<DurableLog> log_;
  const SnapshotFolder snapshots_;
  LogCompactor compactor_;
  std::string snapshot_trouble_;
  const raft::Configuration began_with_;
  raft::RestoredState restored_;  // the owner's thread, like the next one
  uint64_t asked_sequence_ = 0;

  mutable absl::Mutex mutex_;
  net::SteadyCondVar stopped_;
  bool committing_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // for good; the thread has ended
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<raft::Persist> queue_ ABSL_GUARDED_BY(mutex_);
  bool left_here_ ABSL_GUARDED_BY(mutex_) = false;  // the queue is CommitHere's
  uint64_t here_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  QuickSyncs quick_syncs_ ABSL_GUARDED_BY(mutex_){options_.quick_sync_ns};
  // What Write or CommitHere has gathered and could not commit without waiting. committing_ stays set for it.
  std::vector<raft::Persist> left_over_ ABSL_GUARDED_BY(mutex_);
  uint64_t durable_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
  StorageStatistics statistics_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace hedgerow::storage
