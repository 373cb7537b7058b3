// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/testing/test_cluster.h"

#include <algorithm>

#include "cluster/raft/check.h"

namespace hedgerow::raft {
namespace {

constexpr int kDeliveriesMax = 100'000;  // a storm of messages that never ends is a fault of the core

}  // namespace

TestCluster::TestCluster(uint64_t nodes, Options options) : options_(std::move(options)) {
  std::vector<NodeId> voters;
  for (uint64_t id = 1; id <= nodes; ++id) voters.push_back(NodeId(id));
  options_.initial = Configuration::OfVoters(voters);
  for (const NodeId id : voters) {
    nodes_[id];
    Start(id);
  }
}

void TestCluster::Join(uint64_t id) {
  HEDGEROW_CHECK(!nodes_.contains(NodeId(id)));
  nodes_[NodeId(id)].joins = true;
  Start(NodeId(id));
}

std::vector<NodeId> TestCluster::ids() const {
  std::vector<NodeId> ids;
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  return ids;
}

void TestCluster::Start(NodeId id) {
  Options options = options_;
  options.self = id;
  Node& node = nodes_.at(id);
  if (node.joins) options.initial = {};
  node.applied.clear();
  // The last one that is a part of this log; others were received and not installed.
  node.disk.snapshot = {};
  const Log log(node.disk.start, node.disk.entries);
  for (const auto& [index, snapshot] : node.snapshots) {
    if (!log.Has(snapshot.first.last)) continue;
    node.disk.snapshot = snapshot.first;
    node.applied = snapshot.second;
  }
  // With 0 as every draw, a wait is exactly the election timeout. Read ids need distinct incarnations: time
  // gives them.
  node.raft = std::make_unique<Raft>(options, node.disk, now_ns_, now_ns_ << 8 | id.value());
  checker_.Started(*node.raft, id);
}

void TestCluster::SetLog(uint64_t id, HardState hard_state, const std::vector<uint64_t>& terms) {
  Node& node = nodes_.at(NodeId(id));
  node.disk = {.hard_state = hard_state, .entries = {}};
  for (const uint64_t term : terms) {
    const LogIndex index(node.disk.entries.size() + 1);
    const std::string payload = "t" + std::to_string(term) + "i" + std::to_string(index.value());
    node.disk.entries.push_back({.term = Term(term), .index = index, .payload = Payload(payload)});
  }
  Start(NodeId(id));
}

void TestCluster::Step(uint64_t id, decltype(Event::what) what) {
  Node& node = nodes_.at(NodeId(id));
  if (node.raft == nullptr) return;
  Outputs outputs;
  node.raft->Step({.now_ns = now_ns_, .random = 0, .what = std::move(what)}, outputs);
  checker_.Stepped(*node.raft, NodeId(id), outputs);
  if (observer_) observer_(NodeId(id), outputs);
  last_ = outputs;
  if (!outputs.membership_answers.empty()) answer_ = outputs.membership_answers.back();
  Carry(NodeId(id), std::move(outputs));
}

void TestCluster::Carry(NodeId id, Outputs outputs) {
  Node& node = nodes_.at(id);
  for (Message& message : outputs.send) {
    if (cut_.contains({message.from, message.to}) || (lost_ && lost_(message))) continue;
    network_.push_back(std::move(message));
  }
  if (outputs.install.has_value()) node.applied = node.snapshots.at(outputs.install->last.index).second;
  LogIndex applied = node.raft->applied();
  for (const Entry& entry : outputs.apply) {
    applied = entry.index;
    if (entry.kind == EntryKind::kCommand) node.applied.emplace_back(entry.payload.view());
  }
  if (outputs.persist.has_value()) node.unwritten.push_back(std::move(*outputs.persist));
  if (applied != node.raft->applied()) Step(id.value(), hedgerow::raft::Applied{.index = applied});
  if (!node.disk_held && !node.unwritten.empty()) ReleaseDisk(id.value());
}

void TestCluster::Write(RestoredState& disk, const Persist& persist) {
  if (persist.hard_state.has_value()) disk.hard_state = *persist.hard_state;
  if (persist.new_start.has_value()) {
    const LogIndex after = persist.new_start->after.index;
    std::erase_if(disk.entries, [&](const Entry& e) { return persist.new_start->empties || e.index <= after; });
    disk.start = persist.new_start->after;
  }
  if (persist.truncate_from.has_value()) {
    std::erase_if(disk.entries, [&](const Entry& entry) { return entry.index >= *persist.truncate_from; });
  }
  disk.entries.insert(disk.entries.end(), persist.entries.begin(), persist.entries.end());
}

void TestCluster::ReleaseDisk(uint64_t id) {
  Node& node = nodes_.at(NodeId(id));
  node.disk_held = false;
  while (!node.unwritten.empty()) {
    const Persist persist = std::move(node.unwritten.front());
    node.unwritten.pop_front();
    Write(node.disk, persist);
    Step(id, Persisted{.sequence = persist.sequence});
  }
}

void TestCluster::TickAtDeadline(uint64_t id) {
  now_ns_ = std::max(now_ns_, At(id).next_deadline_ns());
  Tick(id);
}

uint64_t TestCluster::Propose(uint64_t id, std::string payload) {
  const uint64_t tag = next_tag_++;
  Step(id, hedgerow::raft::Propose{.proposals = {{.tag = tag, .payload = Payload(std::move(payload))}}});
  return tag;
}

uint64_t TestCluster::ProposeAndLose(uint64_t id, std::string payload) {
  const uint64_t tag = Propose(id, std::move(payload));
  DropAll();
  return tag;
}

uint64_t TestCluster::Change(uint64_t id, std::vector<MemberChange> changes) {
  const uint64_t tag = next_tag_++;
  Step(id, ChangeMembership{.tag = tag, .changes = std::move(changes)});
  return tag;
}

uint64_t TestCluster::Read(uint64_t id) {
  const uint64_t tag = next_tag_++;
  Step(id, hedgerow::raft::Read{.tag = tag, .deadline_ns = now_ns_ + 1'000'000'000});
  return tag;
}

void TestCluster::Deliver() {
  for (int i = 0; !network_.empty(); ++i) {
    HEDGEROW_CHECK(i < kDeliveriesMax);
    Message message = std::move(network_.front());
    network_.pop_front();
    const uint64_t to = message.to.value();
    if (nodes_.contains(message.to)) Step(to, Receive{.message = std::move(message)});
  }
}

void TestCluster::DeliverOnce(uint64_t from, uint64_t to) {
  std::deque<Message> chosen;
  std::deque<Message> rest;
  for (Message& message : network_) {
    const bool fits = message.from == NodeId(from) && message.to == NodeId(to);
    (fits ? chosen : rest).push_back(std::move(message));
  }
  network_ = std::move(rest);
  for (Message& message : chosen) Step(to, Receive{.message = std::move(message)});
}

void TestCluster::Exchange(uint64_t from, uint64_t to) {
  DeliverOnce(from, to);
  DeliverOnce(to, from);
}

void TestCluster::HeartbeatRounds(uint64_t leader, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    TickAtDeadline(leader);
    Deliver();
  }
}

void TestCluster::Drop(uint64_t from, uint64_t to) {
  std::erase_if(network_,
                [=](const Message& message) { return message.from == NodeId(from) && message.to == NodeId(to); });
}

void TestCluster::Isolate(uint64_t id) {
  for (const auto& [other, node] : nodes_) {
    cut_.insert({NodeId(id), other});
    cut_.insert({other, NodeId(id)});
  }
}

void TestCluster::Crash(uint64_t id) {
  Node& node = nodes_.at(NodeId(id));
  node.raft.reset();
  node.unwritten.clear();
  node.disk_held = false;
}

void TestCluster::Restart(uint64_t id) { Start(NodeId(id)); }

void TestCluster::TakeSnapshot(uint64_t id) {
  Node& node = nodes_.at(NodeId(id));
  const LogIndex applied = node.raft->applied();
  const Snapshot snapshot{.last = {.index = applied, .term = node.raft->log().TermAt(applied)},
                          .configuration = node.raft->ConfigurationAt(applied)};
  node.snapshots[applied] = {snapshot, node.applied};
  Step(id, SnapshotTaken{.snapshot = snapshot});
}

void TestCluster::SendSnapshot(uint64_t from, uint64_t to) {
  const Snapshot snapshot = At(from).snapshot();
  nodes_.at(NodeId(to)).snapshots[snapshot.last.index] = nodes_.at(NodeId(from)).snapshots.at(snapshot.last.index);
  Step(to, SnapshotReceived{.leader = NodeId(from), .term = At(from).term(), .snapshot = snapshot});
}

void TestCluster::Elect(uint64_t id) {
  // A first try may only teach the node the others' term.
  for (int tries = 0; tries < 3 && At(id).role() != Role::kLeader; ++tries) {
    // Long enough for every follower to give up a former leader.
    Wait(2 * options_.election_cap_ns);
    Tick(id);
    Deliver();
  }
  HEDGEROW_CHECK(At(id).role() == Role::kLeader);
}

}  // namespace hedgerow::raft
