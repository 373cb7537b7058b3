// SPDX-License-Identifier: Apache-2.0
//
// Writes one snapshot in a thread of its own, chunk by chunk as they are made, so that the loop that makes them
// never waits for a disk. Used by a node's loop.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cluster/storage/snapshot_folder.h"

namespace hedgerow::storage {

class SnapshotWriter {
 public:
  // `ended` is called once, by the writer's thread, when there is a result.
  SnapshotWriter(SnapshotFolder folder, SnapshotHeader header, std::function<void()> ended);
  // Waits for its thread, which may be waiting for a disk; not once there is a result. What is not published by
  // now is discarded.
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  const SnapshotHeader& header() const { return header_; }
  // Never waits. Its caller stops making chunks while there is a backlog.
  void Append(std::string chunk);
  // No chunk follows.
  void Finish();
  // Gives it up: the result will be Cancelled, unless it was published already. Does not wait.
  void Abandon();
  uint64_t backlog_bytes() const;
  // Of the file, once it is published.
  uint64_t size_bytes() const;
  // OK: it is published. An error: nothing is left of it. Nothing: it is at work.
  std::optional<absl::Status> result() const;

 private:
  void Run();
  absl::Status Write();
  // False: there is none any more.
  bool Next(std::string& chunk);
  bool SomethingToDo() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || finishing_ || !queue_.empty(); }

  const SnapshotFolder folder_;
  const SnapshotHeader header_;
  const std::function<void()> ended_;

  mutable absl::Mutex mutex_;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t backlog_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace hedgerow::storage
