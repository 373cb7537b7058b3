// SPDX-License-Identifier: Apache-2.0
//
// A simulated disk with a log of writes. What is not synced when the node dies may be gone, may be there, or
// may be there in part. One sync at a time covers everything written before it (group commit). In memory mode a
// write is done at once: only processes die, and the page cache outlives them.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/raft/configuration.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/sim/plan.h"
#include "cluster/sim/random.h"
#include "cluster/sim/virtual_time.h"

namespace hedgerow::sim {

struct StoredSnapshot {
  raft::Snapshot snapshot{};
  std::shared_ptr<const std::vector<std::string>> chunks;
};

class Disk {
 public:
  // `synced` is told that more has become durable, after a while.
  Disk(VirtualTime& time, Random& random, DiskPlan plan, std::function<void()> synced)
      : time_(time), random_(random), plan_(plan), synced_(std::move(synced)) {}

  void Write(raft::Persist persist);
  // The sequence number up to which everything is durable, of what was written since the last Crash.
  uint64_t durable_sequence() const { return durable_sequence_; }
  // What a node starts with, and the snapshot that goes with it. Others are removed: they were received and not
  // installed, or are not needed any more.
  raft::RestoredState Restore();

  // What the node goes by at first; recorded when it first starts, durable before anything else.
  raft::Configuration BeginsWith(const raft::Configuration& file) {
    const raft::Configuration chosen = raft::BeginsWith(began_with_, file);
    if (!began_with_.has_value()) began_with_ = chosen;
    return chosen;
  }

  // Whole, and durable at once.
  void PutSnapshot(StoredSnapshot snapshot);
  // Nothing: there is no such snapshot.
  const StoredSnapshot* Find(const raft::EntryId& last) const;

  // A log that begins with it, and nothing else. While the node is down.
  void Recover(StoredSnapshot beginning);
  // Empties the folder: the next start begins another log. While the node is down.
  void Empty();
  // Which log it is: another one after Empty.
  static constexpr uint64_t kFirstCopy = 1;
  uint64_t copy_id() const { return copy_id_; }

  void Crash();
  void SetSlow(uint64_t extra_ns) { slow_ns_ = extra_ns; }
  // Writes are refused and tried again until there is room.
  void SetFull(bool full);
  bool full() const { return full_; }
  // Nothing that is not durable yet becomes so, and nothing says so: until it is repaired.
  void SetHung(bool hung);

  // A copy of all that is durable, as a snapshot of its volume; and that copy put back later, while the node is down.
  struct Copy {
    raft::RestoredState log;
    std::optional<raft::Configuration> began_with;
    std::map<std::pair<raft::LogIndex, raft::Term>, StoredSnapshot> snapshots;
  };
  Copy CopyOf() const { return {durable_, began_with_, snapshots_}; }
  void PutBack(Copy copy);

 private:
  void StartSync();
  void FinishSync(size_t writes);
  void Apply(const raft::Persist& persist);
  void Apply(const raft::NewStart& start);

  VirtualTime& time_;
  Random& random_;
  DiskPlan plan_;
  std::function<void()> synced_;
  raft::RestoredState durable_;
  std::optional<raft::Configuration> began_with_;
  std::map<std::pair<raft::LogIndex, raft::Term>, StoredSnapshot> snapshots_;
  std::deque<raft::Persist> unsynced_;
  uint64_t durable_sequence_ = 0;
  bool syncing_ = false;
  bool full_ = false;
  bool hung_ = false;
  uint64_t slow_ns_ = 0;
  uint64_t copy_id_ = kFirstCopy;  // of its folder: those of two nodes are never compared
  uint64_t incarnation_ = 0;       // syncs of a former incarnation never finish
};

}  // namespace hedgerow::sim
