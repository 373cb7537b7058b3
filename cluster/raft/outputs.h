// SPDX-License-Identifier: Apache-2.0
//
// What a step asks its caller to do, in the order of the contract:
//
//   1. send: `send` may leave at once, before the write of the same step. What promises something (a vote, an
//      acknowledgement, a request for votes) is held back by the core until the Persisted event that covers it,
//      so the caller cannot send it too early; what is left, a leader's appends above all, need not wait for
//      the leader's own disk (dissertation section 10.2.1).
//   2. persist: hand `persist` to the disk, in order of `sequence`; say so with a Persisted event once it is
//   durable.
//   3. install: the state machine becomes that of the snapshot `install`, which the caller holds since the
//      SnapshotReceived of this step. What was applied before is in it.
//   4. apply: `apply`, in order, each entry once per incarnation of the node; then an Applied event.
//
// A snapshot is durable before the core hears of it (SnapshotTaken, SnapshotReceived), and stays so until a
// write that names a later one (Persist::new_start) is durable: so the log never begins after what no snapshot
// holds.
//
// The rest informs. A caller that dies between any two of these loses nothing that anyone was promised.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/raft/configuration.h"
#include "cluster/raft/message.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

// The log begins after `after` from now on: that entry and all before it go.
struct NewStart {
  EntryId after{};
  EntryId snapshot{};    // the last one, at `after` or later; those before it are not needed any more
  bool empties = false;  // what came after it goes as well: it follows from something else
};

// Written as one: hard state, then new start, then truncation, then entries. If it is torn, what survives must
// be a prefix in that order.
struct Persist {
  uint64_t sequence = 0;
  std::optional<HardState> hard_state{};
  std::optional<LogIndex> truncate_from{};  // this entry and all after it go
  std::vector<Entry> entries{};
  std::optional<NewStart> new_start{};
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

// This node's log holds all that was committed when the read came, but entries that it has not applied, and does not
// know to be committed, lie in between. If none of them can change what is read, the state machine as it is may answer.
// Else the read is fed again, with `up_to`.
struct TailRead {
  uint64_t tag = 0;
  uint64_t deadline_ns = 0;
  EntryId up_to{};
};

struct RoleChange {
  Role role = Role::kFollower;
  Term term{};
};

// The node that clients should talk to; none while `leader` is not set.
struct PublishLeader {
  NodeId leader{};
  Term term{};
};

// Why a leader's log does not move though a majority answers.
enum class StallCause : uint8_t {
  kNone,
  kOwnDisk,      // the others commit; this node's disk has not finished a write
  kReplication,  // nothing is committed: no other voter has acknowledged anything
};

// Why a node wants to be elected from now on. Nothing that is decided goes by it.
enum class StandReason : uint8_t {
  kSilentLeader,    // a follower has not heard its leader for as long as it waits (Raft section 5.2)
  kSilentMajority,  // a leader that no majority answers steps down (dissertation section 6.2)
  kNoLeader,        // it knows of no leader, and its wait is over
  kResigned,        // RESIGN
  kAsked,           // its leader hands over (dissertation section 3.10)
};

struct Stand {
  StandReason reason = StandReason::kNoLeader;
  Term term{};             // that it wants to lead in
  NodeId leader{};         // the leader that it gives up, which may be itself; or none
  uint64_t silent_ns = 0;  // how long it has not heard that one, or a majority; 0: it knows of no leader
};

// A leader whose log does not move asks `to` to lead (raft_stall.cc).
struct StepDown {
  StallCause cause = StallCause::kNone;
  NodeId to{};
  uint64_t stalled_ns = 0;  // for how long the log has not moved
};

// A follower needs what the log does not hold any more: any snapshot at `at_least` or later. Said once, until
// there is a SnapshotSent for it; nothing but heartbeats is sent to it meanwhile.
struct SnapshotNeeded {
  NodeId to{};
  LogIndex at_least{};
};

// A change of membership was refused, or has begun: it is done once a configuration of `epoch` or later is
// committed that is not joint, and has failed if (index, term) is not what is applied at that index.
struct MembershipAnswer {
  uint64_t tag = 0;
  ChangeRefusal refusal = ChangeRefusal::kNone;
  NodeId about{};
  LogIndex index{};
  Term term{};
  uint32_t epoch = 0;
};

struct Outputs {
  std::optional<Persist> persist{};
  std::vector<Message> send{};
  std::optional<Snapshot> install{};
  std::vector<Entry> apply{};

  std::vector<AcceptedProposal> accepted{};
  std::vector<Refusal> refused_proposals{};
  std::vector<ReadReady> reads_ready{};
  std::vector<TailRead> tail_reads{};
  std::vector<Refusal> refused_reads{};
  std::optional<RoleChange> role_change{};        // the last, if several
  std::optional<PublishLeader> publish_leader{};  // the last, if several
  std::optional<Stand> stand{};                   // the last, if several
  std::optional<StepDown> step_down{};
  std::vector<SnapshotNeeded> snapshots_needed{};
  std::vector<MembershipAnswer> membership_answers{};
  // What this node goes by from now on; the last, if several. It may be an earlier one again.
  std::optional<Configuration> configuration{};

  void Clear() {
    persist.reset();
    send.clear();
    install.reset();
    apply.clear();
    accepted.clear();
    refused_proposals.clear();
    reads_ready.clear();
    tail_reads.clear();
    refused_reads.clear();
    role_change.reset();
    publish_leader.reset();
    stand.reset();
    step_down.reset();
    snapshots_needed.clear();
    membership_answers.clear();
    configuration.reset();
  }
};

}  // namespace hedgerow::raft
