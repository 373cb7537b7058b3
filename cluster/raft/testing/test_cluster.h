// SPDX-License-Identifier: Apache-2.0
//
// A whole cluster in one hand: nothing moves unless the test says so. Time, delivery, disks and crashes are
// steps of the test; the invariants are checked after each. Used by the golden scripts and the section tests.
// Random faults are the simulator's business (cluster/sim).

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/raft/invariants.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

class TestCluster {
 public:
  // Called after every step with what it put out, before any of it is carried out.
  using Observer = std::function<void(NodeId node, const Outputs& outputs)>;

  explicit TestCluster(uint64_t nodes, Options options = {});
  // A node that is no member: it listens. Any id that there is not yet.
  void Join(uint64_t id);

  void Observe(Observer observer) { observer_ = std::move(observer); }
  const std::string& violation() const { return checker_.violation(); }
  std::vector<NodeId> ids() const;
  bool Has(NodeId id) const { return nodes_.contains(id); }
  bool Runs(NodeId id) const { return nodes_.at(id).raft != nullptr; }
  const Raft& At(uint64_t id) const { return *nodes_.at(NodeId(id)).raft; }
  uint64_t now_ns() const { return now_ns_; }
  const std::deque<Message>& network() const { return network_; }
  // The commands that a node's state machine has applied since it started.
  const std::vector<std::string>& Applied(uint64_t id) const { return nodes_.at(NodeId(id)).applied; }
  const Outputs& Last() const { return last_; }
  // To the last change of membership that was asked for.
  const MembershipAnswer& Answer() const { return answer_; }

  // Before anything has happened: the node's disk holds entries of these terms.
  void SetLog(uint64_t id, HardState hard_state, const std::vector<uint64_t>& terms);

  void Wait(uint64_t duration_ns) { now_ns_ += duration_ns; }
  void Step(uint64_t id, decltype(Event::what) what);
  void Tick(uint64_t id) { Step(id, hedgerow::raft::Tick{}); }
  // Waits until the node's deadline, then ticks it.
  void TickAtDeadline(uint64_t id);
  uint64_t Propose(uint64_t id, std::string payload);
  // Its appends are lost, and with them all that is in flight.
  uint64_t ProposeAndLose(uint64_t id, std::string payload);
  uint64_t Change(uint64_t id, std::vector<MemberChange> changes);
  uint64_t Read(uint64_t id);

  // Delivers what is in flight, and what that causes, until nothing is left.
  void Deliver();
  // Only from one to another, and nothing that it causes.
  void DeliverOnce(uint64_t from, uint64_t to);
  // What one has sent to another, then what that one answers.
  void Exchange(uint64_t from, uint64_t to);
  // So many, each when it is due, with all that it causes.
  void HeartbeatRounds(uint64_t leader, int rounds = 1);
  void DropAll() { network_.clear(); }
  void Drop(uint64_t from, uint64_t to);
  void Inject(Message message) { network_.push_back(std::move(message)); }
  void Cut(uint64_t from, uint64_t to) { cut_.insert({NodeId(from), NodeId(to)}); }
  void Isolate(uint64_t id);
  void Heal() { cut_.clear(); }
  // From now on the network loses each message that `lost` is true of; null: none.
  void Lose(std::function<bool(const Message&)> lost) { lost_ = std::move(lost); }

  // What the node asks to persist stays undone until the disk is released.
  void HoldDisk(uint64_t id) { nodes_.at(NodeId(id)).disk_held = true; }
  void ReleaseDisk(uint64_t id);
  void Crash(uint64_t id);
  void Restart(uint64_t id);

  // The node takes a snapshot of what it has applied, durable at once.
  void TakeSnapshot(uint64_t id);
  // The sender's last snapshot arrives. It is not told: the acknowledgement does that.
  void SendSnapshot(uint64_t from, uint64_t to);

  // Ticks the node and delivers until it leads.
  void Elect(uint64_t id);

 private:
  struct Node {
    std::unique_ptr<Raft> raft;
    bool joins = false;  // knows of no first configuration
    RestoredState disk;
    std::deque<Persist> unwritten;
    bool disk_held = false;
    std::vector<std::string> applied;
    std::map<LogIndex, std::pair<Snapshot, std::vector<std::string>>> snapshots;  // on its disk, with `applied`
  };

  void Start(NodeId id);
  void Carry(NodeId id, Outputs outputs);
  static void Write(RestoredState& disk, const Persist& persist);

  Options options_;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t next_tag_ = 1;
  std::map<NodeId, Node> nodes_;
  std::deque<Message> network_;
  std::set<std::pair<NodeId, NodeId>> cut_;
  std::function<bool(const Message&)> lost_;
  InvariantChecker checker_;
  Observer observer_;
  Outputs last_;
  MembershipAnswer answer_;
};

// How each read ended from now on, by its tag.
class ReadLog {
 public:
  explicit ReadLog(TestCluster& cluster) {
    cluster.Observe([this](NodeId, const Outputs& outputs) {
      for (const ReadReady& read : outputs.reads_ready) ready.push_back(read.tag);
      for (const TailRead& read : outputs.tail_reads) tail.push_back(read);
      for (const Refusal& read : outputs.refused_reads) refused.push_back(read.tag);
    });
  }
  std::vector<uint64_t> ready;
  std::vector<TailRead> tail;
  std::vector<uint64_t> refused;
};

// The peers that need a snapshot from now on.
class SnapshotsNeeded {
 public:
  explicit SnapshotsNeeded(TestCluster& cluster) {
    cluster.Observe([this](NodeId, const Outputs& outputs) {
      for (const SnapshotNeeded& needed : outputs.snapshots_needed) asked.push_back(needed.to.value());
    });
  }
  std::vector<uint64_t> asked;
};

// A snapshot leaves so many entries before it in the log.
inline Options WithTail(uint64_t entries) {
  Options options;
  options.tail_max_entries = entries;
  return options;
}

}  // namespace hedgerow::raft
