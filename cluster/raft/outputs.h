// SPDX-License-Identifier: Apache-2.0
//
// What a step asks its caller to do, in the order of the contract:
//
//   1. send: `send` may leave at once, before the write of the same step. What promises something (a vote, an
//      acknowledgement, a request for votes) is held back by the core until the Persisted event that covers it, so the
//      caller cannot send it too early; what is left, a leader's appends above all, need not wait for the leader's own
//      disk (dissertation section 10.2.1).
//   2. persist: hand `persist` to the disk, in order of `sequence`; say so with a Persisted event once it is durable.
//   3. apply: `apply`, in order, each entry once per life of the node; then an Applied event.
//
// The rest informs. A caller that dies between any two of these loses nothing that anyone was promised.

#ifndef HEDGEROW_CLUSTER_RAFT_OUTPUTS_H_
#define HEDGEROW_CLUSTER_RAFT_OUTPUTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/raft/message.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

// Written as one: hard state, then truncation, then entries. If it is torn, what survives must be a prefix in
// that order.
struct Persist {
  uint64_t sequence = 0;
  std::optional<HardState> hard_state{};
  std::optional<LogIndex> truncate_from{};  // this entry and all after it go
  std::vector<Entry> entries{};
};

// The proposal has a place in the log. It is done when the entry (index, term) is applied, and will never be if
// another term's entry is applied at that index.
struct AcceptedProposal {
  uint64_t tag = 0;
  LogIndex index{};
  Term term{};
};

enum class RefusalReason : uint8_t {
  kNotLeader,
  kTransferring,  // dissertation section 3.10: a leader on its way out takes no new requests
  kOverloaded,    // a bound of Options is reached
  kExpired,       // a read's deadline passed
};

struct Refusal {
  uint64_t tag = 0;
  RefusalReason reason = RefusalReason::kNotLeader;
};

// The state machine as it is now may answer the read.
struct ReadReady {
  uint64_t tag = 0;
  LogIndex index{};
};

struct RoleChange {
  Role role = Role::kFollower;
  Term term{};
};

// Whom clients should talk to; nobody while `leader` is not set.
struct PublishLeader {
  NodeId leader{};
  Term term{};
};

struct Outputs {
  std::optional<Persist> persist{};
  std::vector<Message> send{};
  std::vector<Entry> apply{};

  std::vector<AcceptedProposal> accepted{};
  std::vector<Refusal> refused_proposals{};
  std::vector<ReadReady> reads_ready{};
  std::vector<Refusal> refused_reads{};
  std::optional<RoleChange> role_change{};        // the last, if several
  std::optional<PublishLeader> publish_leader{};  // the last, if several

  void Clear() {
    persist.reset();
    send.clear();
    apply.clear();
    accepted.clear();
    refused_proposals.clear();
    reads_ready.clear();
    refused_reads.clear();
    role_change.reset();
    publish_leader.reset();
  }
};

}  // namespace hedgerow::raft

#endif  // HEDGEROW_CLUSTER_RAFT_OUTPUTS_H_
