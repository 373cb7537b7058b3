// SPDX-License-Identifier: Apache-2.0
//
// Reads that do not go through the log: ReadIndex, dissertation section 6.4, with the rules of R8. At the
// leader a read waits for a heartbeat round that began after it came; at a follower it waits for the leader's
// answer to a question that was asked after it came. Reads that come while a round or question is under way
// share the next.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "cluster/raft/message.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

struct LocalRead {
  uint64_t tag = 0;
  uint64_t deadline_ns = 0;
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
  void Add(LedRead read) { waiting_.push_back(read); }
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
  ReadId Ask(uint64_t now_ns);
  // Another leader or term: no answer to an earlier question counts.
  void Forget();
  // The reads that this answers, if it answers the question under way.
  std::vector<LocalRead> TakeAnswered(ReadId id);
  std::vector<LocalRead> TakeExpired(uint64_t now_ns);
  std::vector<LocalRead> TakeAll();

 private:
  uint64_t incarnation_;
  uint64_t number_ = 0;
  uint64_t asked_ns_ = 0;
  std::deque<LocalRead> waiting_;
  std::deque<LocalRead> asked_;
};

}  // namespace hedgerow::raft
