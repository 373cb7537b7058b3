// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/janitor.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace hedgerow::storage {
namespace {

constexpr absl::Duration kAskAgainAfter = absl::Seconds(1);

}  // namespace

Janitor::Janitor(DurableLog& log, SnapshotFolder snapshots)
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

void Janitor::PrepareSpare() {
  absl::MutexLock lock(&mutex_);
  wants_spare_ = true;
}

void Janitor::Run() {
  while (true) {
    raft::LogIndex start;
    raft::LogIndex snapshot;
    bool wants_spare = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Janitor::SomethingToDo));
      if (stopping_) return;
      wants_spare = std::exchange(wants_spare_, false);
      if (!wants_spare) asked_ = false;
      start = start_;
      snapshot = snapshot_;
    }
    if (wants_spare) {
      log_.PrepareSpare();
      continue;
    }
    // In memory mode the new start may be in the page cache only. A power cut would leave the log as it was
    // before, which still needs all that is to go.
    if (!log_.StartIsDurable(start)) {
      AskAgainLater();
      continue;
    }
    snapshots_.RemoveBefore(snapshot);
    log_.DropUpTo(start);
  }
}

// The disk is full, or the node is about to end.
void Janitor::AskAgainLater() {
  absl::MutexLock lock(&mutex_);
  (void)mutex_.AwaitWithTimeout(absl::Condition(this, &Janitor::StoppingOrWantsSpare), kAskAgainAfter);
  asked_ = true;
}

}  // namespace hedgerow::storage
