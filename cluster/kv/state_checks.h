// SPDX-License-Identifier: Apache-2.0
//
// Whether this replica's state is the one that the majority has. After every so many entries each member has its
// fingerprint proposed, so all replicas that have applied the same entries since they started come to the same verdict:
// what more than half of the voters have is right, and a node with something else is outside. Nobody is outside by its
// own word alone, but for a node that has found a fault in its own memory. Part of Replica, which acts on it.

#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "cluster/raft/types.h"

namespace hedgerow::kv {

class StateChecks {
 public:
  // In place of a fingerprint: this node knows that its state is wrong.
  static constexpr uint64_t kFault = 0;

  struct Counters {
    uint64_t equal = 0;  // this replica's fingerprint and the majority's
    uint64_t differ = 0;
    uint64_t skipped = 0;       // this replica has not kept its own, or never had it
    uint64_t faults = 0;        // found in its own memory
    uint64_t mended = 0;        // states replaced by a leader's while it was outside
    uint64_t not_proposed = 0;  // results that had no leader, or a member that could not read them
  };

  // Of StateMachine::fingerprint(): a build that hashes anything otherwise takes the next number, and no two
  // formats are compared.
  static constexpr uint64_t kFormat = 0;

  explicit StateChecks(raft::NodeId self) : self_(self) {}

  // This replica's own, after the entry.
  void Record(raft::LogIndex index, uint64_t fingerprint);
  // A member's, as an entry at `at` reports it; `members` are those of that entry.
  void Count(raft::LogIndex at, raft::LogIndex index, raft::NodeId node, uint64_t fingerprint,
             const raft::Configuration& members);
  // What a node that is no member any more has does not matter.
  void KeepOnly(const raft::Configuration& members);
  // By itself, with no other's word.
  void FoundFault(raft::LogIndex applied);
  void NotProposed() { ++counters_.not_proposed; }
  // The state is another's from now on, and what was recorded of the one before means nothing.
  void StateReplaced();
  // A node outside the majority has a state of at least `index`. One from before its difference was known mends
  // nothing.
  void Mended(raft::NodeId node, raft::LogIndex index);

  // This replica's state is wrong, since the check after this entry or earlier. Not set: it is not known to be.
  raft::LogIndex wrong_since() const { return wrong_since_; }
  // Voters decided, and no majority has one state: nobody can tell who is right. After which entry; not set: none.
  raft::LogIndex undecided() const { return undecided_; }
  // Whose state is not the majority's, and the entry by which that was known.
  const std::map<raft::NodeId, raft::LogIndex>& outside() const { return outside_; }
  const Counters& counters() const { return counters_; }

 private:
  struct Check {
    raft::LogIndex index{};
    bool recorded = false;
    uint64_t own = 0;
    bool judged = false;  // it counts once for this replica
    std::map<raft::NodeId, uint64_t> said{};
  };

  Check& Of(raft::LogIndex index);
  void Judge(raft::LogIndex at, Check& check, const raft::Configuration& voters);

  raft::NodeId self_;
  std::array<Check, 4> checks_{};  // the latest, in a ring
  size_t next_ = 0;
  raft::LogIndex wrong_since_{};
  raft::LogIndex undecided_{};
  std::map<raft::NodeId, raft::LogIndex> outside_;
  Counters counters_;
};

}  // namespace hedgerow::kv
