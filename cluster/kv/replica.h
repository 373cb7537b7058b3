// SPDX-License-Identifier: Apache-2.0
//
// One replica: the Raft core, the store and the request router, joined. It carries out the core's outputs in the
// order that cluster/raft/outputs.h states (persist, send, apply) and is itself without sockets, threads,
// clocks and disks: those are its host's, a node's loop or the simulator, so that what the simulator tries is
// what nodes run.
//
// All calls come from one thread. Receive* and the like only take in; Settle() then works off everything that
// follows, with all writes gathered since in one proposal (dissertation section 10.2.2). A host may call the
// former, never the latter, from within its own methods.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/kv/features.h"
#include "cluster/kv/proposal_queue.h"
#include "cluster/kv/request_router.h"
#include "cluster/kv/state_checks.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/raft.h"

namespace hedgerow::kv {

class ReplicaHost {
 public:
  virtual ~ReplicaHost() = default;

  virtual uint64_t Now_ns() = 0;         // monotonic
  virtual uint64_t StampClock_ns() = 0;  // the same clock; stamps committed time
  virtual uint64_t Random() = 0;
  // Random numbers that do not follow from those that were drawn before: sessions' names are made of them, and clients
  // see those.
  virtual uint64_t Secret() = 0;

  // Once it is durable: Replica::Feed(Persisted), at once or later, and never lost.
  virtual void Persist(raft::Persist persist) = 0;
  virtual void Send(raft::Message message) = 0;
  virtual void Send(Answer answer) = 0;
  // `reply_to` of the request is the client's: the other node answers this one, with the tag.
  virtual void Send(Forward forward) = 0;

  // This node leads from now on, or whom clients should talk to has changed (nobody: `leader` is not set).
  virtual void BecameLeader() {}
  virtual void LeaderIs(raft::NodeId leader, raft::Term term) = 0;

  // A follower needs a snapshot; once something has become of it, or nothing: Replica::Feed(SnapshotSent).
  virtual void SnapshotNeeded(raft::NodeId, raft::LogIndex) {}
  // What became of raft::ChangeMembership; and that this node goes by another configuration.
  virtual void MembershipAnswered(const raft::MembershipAnswer&) {}
  virtual void ConfigurationIs(const raft::Configuration&) {}
  // What a snapshot has replaced, or was not needed for. To free a large one takes seconds: not in the loop.
  virtual void Retire(std::unique_ptr<StateMachine>) {}

  // For who looks on: after each step of the core and before its outputs are carried out; after each applied
  // entry.
  virtual void Stepped(const raft::Outputs&) {}
  virtual void Applied(raft::LogIndex, const StateMachine&) {}
};

// When a node takes a snapshot of its own: once so much was applied since the last one.
struct SnapshotPolicy {
  uint64_t every_entries = 1'000'000;
  uint64_t every_bytes = 256 * 1024 * 1024;  // of entries
};

struct ReplicaOptions {
  raft::Options raft;
  RouterOptions router;
  SnapshotPolicy snapshots{};
  // What a cluster that has no settings yet gets, if this node is its first leader. Nothing: it stays without.
  std::optional<Settings> seed{};
  // Replicas compare their states after every so many entries.
  uint64_t check_every_entries = 16'384;
};

// While something in the state ends by itself, a leader that has nothing to propose proposes that time has
// passed, this often. Whole seconds are what memcached's clients count in.
constexpr uint64_t kTick_ns = 1'000'000'000;

class Replica {
 public:
  // `state` is what the restored snapshot holds, if there is one.
  Replica(ReplicaHost& host, ReplicaOptions options, raft::RestoredState restored,
          std::unique_ptr<StateMachine> state = nullptr);

  void Feed(decltype(raft::Event::what) what) { todo_.push_back(std::move(what)); }
  // `arrived_ns` is when the kernel received it, here and below.
  void ReceiveMessage(uint64_t arrived_ns, raft::Message message);
  // A peer's answer to this node's heartbeat `round`, wherever it was taken: measures the round trip, once.
  void HeartbeatAnswered(uint64_t arrived_ns, raft::NodeId peer, uint64_t round);
  void ReceiveRequest(uint64_t arrived_ns, Request request);
  void ReceiveForwardAnswer(uint64_t tag, raft::NodeId from, const Answer& answer);
  // Proposes other values for some settings; state().settings() tells what came of it. Only a leader's
  // proposal goes anywhere. False: too many wait already.
  bool ChangeSettings(SettingValues values);
  // None of those changes waits to be proposed: all of them are in the log, or lost with the leadership.
  bool HasProposedOwn() const { return own_.empty(); }
  // Proposes to delete the next keys that begin with `prefix` and that the walk finds, some hundreds at most; what is
  // put behind the walk meanwhile stays. Nothing: this node does not lead, or earlier ones wait to be proposed.
  struct Purged {
    uint64_t keys = 0;
    bool done = false;  // the walk is at its end
  };
  std::optional<Purged> PurgeSome(const std::string& prefix, MapWalk& walk);
  // The host has found that it stood still for kStandstill_ns or longer, by its own clock: nothing is known of
  // how long what comes now has waited before the machine.
  void StoodStill() { router_.StoodStill(host_.Now_ns()); }
  // What time demands; needed no earlier than next_deadline_ns().
  void Tick();
  void Settle();

  // Snapshots (ADR 0012), between turns. One that was begun is continued, a little each turn, until it has
  // given its last chunks; once they are durable: Feed(SnapshotTaken). One from a leader replaces what is being
  // taken.
  // `times`: so many times what SnapshotPolicy says, for a host that would rather wait.
  bool wants_snapshot(uint64_t times = 1) const;
  raft::Snapshot BeginSnapshot(size_t chunk_bytes = kSnapshotChunk_bytes);
  bool taking_snapshot() const { return state_.taking_snapshot(); }
  std::vector<std::string> ContinueSnapshot(size_t bytes);
  // The last one is what was put into the state. If not, it is worth nothing, and this replica is outside (below).
  bool snapshot_is_sound() const { return state_.snapshot_is_sound(); }
  void AbandonSnapshot() { state_.AbandonSnapshot(); }
  // What the one that is taken holds in memory beside the state, until its chunks are given.
  uint64_t snapshot_held_bytes() const { return state_.snapshot_held_bytes(); }
  // It is durable, and `state` is made of it.
  void ReceiveSnapshot(raft::SnapshotReceived received, std::unique_ptr<StateMachine> state);

  uint64_t next_deadline_ns() const;

  const raft::Raft& raft() const { return raft_; }
  const StateMachine& state() const { return state_; }
  const raft::EntryId& applied() const { return applied_; }  // the last
  const RequestRouter& router() const { return router_; }
  const ProposalQueue& proposals() const { return proposals_; }

  // What the voters' fingerprints have shown. A replica whose state is wrong goes on to vote, store and apply, but
  // answers no client, takes no snapshot and does not stand; one that leads hands its leadership to a voter of the
  // majority. Its state is replaced by the snapshot that a leader sends it (ReceiveSnapshot), with what its log holds
  // beyond that.
  const StateChecks& checks() const { return checks_; }
  bool outside() const { return checks_.wrong_since() != raft::LogIndex(); }
  // A committed entry that this build cannot read: a later version has it, and what it does cannot be known
  // here. Nothing from it on is applied, until a snapshot has what it did; the replica votes and stores, and is
  // otherwise as one that is outside. Not set: none.
  raft::LogIndex unreadable() const { return unreadable_; }
  bool serves() const { return !outside() && unreadable_ == raft::LogIndex(); }
  // A member has answered that this node has left the cluster; it does not stand.
  void SetRemoved(bool removed);
  // A snapshot has replaced this node's state, or was not needed.
  void Mended(raft::NodeId node, raft::LogIndex index) { checks_.Mended(node, index); }

  // What all members can do, as bits (features.h). A leader proposes nothing that needs more.
  void SetAgreedFeatures(uint32_t features) { agreed_features_ = features; }

  // For tests: a fault of memory.
  bool FlipForTest(const std::string& key) { return MemoryFault::Flip(state_, key); }

 private:
  void Step(decltype(raft::Event::what) what);
  bool MayPropose() const;
  bool Propose();
  raft::Propose TakeProposals();
  void NotKnownToAll(const ProposeCommand& proposal);
  void ProposalsRefused();
  void QueueOwn(Command command);
  void RecordFingerprint();
  void AddCheck(const RequestKey& check);
  void ProposeCheck(raft::LogIndex index, uint64_t fingerprint);
  void FollowChecks();
  void StepAside();
  void ReportOutside();
  void Mend(const raft::Snapshot& snapshot, std::unique_ptr<StateMachine>& state);
  uint64_t next_time_tick_ns() const;
  void SendMessage(raft::Message message);
  void Carry();
  void Install();
  void Apply();
  std::optional<std::set<std::string>> KeysOfTail() const;
  bool TailMayChange(const std::string& key);
  void ReadTail();
  void ApplySome(std::span<const raft::Entry> entries);
  void Act();
  void On(Answer& answer) { host_.Send(std::move(answer)); }
  void On(Forward& forward);
  void On(ProposeCommand& propose) { proposals_.Add(propose); }
  void On(StartRead& read) { Feed(raft::Read{.tag = read.tag, .deadline_ns = read.deadline_ns}); }

  ReplicaHost& host_;
  SnapshotPolicy policy_;
  raft::Raft raft_;
  StateMachine state_;
  CommittedClock clock_;
  RequestRouter router_;

  raft::EntryId applied_;
  // The keys of the last tail that was asked about.
  struct {
    raft::LogIndex applied{};
    raft::EntryId last{};
    std::optional<std::set<std::string>> keys{};
  } tail_;
  uint64_t entries_since_snapshot_ = 0;  // applied
  uint64_t bytes_since_snapshot_ = 0;
  // Of the SnapshotReceived events in todo_, in their order.
  std::deque<std::unique_ptr<StateMachine>> received_;

  struct HeartbeatRound {
    uint64_t round = 0;
    uint64_t sent_ns = 0;
    uint32_t measured = 0;  // mask of slots
  };
  std::array<HeartbeatRound, 64> heartbeats_{};  // by round
  std::deque<decltype(raft::Event::what)> todo_;
  ProposalQueue proposals_;                             // not stamped yet
  std::vector<std::pair<uint64_t, RequestKey>> batch_;  // proposed in the present step, with their tags
  uint64_t check_every_entries_;
  StateChecks checks_;
  uint32_t known_to_all() const { return agreed_features_ | state_.features(); }
  uint32_t agreed_features_ = 0;  // until the host says
  raft::LogIndex unreadable_{};
  bool served_ = true;
  bool removed_ = false;
  uint64_t step_aside_ns_ = 0;    // when a leader that is outside next asks another to lead
  uint64_t report_again_ns_ = 0;  // when a node that is outside says so again
  static constexpr size_t kOwnMax = 16;
  std::deque<Command> own_;  // an administrator's among the proposals, in their order: kSettings, kPurge
  std::optional<Settings> seed_;
  uint64_t proposed_ns_ = 0;  // when this node last proposed something, or began to lead
  // Those that are applied next, whose memory is used again. With 8, 16 or 32 of them their waits for memory
  // overlap equally well (apply_bench.cc).
  std::array<Command, 8> commands_{};
  raft::Outputs outputs_;
  std::vector<Action> actions_;
};

}  // namespace hedgerow::kv
