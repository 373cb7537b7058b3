// SPDX-License-Identifier: Apache-2.0
//
// Exactly once, for clients with a session (dissertation section 6.3, sharpened: docs/SAFETY.md): a write
// is known by (session, seq). Part of the replicated state: every replica makes the same changes in the same
// order, and time is the committed time of the log, never a clock.
//
// The table keeps a *set* of answers per session, because a fast copy of 6 may be applied before 5; and a seq
// below `lowest_unanswered` is never applied, because its answer may have been forgotten.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/settings.h"
#include "cluster/kv/sharded_map.h"

namespace hedgerow::kv {

class SessionTable {
 public:
  enum class SequenceStatus : uint8_t {
    kFresh,        // to be applied now
    kAnswered,     // applied before; Answer() has what was said
    kBelowLowest,  // perhaps applied before; must not be now
    kUnknown,
    kFull,
  };

  explicit SessionTable(SessionLimits limits) : limits_(limits) {}

  // From now on. What is there already stays, until time or its client ends it: a session that has been idle for
  // longer than a shorter timeout ends with the next Expire.
  void SetLimits(const SessionLimits& limits) {
    limits_ = limits;
    none_ends_before_ns_ = 0;
  }

  // The session of this nonce, new as `id` if there is none. 0 if the table is full.
  uint64_t Open(uint64_t nonce, uint64_t id, uint64_t now_ns);

  // A write of the session has come: it lives on, and what its client has answers to is forgotten.
  SequenceStatus Arrive(uint64_t session, uint64_t seq, uint64_t lowest_unanswered, uint64_t now_ns);

  const Result* Answer(uint64_t session, uint64_t seq) const;
  const Result* OpenAnswer(uint64_t nonce) const;

  void Record(uint64_t session, uint64_t seq, const Result& result);
  void Expire(uint64_t now_ns);

  size_t size() const { return sessions_.size(); }
  uint64_t content() const { return content_; }  // content_hash.h

  void BeginSnapshot(SnapshotWriter* writer);
  // False: everything is written down, and the snapshot has ended here.
  bool ContinueSnapshot();
  void AbandonSnapshot() { writer_ = nullptr; }
  // Into a table that is new; no two of one id or nonce (false). In any order, and then FinishRestore.
  bool Restore(const SessionRecord& record, std::map<uint64_t, Result> answers);
  void FinishRestore();

 private:
  struct Session {
    uint64_t nonce;
    uint64_t lowest_unanswered = 0;
    uint64_t active_ns;
    std::map<uint64_t, Result> answers;
    std::map<uint64_t, Result>::node_type spare;  // of an answer that was forgotten: the next one's memory
    std::list<uint64_t>::iterator place;
    Result opened;
    uint64_t snapshot = 0;  // the last one that it is written down for, or younger than
  };

  Session& Create(uint64_t nonce, uint64_t id, uint64_t now_ns);
  SequenceStatus StatusOf(const Session& session, uint64_t seq) const;
  void Save(uint64_t id, Session& session);
  static SessionRecord RecordOf(uint64_t id, const Session& session);

  SessionLimits limits_;
  uint64_t content_ = 0;
  ShardedMap<uint64_t, Session> sessions_{256};
  ShardedMap<uint64_t, uint64_t> by_nonce_{256};
  std::list<uint64_t> by_activity_;   // the longest idle first
  // Activity only puts ends off, so an end once seen stays a lower bound until the limits change.
  uint64_t none_ends_before_ns_ = 0;

  uint64_t snapshot_ = 0;
  SnapshotWriter* writer_ = nullptr;  // while a snapshot is made
  ShardedMap<uint64_t, Session>::Walk walk_;
};

}  // namespace hedgerow::kv
