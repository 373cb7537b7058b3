// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/janitor.h"

#include <algorithm>
#include <utility>

namespace hedgerow::storage {

Janitor::Janitor(RocksLog& log, SnapshotFolder snapshots)
    : log_(log), snapshots_(std::move(snapshots)), thread_([this] { Run(); }) {}

Janitor::~Janitor() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Janitor::Clean(raft::LogIndex start, raft::LogIndex snapshot) {
  absl::MutexLock lock(&mutex_);
  start_ = std::max(start_, start);
  snapshot_ = std::max(snapshot_, snapshot);
  asked_ = true;
}

void Janitor::Run() {
  while (true) {
    raft::LogIndex start;
    raft::LogIndex snapshot;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Janitor::SomethingToDo));
      if (stopping_) return;
      asked_ = false;
      start = start_;
      snapshot = snapshot_;
    }
    snapshots_.RemoveBefore(snapshot);
    log_.DropUpTo(start);
  }
}

}  // namespace hedgerow::storage
