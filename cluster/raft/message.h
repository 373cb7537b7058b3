// SPDX-License-Identifier: Apache-2.0
//
// What nodes say to each other. The names follow Raft figure 2 and the dissertation; how a message looks on the
// wire is the transport's business. Every message carries its sender's current term.

#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "cluster/raft/types.h"

namespace hedgerow::raft {

// Raft section 5.2; with `pre_vote`, dissertation section 9.6.
struct VoteRequest {
  Term asked_term{};  // what the vote is for: the sender's term, or the one after it in a pre-vote
  LogIndex last_index{};
  Term last_term{};
  Term transfer_term{};  // the leader of this term asked for the election; term 0: no leader did
  bool pre_vote = false;
};

struct VoteReply {
  Term asked_term{};  // repeated from the request: an answer counts only for what was asked (R7)
  bool pre_vote = false;
  bool granted = false;
};

// Raft section 5.3.
struct AppendRequest {
  LogIndex prev_index{};
  Term prev_term{};
  LogIndex commit{};
  std::vector<Entry> entries{};
};

struct AppendReply {
  bool accepted = false;
  LogIndex index{};  // accepted: the last index that is durable and equal; refused: the request's prev_index
  // Refused: where to go on (end of Raft section 5.3). Term 0: the follower's log ends before conflict_index.
  Term conflict_term{};
  LogIndex conflict_index{};
  // Changes as long as the sender's loop turns: what its kernel answers alone is an echo, not progress.
  uint64_t loop_seq = 0;
};

// Dissertation section 6.4: a round proves that the sender was the leader after the round began.
struct Heartbeat {
  uint64_t round = 0;
  LogIndex commit{};
  uint64_t election_timeout_ns = 0;  // the leader's: followers wait no shorter than it expects them to
};

struct HeartbeatReply {
  uint64_t round = 0;
  LogIndex matched{};     // the follower knows its log to equal this leader's up to here; 0 after a restart
  uint64_t loop_seq = 0;  // as in AppendReply
};

// R8: never used twice. `incarnation` is drawn when a node starts, so that no answer to its former incarnation
// fits.
struct ReadId {
  uint64_t incarnation = 0;
  uint64_t number = 0;

  bool operator==(const ReadId&) const = default;
};

// Dissertation section 6.4, a read at a member that does not lead.
struct ReadIndexRequest {
  ReadId id{};
};

struct ReadIndexReply {
  ReadId id{};
  LogIndex index{};
};

// Dissertation section 3.10.
struct TimeoutNow {};

// To a ReadIndexRequest, of a member that does not lead: where its log ends. A majority's answers do without a leader
// (R8).
struct LastEntry {
  ReadId id{};
  EntryId last{};
};

struct Message {
  NodeId from{};
  NodeId to{};
  Term term{};
  uint32_t config_epoch = 0;  // of the configuration that the sender goes by
  std::variant<VoteRequest, VoteReply, AppendRequest, AppendReply, Heartbeat, HeartbeatReply, ReadIndexRequest,
               ReadIndexReply, TimeoutNow, LastEntry>
      body;
};

}  // namespace hedgerow::raft
