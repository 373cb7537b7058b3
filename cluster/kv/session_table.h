// SPDX-License-Identifier: Apache-2.0
//
// Exactly once, for clients with a session (dissertation section 6.3, sharpened: docs/SAFETY.md): a write
// is known by (session, seq). Part of the replicated state: every replica makes the same changes in the same
// order, and time is the committed time of the log, never a clock.
//
// The table keeps a *set* of answers per session, because a fast copy of 6 may be applied before 5; and a seq
// below `lowest_unanswered` is never applied, because its answer may have been forgotten. Under a wrong token a session
// does not exist: such a request changes nothing, and is answered like one whose session was never opened.
//
// A full table makes room for an OPEN: it ends the session that has been idle the longest of those that never wrote. In
// such a one nothing was done, so nothing can be done twice for want of it. A session that wrote ends by its timeout
// only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <utility>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/memory.h"
#include "cluster/kv/settings.h"
#include "cluster/kv/sharded_map.h"

namespace hedgerow::kv {

class SessionTable {
 public:
  enum class SequenceStatus : uint8_t {
    kFresh,        // to be applied now
    kAnswered,     // Answer() has what was said, to this request or that another one has its seq
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

  // The session of this nonce, new under `name` if there is none. Null: no session can make room, or the name is taken.
  const Result* Open(uint64_t nonce, const SessionName& name, uint64_t now_ns);

  // A write of the session has come (WriteKey): it lives on, and what its client has answers to is forgotten.
  SequenceStatus Arrive(const RequestKey& write, uint64_t lowest_unanswered, uint64_t now_ns);

  // What was said to this write, or kAnotherRequest; null: nothing was recorded under its seq, or no session is known
  // under its id and token.
  const Result* Answer(const RequestKey& write) const;
  const Result* OpenAnswer(uint64_t nonce) const;

  // `wrote`: the write had operations.
  void Record(const RequestKey& write, const Result& result, bool wrote);
  void Expire(uint64_t now_ns);
  // Ends the session that has been idle for longest of those that never wrote. False: there is none.
  bool EvictUnwritten();

  size_t size() const { return sessions_.size(); }
  // memory.h
  uint64_t bytes() const { return sessions_.size() * kSessionOverhead_bytes; }
  uint64_t answer_bytes() const { return answer_bytes_; }
  size_t unwritten() const { return unwritten_.size(); }  // sessions that never wrote
  uint64_t evicted() const { return evicted_; }  // sessions that made room for others, since this process began
  uint64_t content() const { return content_; }  // content_hash.h

  void BeginSnapshot(SnapshotWriter* writer);
  // False: everything is written down, and the snapshot has ended here.
  bool ContinueSnapshot();
  void AbandonSnapshot() { writer_ = nullptr; }
  // Into a table that is new; no two of one id or nonce (false). In any order, and then FinishRestore.
  bool Restore(const SessionRecord& record, SessionAnswers answers);
  void FinishRestore();

 private:
  struct Session {
    uint64_t token = 0;
    uint64_t nonce = 0;
    uint64_t lowest_unanswered = 0;
    uint64_t active_ns = 0;
    bool wrote = false;
    SessionAnswers answers;
    SessionAnswers::node_type spare;  // of an answer that was forgotten: the next one's memory
    std::list<uint64_t>::iterator place;
    Result opened;
    uint64_t snapshot = 0;  // the last one that it is written down for, or younger than
  };

  using Activity = std::pair<uint64_t, uint64_t>;  // active_ns and id

  Session& Create(const SessionRecord& record);
  Session* Find(const RequestKey& write);
  void End(uint64_t id);
  SequenceStatus StatusOf(const Session& session, uint64_t seq) const;
  void Save(uint64_t id, Session& session);
  static SessionRecord RecordOf(uint64_t id, const Session& session);

  SessionLimits limits_;
  uint64_t content_ = 0;
  uint64_t answer_bytes_ = 0;
  ShardedMap<uint64_t, Session> sessions_{256};
  ShardedMap<uint64_t, uint64_t> by_nonce_{256};
  std::list<uint64_t> by_activity_;  // the longest idle first
  // Those that never wrote, in an order that is the same on all replicas: sessions of one committed time go by their
  // ids, since a table that a snapshot has filled knows no other order of them.
  std::set<Activity> unwritten_;
  uint64_t evicted_ = 0;
  // Activity only puts ends off, so an end once seen stays a lower bound until the limits change.
  uint64_t none_ends_before_ns_ = 0;

  uint64_t snapshot_ = 0;
  SnapshotWriter* writer_ = nullptr;  // while a snapshot is made
  ShardedMap<uint64_t, Session>::Walk walk_;
};

}  // namespace hedgerow::kv
