// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/disk.h"

#include <algorithm>
#include <utility>

#include "cluster/raft/log.h"

namespace hedgerow::sim {

void Disk::Write(raft::Persist persist) {
  if (plan_.memory && !full_ && !hung_ && unsynced_.empty()) {
    Apply(persist);
    durable_sequence_ = persist.sequence;
    return;
  }
  unsynced_.push_back(std::move(persist));
  StartSync();
}

void Disk::StartSync() {
  if (syncing_ || full_ || hung_ || unsynced_.empty()) return;
  syncing_ = true;
  uint64_t duration_ns = random_.Between(plan_.sync_min_ns, plan_.sync_max_ns);
  if (slow_ns_ > 0) duration_ns += random_.Below(slow_ns_);
  time_.After(duration_ns, [this, incarnation = incarnation_, writes = unsynced_.size()] {
    if (incarnation != incarnation_) return;
    if (hung_) {
      syncing_ = false;  // begun anew once it is repaired
    } else {
      FinishSync(writes);
    }
  });
}

void Disk::FinishSync(size_t writes) {
  syncing_ = false;
  for (size_t i = 0; i < writes; ++i) {
    durable_sequence_ = unsynced_.front().sequence;
    Apply(unsynced_.front());
    unsynced_.pop_front();
  }
  StartSync();
  synced_();
}

void Disk::Crash() {
  ++incarnation_;
  syncing_ = false;
  durable_sequence_ = 0;
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
    if (torn.new_start.has_value() && random_.Chance(500'000)) {
      torn.new_start.reset();
      torn.truncate_from.reset();
      torn.entries.clear();
    }
    Apply(torn);
  }
  unsynced_.clear();
}

void Disk::Apply(const raft::NewStart& start) {
  std::erase_if(durable_.entries,
                [&start](const raft::Entry& entry) { return start.empties || entry.index <= start.after.index; });
  durable_.start = start.after;
  std::erase_if(snapshots_, [&start](const auto& stored) { return stored.first.first < start.snapshot.index; });
}

void Disk::PutSnapshot(StoredSnapshot snapshot) {
  const raft::EntryId last = snapshot.snapshot.last;
  snapshots_.insert_or_assign({last.index, last.term}, std::move(snapshot));
}

const StoredSnapshot* Disk::Find(const raft::EntryId& last) const {
  const auto found = snapshots_.find({last.index, last.term});
  return found == snapshots_.end() ? nullptr : &found->second;
}

raft::RestoredState Disk::Restore() {
  const raft::Log log(durable_.start, durable_.entries);
  std::erase_if(snapshots_, [&log](const auto& stored) { return !log.Has(stored.second.snapshot.last); });
  while (snapshots_.size() > 1) snapshots_.erase(snapshots_.begin());
  durable_.snapshot = snapshots_.empty() ? raft::Snapshot() : snapshots_.rbegin()->second.snapshot;
  return durable_;
}

void Disk::Recover(StoredSnapshot beginning) {
  const raft::Snapshot snapshot = beginning.snapshot;
  durable_ = {.hard_state = {.term = snapshot.last.term}, .start = snapshot.last, .snapshot = snapshot};
  snapshots_.clear();
  PutSnapshot(std::move(beginning));
}

void Disk::Empty() {
  durable_ = {};
  began_with_.reset();
  snapshots_.clear();
  ++copy_id_;
}

void Disk::PutBack(Copy copy) {
  durable_ = std::move(copy.log);
  began_with_ = std::move(copy.began_with);
  snapshots_ = std::move(copy.snapshots);
}

void Disk::SetHung(bool hung) {
  hung_ = hung;
  StartSync();
}

void Disk::SetFull(bool full) {
  full_ = full;
  StartSync();
}

void Disk::Apply(const raft::Persist& persist) {
  if (persist.hard_state.has_value()) durable_.hard_state = *persist.hard_state;
  if (persist.new_start.has_value()) Apply(*persist.new_start);
  if (persist.truncate_from.has_value()) {
    const uint64_t kept = persist.truncate_from->value() - durable_.start.index.value() - 1;
    durable_.entries.resize(std::min<size_t>(durable_.entries.size(), kept));
  }
  durable_.entries.insert(durable_.entries.end(), persist.entries.begin(), persist.entries.end());
}

}  // namespace hedgerow::sim
