// SPDX-License-Identifier: Apache-2.0
//
// Makes the log's next file ready, and takes away what a durable snapshot has made superfluous: the log's entries
// before its start, and older snapshots. In a thread of its own, since a file system may take long to make room
// or to free gigabytes, and the log's writers do not wait for that. Nothing depends on its being done: a file that
// is not ready is made when it is needed, and what is left is removed the next time.

#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/types.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/snapshot_folder.h"

namespace hedgerow::storage {

class Janitor {
 public:
  Janitor(DurableLog& log, SnapshotFolder snapshots);
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // The log was told by now to begin after `start`, and there is a durable snapshot at `snapshot`. Does not
  // wait.
  void Clean(raft::LogIndex start, raft::LogIndex snapshot);
  // The log has begun with the file that was ready. Does not wait.
  void PrepareSpare();

 private:
  void Run();
  void AskAgainLater();
  bool SomethingToDo() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || asked_ || wants_spare_; }
  bool StoppingOrWantsSpare() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || wants_spare_; }

  DurableLog& log_;
  const SnapshotFolder snapshots_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool wants_spare_ ABSL_GUARDED_BY(mutex_) = true;
  raft::LogIndex start_ ABSL_GUARDED_BY(mutex_);
  raft::LogIndex snapshot_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace hedgerow::storage
