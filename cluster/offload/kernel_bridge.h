// SPDX-License-Identifier: Apache-2.0
//
// Keeps a node's replica and its kernel part consistent: rules R0 to R5 and R7 of docs/SAFETY.md, the
// process's side. While the kernel may accept appends or vote, the log's end and the vote are its own; here
// they are taken back (the fence) before the core gets anything that may promise or change something, and given
// again once the replica has settled and everything it asked for is durable; a leader's at once, since it
// promises nothing. Used by a node's loop and by the simulator alike; no sockets, no BPF.
//
// One turn of the host's loop: BeginTurn; Receive, Resigned and whatever else feeds the replica; Tick; Poll;
// EndTurn. A host that sleeps asks MaySleep first.
// All calls come from the loop's thread, and none but BeforeSending from within the replica's calls to its
// host.

#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cluster/kv/replica.h"
#include "cluster/offload/kernel.h"
#include "cluster/raft/term_limit.h"

namespace hedgerow::offload {

enum class Durability : uint8_t { kDisk, kMemory };

struct Switches {
  bool heartbeat = false;
  bool vote = false;
  bool append = false;
  bool quorum = false;

  bool any() const { return heartbeat || vote || append || quorum; }
};

struct KernelBridgeOptions {
  uint64_t incarnation = 0;  // of this process, which its datagrams carry
  Durability durability = Durability::kDisk;
  Switches switches;
  // The kernel part speaks for the process this long after its loop's last turn (R5), or as long as the failure
  // detector tolerates a pause, if that is longer.
  uint64_t lease_ns = 20'000'000;
  // To measure fences: called just before one and just after it.
  std::function<void()> fence_begins{};
  std::function<void()> fence_ended{};
};

// The append in a record's datagram; its tag and its number were checked in the kernel. Nothing: it is none.
using DecodeAppend = std::function<std::optional<raft::Message>(std::string_view datagram)>;

struct KernelBridgeStatistics {
  uint64_t fences = 0;
  uint64_t opens = 0;
  uint64_t leases = 0;
  uint64_t appends = 0;  // records
  uint64_t votes = 0;
  uint64_t adopted = 0;  // of both, those that a former incarnation had left
};

class KernelBridge {
 public:
  KernelBridge(Kernel& kernel, KernelBridgeOptions options, DecodeAppend decode);

  // The kernel part votes in no later term than this allows, from the next lease on.
  void SetTermLimit(const raft::TermLimit& limit) { term_limit_ = limit; }

  // Once, before the first turn: makes the state this process's and feeds the replica with what the kernel part
  // accepted for a former incarnation and the log lacks; records stay in the ring until the log has them.
  // DataLoss: the kernel part has promised what cannot be found, so this node must not go on as itself.
  absl::Status Adopt(kv::Replica& replica);

  // Drains the ring, renews the lease, and tells the replica what was heard and counted.
  void BeginTurn(uint64_t now_ns, kv::Replica& replica);
  void Receive(uint64_t arrived_ns, raft::Message message, kv::Replica& replica);
  void Resigned(const raft::LeaderResigns& hint, kv::Replica& replica);
  // A snapshot from a leader: it may change the term and replace the log.
  void ReceiveSnapshot(raft::SnapshotReceived received, std::unique_ptr<kv::StateMachine> state, kv::Replica& replica);
  // In place of the replica's own Tick.
  void Tick(uint64_t now_ns, kv::Replica& replica);
  // Before what the replica wants sent leaves, any number of times in a turn: the kernel part must not say less
  // of this log than the messages do, and must not consume an answer that they wait for.
  void BeforeSending(uint64_t now_ns, const raft::Raft& raft);
  // What the followers' answers to this turn's messages have moved, if they are there already: settles the
  // replica with it. False: nothing.
  bool Poll(uint64_t now_ns, kv::Replica& replica);
  // Settles the replica. Leaves to the kernel part what it may do from now on.
  void EndTurn(uint64_t now_ns, kv::Replica& replica);

  // The node stops in order: takes everything back for good. The replica is settled.
  void Close(kv::Replica& replica);

  // The kernel part passes on what wakes a leader's process only while that sleeps (R6). False: something has
  // moved, and the next turn is due at once. A host that never says that it is awake is woken for everything.
  bool MaySleep();
  void Awake() { kernel_.SetAwake(true); }
  // Something has moved that BeginTurn or Poll has yet to see.
  bool DoorbellRang() { return open_ && opened_.role == raft::Role::kLeader && kernel_.Moved() != moved_seen_; }

  // When the next turn is due, whatever else happens: the lease, and what the ring and the counters hold (R6).
  uint64_t next_deadline_ns() const { return open_ ? leased_ns_ + options_.lease_ns / 3 : UINT64_MAX; }
  // Another process has taken the state over: this one must end, and nothing is fed to the replica any more.
  bool superseded() const { return superseded_; }
  bool open() const { return open_; }
  const KernelBridgeStatistics& statistics() const { return statistics_; }

 private:
  // What a fence protects.
  struct LeaseState {
    raft::Term term{};
    raft::NodeId voted_for{};
    raft::NodeId leader{};
    raft::Role role = raft::Role::kFollower;
    bool operator==(const LeaseState&) const = default;
  };
  // The members and the voters. A change promises nothing by itself; masks, members and epoch still change
  // together, behind a fence.
  struct Membership {
    uint32_t epoch = 0;
    uint32_t peers = 0;
    bool operator==(const Membership&) const = default;
  };
  static Membership MembershipOf(const raft::Raft& raft) {
    return {.epoch = raft.configuration().epoch, .peers = raft.peers()};
  }
  static LeaseState LeaseStateOf(const raft::Raft& raft) {
    return {.term = raft.term(), .voted_for = raft.voted_for(), .leader = raft.leader(), .role = raft.role()};
  }

  // Of the ring, in its order, until it is released.
  struct Taken {
    uint64_t end = 0;
    bool fed = false;
    uint64_t sequence = kNotYet;  // of the write that covers it
  };
  static constexpr uint64_t kNotYet = UINT64_MAX;
  // A term's vote comes before its appends.
  struct Order {
    raft::Term term{};
    bool append = false;
    uint64_t prev_index = 0;
    auto operator<=>(const Order&) const = default;
  };
  struct Waiting {
    uint64_t taken = 0;  // its number
    decltype(raft::Event::what) what;
    raft::LogIndex last{};
  };

  // kernel_bridge.cc
  bool Run(hr_node_operation operation);
  bool VoteWaits() const { return !waiting_.empty() && !waiting_.begin()->first.append; }
  void Fence(kv::Replica& replica);
  void FenceAndSettle(kv::Replica& replica);
  bool Lags(const raft::Raft& raft) const;
  bool NothingMoved(uint64_t now_ns, const raft::Raft& raft);
  void Lease(uint64_t now_ns, const raft::Raft& raft);
  void Open(uint64_t now_ns, const raft::Raft& raft);
  uint32_t CapabilitiesFor(const raft::Raft& raft) const;
  // Whether the kernel part votes only while the leader is suspect.
  bool VotesOnSuspicion() const {
    return options_.durability == Durability::kMemory && options_.switches.vote && !options_.switches.append;
  }
  // Whether a follower's kernel part may vote or append. What binds a node is durable in disk mode, which no kernel
  // part sees to.
  bool MayPromise() const { return options_.durability == Durability::kMemory; }
  bool MayOpen(const raft::Raft& raft);
  bool OwnsLog() const { return (capabilities_ & HR_NODE_OWNS_LOG) != 0; }
  bool Promises(const raft::Message& message, const raft::Raft& raft) const;
  void Sync(kv::Replica& replica);
  void SyncHeard(kv::Replica& replica);
  void SyncVotes(kv::Replica& replica);
  void SyncCounted(kv::Replica& replica);

  // kernel_bridge_ring.cc
  void Drain(bool wait);
  void Keep(const RingRecord& record);
  void FeedWaiting(kv::Replica& replica, bool votes_too);
  void FeedFirst(kv::Replica& replica);
  Waiting TakeFirst();
  void Release(const raft::Raft& raft);

  Kernel& kernel_;
  KernelBridgeOptions options_;
  raft::TermLimit term_limit_;
  DecodeAppend decode_;
  hr_node_control control_{};  // of the last request; its state is the last one seen
  bool superseded_ = false;

  bool open_ = false;
  LeaseState opened_;
  Membership opened_members_;
  raft::HardState hard_state_;        // as MayOpen saw it last
  uint64_t hard_state_sequence_ = 0;  // of a write that was asked for by then, so covers it
  uint32_t capabilities_ = 0;
  uint64_t leased_ns_ = 0;
  uint64_t moved_seen_ = 0;  // Kernel::Moved() before the last shared state that the replica was told of
  uint64_t synced_ns_ = 0;   // when that was
  raft::LogIndex leased_matched_;
  uint32_t leased_every_ack_ = 0;
  uint64_t leased_stalled_by_ns_ = 0;

  std::vector<RingRecord> records_;
  uint64_t position_ = 0;  // in the ring, taken up to here
  std::deque<Taken> taken_;
  uint64_t first_taken_ = 0;  // the number of its front
  std::multimap<Order, Waiting> waiting_;
  raft::LogIndex fed_end_;  // of the log, with everything that was fed
  KernelBridgeStatistics statistics_;
};

}  // namespace hedgerow::offload
