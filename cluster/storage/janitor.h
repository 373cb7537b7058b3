// SPDX-License-Identifier: Apache-2.0
//
// Takes away what a durable snapshot has made superfluous: the log's entries before its start, and older
// snapshots. In a thread of its own, since a file system may take long to free gigabytes, and the log's writers
// do not wait for that. Nothing depends on its being done: what is left is removed the next time.

#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/types.h"
#include "cluster/storage/rocks_log.h"
#include "cluster/storage/snapshot_folder.h"

namespace hedgerow::storage {

class Janitor {
 public:
  Janitor(RocksLog& log, SnapshotFolder snapshots);
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // The log was told by now to begin after `start`, and there is a durable snapshot at `snapshot`. Does not
  // wait.
  void Clean(raft::LogIndex start, raft::LogIndex snapshot);

 private:
  void Run();
  void AskAgainLater();
  bool SomethingToDo() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || asked_; }

  RocksLog& log_;
  const SnapshotFolder snapshots_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  raft::LogIndex start_ ABSL_GUARDED_BY(mutex_);
  raft::LogIndex snapshot_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace hedgerow::storage
