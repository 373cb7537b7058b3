// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_compactor.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace hedgerow::storage {
namespace {

constexpr absl::Duration kAgainAfter = absl::Seconds(1);

}  // namespace

LogCompactor::LogCompactor(DurableLog& log, SnapshotFolder snapshots)
    : log_(log), snapshots_(std::move(snapshots)), thread_([this] { Run(); }) {}

LogCompactor::~LogCompactor() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  thread_.join();
}

void LogCompactor::Clean(raft::LogIndex start, raft::LogIndex snapshot) {
  absl::MutexLock lock(&mutex_);
  work_.start = std::max(work_.start, start);
  work_.snapshot = std::max(work_.snapshot, snapshot);
  work_.clean = true;
}

void LogCompactor::PrepareSpare() {
  absl::MutexLock lock(&mutex_);
  work_.prepare = true;
}

void LogCompactor::Run() {
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &LogCompactor::SomethingToDo));
      if (stopping_) return;
      work = work_;
      work_.prepare = work_.clean = false;
    }
    const bool prepared = !work.prepare || log_.PrepareSpare();
    const bool cleaned = !work.clean || Clean(work);
    if (prepared && cleaned) continue;
    // The disk is full, or the node is about to end.
    absl::MutexLock lock(&mutex_);
    stopped_.Await(mutex_, kAgainAfter, [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; });
    work_.prepare |= !prepared;
    work_.clean |= !cleaned;
  }
}

// In memory mode the new start may be in the page cache only. A power cut would leave the log as it was before,
// which still needs all that is to go.
bool LogCompactor::Clean(const Work& work) {
  if (!log_.StartIsDurable(work.start)) return false;
  snapshots_.RemoveBefore(work.snapshot);
  log_.DropUpTo(work.start);
  return true;
}

}  // namespace hedgerow::storage
