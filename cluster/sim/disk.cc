// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/disk.h"

#include <algorithm>
#include <utility>

namespace hedgerow::sim {

void Disk::Write(raft::Persist persist) {
  if (plan_.memory && !full_ && unsynced_.empty()) {
    Apply(persist);
    synced_(persist.sequence);
    return;
  }
  unsynced_.push_back(std::move(persist));
  StartSync();
}

void Disk::StartSync() {
  if (syncing_ || full_ || unsynced_.empty()) return;
  syncing_ = true;
  uint64_t duration_ns = random_.Between(plan_.sync_min_ns, plan_.sync_max_ns);
  if (slow_ns_ > 0) duration_ns += random_.Below(slow_ns_);
  time_.After(duration_ns, [this, life = life_, writes = unsynced_.size()] {
    if (life == life_) FinishSync(writes);
  });
}

void Disk::FinishSync(size_t writes) {
  syncing_ = false;
  uint64_t sequence = 0;
  for (size_t i = 0; i < writes; ++i) {
    sequence = unsynced_.front().sequence;
    Apply(unsynced_.front());
    unsynced_.pop_front();
  }
  StartSync();
  synced_(sequence);
}

void Disk::Crash() {
  ++life_;
  syncing_ = false;
  // The kernel had written some of it back, up to somewhere in the middle of a write: a torn tail. Checksums
  // tell where the whole records end; outputs.h states the order within one write.
  const uint64_t kept = random_.Chance(500'000) ? 0 : random_.Below(unsynced_.size() + 1);
  for (uint64_t i = 0; i < kept; ++i) {
    Apply(unsynced_.front());
    unsynced_.pop_front();
  }
  if (!unsynced_.empty() && random_.Chance(500'000)) {
    raft::Persist torn = std::move(unsynced_.front());
    torn.entries.resize(random_.Below(torn.entries.size() + 1));
    Apply(torn);
  }
  unsynced_.clear();
}

void Disk::SetFull(bool full) {
  full_ = full;
  StartSync();
}

void Disk::Apply(const raft::Persist& persist) {
  if (persist.hard_state.has_value()) durable_.hard_state = *persist.hard_state;
  if (persist.truncate_from.has_value()) {
    durable_.entries.resize(std::min<size_t>(durable_.entries.size(), persist.truncate_from->value() - 1));
  }
  durable_.entries.insert(durable_.entries.end(), persist.entries.begin(), persist.entries.end());
}

}  // namespace hedgerow::sim
