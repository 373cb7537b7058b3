// SPDX-License-Identifier: Apache-2.0
//
// What a leader is yet to propose, and which requests its log holds already. A request that every node hands to
// each new leader must not be in that leader's log twice, else the log grows by all that wait with every
// election; and what does not fit into the log now waits here and not there. Used by Replica alone; in which
// log a request is known, and why that loses none, is argued in docs/SAFETY.md ("Proposed once").

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_set>

#include "cluster/kv/command.h"
#include "cluster/kv/keyed_hash.h"
#include "cluster/kv/request_router.h"
#include "cluster/raft/log.h"
#include "cluster/raft/types.h"

namespace hedgerow::kv {

class ProposalQueue {
 public:
  struct Counters {
    uint64_t known = 0;             // not proposed: the log holds them, not committed yet
    uint64_t not_known_to_all = 0;  // some member cannot read such a command
    uint64_t unwanted = 0;          // not proposed: no client waited any more when their turn came
    uint64_t queued = 0;            // waited here because the log had no room
  };

  // This node leads from now on, with this log, of which everything up to `applied` is applied. Nothing is
  // proposed before that is all but the last `unapplied_max` entries, so no more of them need be known.
  void BeginToLead(const raft::Log& log, raft::LogIndex applied, uint64_t unapplied_max);
  // It does not lead any more: what its log holds may be truncated from now on, and the router places anew what
  // waits.
  void EndToLead();
  bool leads() const { return leads_; }

  void Add(const ProposeCommand& proposal) { queue_.push_back(proposal); }
  bool empty() const { return queue_.empty(); }
  size_t size() const { return queue_.size(); }
  size_t proposed() const { return proposed_.size(); }
  ProposeCommand TakeFirst();
  // Reports each proposal that waits to `each`, once.
  void StillQueued(const std::function<void(const ProposeCommand&)>& each);
  // Keeps the queue no longer than what waits for it, within a factor.
  void DropUnwanted(size_t waiting, const std::function<bool(const RequestKey&)>& wanted);

  // The proposed set: the requests that this leader's log holds and that are not applied yet. True if it is new there.
  bool AddProposed(const RequestKey& key);
  // It is not in the log after all; or it is applied, and the tables know it.
  void RemoveProposed(const RequestKey& key);

  Counters counters{};

 private:
  struct Hash {
    Hash() : secret(TheHashSecret()) {}
    HashSecret secret;
    size_t operator()(const RequestKey& key) const;
  };

  bool leads_ = false;
  std::deque<ProposeCommand> queue_;
  size_t reported_ = 0;  // of these, from the front
  std::unordered_set<RequestKey, Hash> proposed_;
};

}  // namespace hedgerow::kv
