// SPDX-License-Identifier: Apache-2.0
//
// Makes the log's next file ready, and takes away what a durable snapshot has made superfluous: the log's
// entries before its start, and older snapshots. In a thread of its own, since a file system may take long to
// make room or to free gigabytes, and the log's writers do not wait for that. Nothing depends on its being
// done: a file that is not ready is made when it is needed, and what is left is removed the next time.

#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cluster/raft/types.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/snapshot_folder.h"
#include "net/steady_wait.h"

namespace hedgerow::storage {

class LogCompactor {
 public:
  LogCompactor(DurableLog& log, SnapshotFolder snapshots);
  ~LogCompactor();
  LogCompactor(const LogCompactor&) = delete;
  LogCompactor& operator=(const LogCompactor&) = delete;

  // The log was told by now to begin after `start`, and there is a durable snapshot at `snapshot`. Does not
  // wait.
  void Clean(raft::LogIndex start, raft::LogIndex snapshot);
  // The log has begun with the file that was ready. Does not wait.
  void PrepareSpare();

 private:
  // What is to be done.
  struct Work {
    bool prepare = false;
    bool clean = false;
    raft::LogIndex start{};
    raft::LogIndex snapshot{};
  };

  void Run();
  bool Clean(const Work& work);
  bool SomethingToDo() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || work_.prepare || work_.clean; }

  DurableLog& log_;
  const SnapshotFolder snapshots_;

  absl::Mutex mutex_;
  net::SteadyCondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Work work_ ABSL_GUARDED_BY(mutex_) = {.prepare = true};

  std::thread thread_;
};

}  // namespace hedgerow::storage
