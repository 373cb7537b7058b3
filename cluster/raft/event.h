// SPDX-License-Identifier: Apache-2.0
//
// Everything that can happen to a node, as seen by the core. The core has no clock and no generator of its own:
// each event brings the time and a fresh random number, so that a run is a function of its events.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/raft/configuration.h"
#include "cluster/raft/message.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

// Time has passed. Needed no earlier than Raft::next_deadline_ns(); more often does no harm.
struct Tick {};

// A message whose sender and integrity the transport has proved.
struct Receive {
  Message message;
};

// `tag` is the caller's name for it in Outputs; the core only repeats it.
struct Proposal {
  uint64_t tag = 0;
  Payload payload{};
};

// What has gathered since the last step: one write and one append for all of it (dissertation section 10.2.2).
struct Propose {
  std::vector<Proposal> proposals{};
};

// Dropped, and said so, at the first tick after `deadline_ns` (the time line of Event::now_ns).
struct Read {
  uint64_t tag = 0;
  uint64_t deadline_ns = 0;
  std::optional<EntryId> up_to{};  // it was in Outputs::tail_reads, and waits for these entries
};

// Every Persist up to this sequence number is durable (in memory mode: written).
struct Persisted {
  uint64_t sequence = 0;
};

// The state machine has applied every entry up to here.
struct Applied {
  LogIndex index{};
};

struct RoundTrip {
  NodeId peer{};
  uint64_t duration_ns = 0;
};

struct TransferLeadership {
  NodeId target{};
};

// A hint from the leader's host that its process dies or stands still. `rank` is this node's place among the
// successors. Only ever starts an election; safety does not depend on its being true.
struct LeaderResigns {
  NodeId leader{};
  Term term{};
  uint32_t rank = 0;
};

// A hint from the leader's host that its loop waits for a processor: it would turn, and will. Only ever delays an
// election.
struct LeaderStalled {
  NodeId leader{};
  Term term{};
};

// The five below tell what the node's kernel part has done by itself (cluster/offload/kernel_bridge). It has
// said so to the others already: the core takes it as it is.

// Accepted in this term, as its leader's follower, and acknowledged or left to the acknowledgement of the next.
// What the log has already is skipped.
struct KernelAppended {
  NodeId leader{};
  Term term{};
  AppendRequest request{};
  uint64_t arrived_ns = 0;
};

// A vote that was given; or, with no candidate, a term that was adopted.
struct KernelVoted {
  Term term{};
  NodeId candidate{};
};

// The leader of this term was heard, and has said this.
struct KernelHeard {
  NodeId leader{};
  Term term{};
  uint64_t heard_ns = 0;
  LogIndex commit{};
  uint64_t election_timeout_ns = 0;  // 0: it has not said
};

// What a leader's kernel part has counted in this term, by the members' slots. Everything only grows, and
// may be told again. Of a slot that is another's by now, nothing counts.
struct KernelCounted {
  struct Member {
    LogIndex match{};
    uint64_t round = 0;
    uint64_t loop_seq = 0;
    uint64_t contact_ns = 0;  // when loop_seq was last seen to change
    NodeId node{};            // whose they are
  };
  Term term{};
  std::array<Member, HR_RAFT_MAX_MEMBERS> members{};
};

// The votes that a candidate's kernel part has counted, as a mask over members.
struct KernelVotes {
  Term asked_term{};
  bool pre_vote = false;
  uint32_t members = 0;
};

// A snapshot of this node's state machine, taken after it had applied `snapshot.last`, is durable.
struct SnapshotTaken {
  Snapshot snapshot{};
};

// A snapshot that `leader` sent in this term is durable, and the caller has the state machine that it makes at
// hand (Raft figure 13).
struct SnapshotReceived {
  NodeId leader{};
  Term term{};
  Snapshot snapshot{};
};

// What became of a snapshot for a follower (Outputs::snapshots_needed): it has it, up to `index`; or nothing
// came of it, and the caller has waited long enough to try again.
struct SnapshotSent {
  NodeId to{};
  LogIndex index{};
  bool delivered = false;
};

// An administrator's. The leader takes up one at a time; the answer is in Outputs::membership_answers.
struct ChangeMembership {
  uint64_t tag = 0;
  std::vector<MemberChange> changes{};
};

struct Event {
  uint64_t now_ns = 0;  // monotonic; never smaller than in an earlier event
  uint64_t random = 0;  // uniform over 64 bits
  std::variant<Tick, Receive, Propose, Read, Persisted, Applied, RoundTrip, TransferLeadership, LeaderResigns,
               LeaderStalled, KernelAppended, KernelVoted, KernelHeard, KernelCounted, KernelVotes, SnapshotTaken,
               SnapshotReceived, SnapshotSent, ChangeMembership>
      what;
};

}  // namespace hedgerow::raft
