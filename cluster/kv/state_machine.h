// SPDX-License-Identifier: Apache-2.0
//
// The replicated store: keys, values, and the tables that make writes happen once. A function of the log and of
// nothing else: it reads no clock, and its limits are settings that entries of the log have set. Owned by a node's
// loop, which applies committed entries to it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/dedupe_window.h"
#include "cluster/kv/memcached_state.h"
#include "cluster/kv/memory.h"
#include "cluster/kv/session_table.h"
#include "cluster/kv/settings.h"
#include "cluster/kv/store.h"

namespace hedgerow::kv {

class StateMachine {
 public:
  // `index` is the entry's place in the log; it becomes the unique number of an item that the entry changes.
  Result Apply(uint64_t index, const Command& command);

  // Fetches from memory what these commands are about, for all of them at once: applied one after the other
  // each would wait for its own. Changes nothing, and need not be called.
  void Prefetch(std::span<const Command> commands) const;

  std::optional<std::string> Get(const std::string& key) const;

  // Walks over all keys of hkv's, a few at a time, in an order of this process's own: nothing that is replicated may go
  // by it. False: there was none left.
  template <typename Visit>
  bool VisitSomeKeys(MapWalk& walk, const Visit& visit) {
    return values_.VisitSomeKeys(walk, visit);
  }

  // One of memcached's; nothing: there is none, or it has ended. Valid until the next command.
  const Item* FindItem(const std::string& key) const { return memcached_.Find(key, now_ns_); }

  // What was said to this request, if it is known that it was applied; or that it never will be. Nothing of a memcached
  // client's: another request may have its id by now, and only the log knows the order of the two.
  std::optional<Result> Known(const RequestKey& key) const;

  // An incremental snapshot of the state as it is now (incremental_snapshot.h); Apply goes on meanwhile. One at a time.
  void BeginSnapshot(size_t chunk_bytes = kSnapshotChunk_bytes);
  bool taking_snapshot() const { return snapshot_ != nullptr; }
  // Writes down about so many bytes and gives the chunks that are ready. Once it has given the last, there is
  // no snapshot any more.
  std::vector<std::string> ContinueSnapshot(size_t bytes);
  void AbandonSnapshot();
  // Of the present one: what was written down and not given yet. A change beyond what is written copies its record into
  // it.
  uint64_t snapshot_held_bytes() const { return snapshot_ == nullptr ? 0 : snapshot_->held_bytes(); }

  size_t values() const { return values_.size(); }
  size_t sessions() const { return sessions_.size(); }
  size_t sessions_that_wrote() const { return sessions_.size() - sessions_.unwritten(); }
  // Since this process began: it tells what happened, and is no part of the state.
  uint64_t sessions_evicted() const { return sessions_.evicted(); }
  size_t seen_without_session() const { return window_.size(); }
  uint64_t committed_time_ns() const { return now_ns_; }
  const MemcachedState& memcached() const { return memcached_; }
  // Something ends by time: a leader that has nothing to propose tells it. As long as a request without a
  // session is known, what a node has applied is then no older than such a tick, and says when another one came
  // (Command::came_ns).
  bool waits_for_time() const { return window_.size() > 0 || memcached_.waits_for_time(); }
  MemoryUse memory() const;
  const Settings& settings() const { return settings_; }
  // What an entry of the log has used (features.h), which every member knew then: so it is used from then on, whichever
  // member is silent or has been restarted since.
  uint32_t features() const { return features_; }

  // Of every byte of the state (content_hash.h): two replicas that applied the same log have the same, whatever
  // processor and standard library they run on, and whatever snapshot they began with.
  uint64_t fingerprint() const;
  // Of the replicated log, as the cluster's first leader drew it; 0: it has not been applied yet, or there is none.
  uint64_t log_uuid() const { return log_uuid_; }
  // The last snapshot wrote down what was put, byte for byte. If not, memory has changed by itself: what was written is
  // worth nothing, and from then on the fingerprint is that of what is really there.
  bool snapshot_is_sound() const { return snapshot_is_sound_; }

 private:
  // What a command finds: what was charged when it came, and what is charged for remembering it, beside its result's
  // values.
  struct Room {
    uint64_t before_bytes = 0;
    size_t overhead_bytes = 0;
  };

  Result ApplyOpen(const Command& command);
  Result ApplyInSession(const Command& command, uint64_t before_bytes);
  Result ApplyInWindow(const Command& command, uint64_t before_bytes, bool late);
  Result ApplyMemcached(uint64_t index, const Command& command, bool late);
  bool IsLate(const Command& command) const;
  void ApplyPurge(const Command& command);
  Result ApplySettings(const Command& command);
  void FollowSettings();
  Result Execute(const std::vector<Operation>& operations, const Room& room);
  Result ExecuteOne(const Operation& operation);
  using Changes = std::unordered_map<std::string, std::optional<std::string>>;
  Result Gather(const std::vector<Operation>& operations, Changes& changes) const;
  int64_t GrowthOf(const Changes& changes) const;
  void Make(Changes& changes);
  bool IsRoomy(const std::vector<Operation>& operations, size_t overhead_bytes) const;
  bool HasRoom(int64_t growth_bytes, size_t record_bytes, uint64_t before_bytes);
  void FreeFor(uint64_t bytes);
  uint64_t content() const {
    return values_.content() + sessions_.content() + window_.content() + memcached_.content() + flaws_;
  }
  // Before anything else of a snapshot. False: what cannot be.
  bool Restore(const SnapshotHeader& header, bool with_settings);

  friend class StateLoader;
  friend struct MemoryFault;

  Settings settings_;
  Store values_;
  SessionTable sessions_{settings_.sessions};
  DedupeWindow window_{settings_.window};
  MemcachedState memcached_{settings_.memcached};
  uint64_t now_ns_ = 0;  // committed time
  uint64_t log_uuid_ = 0;
  uint32_t features_ = 0;
  uint64_t snapshot_content_ = 0;  // when the present one began
  bool snapshot_is_sound_ = true;
  uint64_t flaws_ = 0;                        // what the tables' sums lack of what is there, as snapshots have found
  std::unique_ptr<SnapshotWriter> snapshot_;  // the tables know it by its address
};

// For tests: one bit of a key's value changes by itself. False: there is no such key, or no byte.
struct MemoryFault {
  static bool Flip(StateMachine& state, const std::string& key) { return state.values_.Flip(key); }
};

// Stamps commands with committed time. One per node; the leader's is used.
class CommittedClock {
 public:
  // Elected. What passed since some other leader's last command is not ours to tell. It is left out, so committed time
  // may lag behind real time and never runs ahead of it. What passes from here on no other leader counts: whatever it
  // had stamped of this log was in it by now.
  void StartTerm(uint64_t monotonic_now_ns) { last_ns_ = monotonic_now_ns; }

  uint64_t Elapsed_ns(uint64_t monotonic_now_ns) {
    const uint64_t elapsed_ns = last_ns_.has_value() ? monotonic_now_ns - *last_ns_ : 0;
    last_ns_ = monotonic_now_ns;
    return elapsed_ns;
  }

 private:
  std::optional<uint64_t> last_ns_;
};

}  // namespace hedgerow::kv
