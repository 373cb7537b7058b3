// SPDX-License-Identifier: Apache-2.0
//
// Reads that do not go through the log: ReadIndex, dissertation section 6.4, with the rules of R8. At the
// leader a read waits for a heartbeat round that began after it came. Elsewhere it waits for what answers a question
// that was asked after it came: the leader, or a majority that says where its logs end. Reads that come while a round
// or question is under way share the next.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <tuple>
#include <vector>

#include "cluster/raft/message.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

struct LocalRead {
  uint64_t tag = 0;
  uint64_t deadline_ns = 0;
};

// Of two logs' ends, that of the log which is more up-to-date (Raft section 5.4.1).
inline const EntryId& Further(const EntryId& one, const EntryId& other) {
  return std::tie(one.term, one.index) < std::tie(other.term, other.index) ? other : one;
}

// What a read of a majority or a leader waits for.
struct UnappliedRead {
  EntryId up_to{};
  LocalRead local{};
  // The leader's answers to this question and later ones are newer than the read. UINT64_MAX: none is known to be.
  uint64_t question = UINT64_MAX;
};

// Moves every read past its deadline from `reads` to the end of `expired`.
void MoveExpired(std::deque<LocalRead>& reads, uint64_t now_ns, std::vector<LocalRead>& expired);

// A read the leader has taken on: its own (`origin` not set) or a follower's.
struct LedRead {
  NodeId origin{};
  LocalRead local{};
  ReadId id{};
  uint64_t round = 0;
  LogIndex index{};  // what the state machine must have applied before it may answer
};

class LeaderReads {
 public:
  // A follower takes an answer to its last question only (FollowerReads), so one of each waits at most.
  void Add(const LedRead& read);
  bool waiting() const { return !waiting_.empty(); }
  bool confirming() const { return !confirming_.empty(); }
  size_t size() const { return waiting_.size() + confirming_.size(); }

  // The round starts now, so it proves leadership for every read that has come so far.
  void StartRound(uint64_t round, LogIndex commit);
  std::vector<LedRead> TakeConfirmed(uint64_t quorum_round);

  // The leader is one no longer. Followers ask anew by themselves, so only its own reads are returned.
  std::vector<LocalRead> TakeLocal();

 private:
  std::deque<LedRead> waiting_;
  std::deque<LedRead> confirming_;
};

class FollowerReads {
 public:
  explicit FollowerReads(uint64_t incarnation) : incarnation_(incarnation) {}

  void Add(LocalRead read) { waiting_.push_back(read); }
  bool asking() const { return !asked_.empty(); }
  bool waiting() const { return !waiting_.empty(); }
  size_t size() const { return waiting_.size() + asked_.size(); }
  uint64_t asked_ns() const { return asked_ns_; }

  // A new question for all reads there are; also how one is repeated.
  void Ask(uint64_t now_ns);
  // The last question's.
  ReadId id() const { return {.incarnation = incarnation_, .number = number_}; }
  // The leader has answered this question or, by a later one's number, will not any more.
  void LeaderAnswered(ReadId id, uint64_t now_ns, uint64_t most_ns);
  // How long this leader takes to, smoothed over eight answers.
  uint64_t leader_took_ns() const { return leader_took_ns_; }
  // Questions go to all members, until the leader answers one.
  bool asks_all() const { return asks_all_; }
  void SetAsksAll(bool asks_all) { asks_all_ = asks_all; }
  // Where a member's log ends, if that answers the question under way.
  void Heard(ReadId id, size_t member, const EntryId& last);
  // Those that have said so, as a mask of slots, and the end of the one that is furthest.
  uint32_t heard() const { return heard_; }
  const EntryId& furthest() const { return furthest_; }
  // Another leader, term or configuration: no answer to an earlier question counts, and this leader may be nearer.
  void Forget();
  // The reads that this answers, if it answers the question under way.
  std::vector<LocalRead> TakeAnswered(ReadId id);
  std::vector<LocalRead> TakeExpired(uint64_t now_ns);
  std::vector<LocalRead> TakeAll();

 private:
  uint64_t incarnation_;
  uint64_t number_ = 0;
  uint64_t asked_ns_ = 0;
  bool asks_all_ = false;
  uint64_t timed_ = 0;  // the number of the question whose answer is timed; 0: none
  uint64_t timed_ns_ = 0;
  uint64_t leader_took_ns_ = 0;
  uint32_t heard_ = 0;
  EntryId furthest_;
  std::deque<LocalRead> waiting_;
  std::deque<LocalRead> asked_;
};

}  // namespace hedgerow::raft
