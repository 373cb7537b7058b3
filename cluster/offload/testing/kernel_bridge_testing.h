// SPDX-License-Identifier: Apache-2.0
//
// Node 3 of three for the tests of the bridge: its replica, its disk, and its kernel part, natively, which is
// told what arrives and outlives its process.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "cluster/offload/kernel_bridge.h"
#include "cluster/offload/testing/native_kernel.h"

namespace hedgerow::offload {

using raft::AppendRequest;
using raft::LogIndex;
using raft::Message;
using raft::NodeId;
using raft::Role;
using raft::Term;

inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr Switches kAll{.heartbeat = true, .vote = true, .append = true, .quorum = true};

// Node 3 of three, on a host of its own; its kernel part outlives its process.
class Host : public kv::ReplicaHost {
 public:
  explicit Host(Durability durability = Durability::kMemory, Switches switches = kAll, size_t ring_records = 64)
      : durability_(durability),
        switches_(switches),
        kernel(NodeId(3), {NodeId(1), NodeId(2), NodeId(3)}, ring_records, [this](NativeKernel::Done done) {
          if (done.outcome.answer.has_value()) sent.push_back(*done.outcome.answer);
          events.push_back(done.outcome.event);
          if (done.outcome.verdict == HR_NODE_PASS) passed.push_back(done.message);
        }) {
    EXPECT_TRUE(Start().ok());
  }

  absl::Status Start() {
    kv::ReplicaOptions options;
    options.raft.self = NodeId(3);
    options.raft.initial = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
    unwritten_.clear();
    kernel.ProcessBegins();
    std::unique_ptr<kv::StateMachine> state;
    if (disk.snapshot.last.index > LogIndex()) state = std::make_unique<kv::StateMachine>();
    replica = std::make_unique<kv::Replica>(*this, options, disk, std::move(state));
    bridge = std::make_unique<KernelBridge>(kernel,
                                            KernelBridgeOptions{.incarnation = ++incarnation_,
                                                                .durability = durability_,
                                                                .switches = switches_,
                                                                .lease_ns = 10 * kMillisecond,
                                                                .fence_begins = [this] { fence_begins(); }},
                                            [this](std::string_view datagram) { return kernel.Decode(datagram); });
    return bridge->Adopt(*replica);
  }

  // What the kernel part passes on is received in the same turn.
  void Turn() {
    bridge->BeginTurn(now_ns, *replica);
    for (const Message& message : std::exchange(passed, {})) bridge->Receive(now_ns, message, *replica);
    bridge->Tick(now_ns, *replica);
    bridge->EndTurn(now_ns, *replica);
  }

  uint64_t Begin(uint64_t from, uint64_t term, decltype(Message::body) body) {
    return kernel.Begin(now_ns, {.from = NodeId(from), .to = NodeId(3), .term = Term(term), .body = std::move(body)});
  }
  hr_node_event Arrive(uint64_t from, uint64_t term, decltype(Message::body) body) {
    const uint64_t run = Begin(from, term, std::move(body));
    while (kernel.Step(run)) {
    }
    return events.back();
  }
  // A leader's first words reach the process; from then on the kernel part follows it.
  void Follow(uint64_t leader, uint64_t term) {
    Turn();
    Arrive(leader, term, Beat());
    Turn();
  }

  void ReceiveSnapshot(uint64_t from, uint64_t term, uint64_t last, uint64_t last_term) {
    bridge->BeginTurn(now_ns, *replica);
    bridge->ReceiveSnapshot(
        {.leader = NodeId(from),
         .term = Term(term),
         .snapshot = {.last = {.index = LogIndex(last), .term = Term(last_term)},
                      .configuration = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)})}},
        std::make_unique<kv::StateMachine>(), *replica);
    bridge->EndTurn(now_ns, *replica);
  }

  static raft::Heartbeat Beat(uint64_t round = 1, uint64_t commit = 0) {
    return {.round = round, .commit = LogIndex(commit), .election_timeout_ns = 20 * kMillisecond};
  }
  // One entry of `term`.
  static AppendRequest Batch(uint64_t prev, uint64_t prev_term, uint64_t term, uint64_t commit = 0) {
    return {
        .prev_index = LogIndex(prev),
        .prev_term = Term(prev_term),
        .commit = LogIndex(commit),
        .entries = {{.term = Term(term), .index = LogIndex(prev + 1), .kind = raft::EntryKind::kNoOp, .payload = {}}}};
  }
  static raft::VoteRequest Vote(uint64_t term, uint64_t last, uint64_t last_term) {
    return {.asked_term = Term(term),
            .last_index = LogIndex(last),
            .last_term = Term(last_term),
            .transfer_term = Term(term - 1)};
  }

  static raft::VoteRequest PreVote(uint64_t term, uint64_t last, uint64_t last_term) {
    raft::VoteRequest request = Vote(term, last, last_term);
    request.pre_vote = true;
    return request;
  }

  // One write of those that are held.
  void WriteOne() {
    ASSERT_FALSE(unwritten_.empty());
    Write(unwritten_.front());
    replica->Feed(raft::Persisted{.sequence = unwritten_.front().sequence});
    unwritten_.erase(unwritten_.begin());
    Turn();
  }
  void ReleaseDisk() {
    disk_held = false;
    while (!unwritten_.empty()) {
      Write(unwritten_.front());
      replica->Feed(raft::Persisted{.sequence = unwritten_.front().sequence});
      unwritten_.erase(unwritten_.begin());
    }
  }

  // kv::ReplicaHost
  uint64_t Now_ns() override { return now_ns; }
  uint64_t StampClock_ns() override { return now_ns; }
  uint64_t Random() override { return ++random_; }
  uint64_t Secret() override { return Random(); }
  void Persist(raft::Persist persist) override {
    unwritten_.push_back(std::move(persist));
    if (!disk_held) ReleaseDisk();
  }
  void Send(Message message) override { sent.push_back(std::move(message)); }
  void Send(kv::Answer) override {}
  void Send(kv::Forward) override {}
  void LeaderIs(NodeId, Term) override {}

 private:
  void Write(const raft::Persist& persist) {
    if (persist.hard_state.has_value()) disk.hard_state = *persist.hard_state;
    if (persist.new_start.has_value()) {
      EXPECT_TRUE(persist.new_start->empties);
      disk.entries.clear();
      disk.start = persist.new_start->after;
      disk.snapshot.last = disk.start;
      disk.snapshot.configuration = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
    }
    if (persist.truncate_from.has_value()) disk.entries.resize(persist.truncate_from->value() - 1);
    disk.entries.insert(disk.entries.end(), persist.entries.begin(), persist.entries.end());
  }

  Durability durability_;
  Switches switches_;
  uint64_t incarnation_ = 0;
  uint64_t random_ = 0;
  std::vector<raft::Persist> unwritten_;

 public:
  uint64_t now_ns = 1'000'000'000;
  std::vector<Message> sent;
  std::vector<Message> passed;
  std::vector<hr_node_event> events;
  raft::RestoredState disk;
  bool disk_held = false;
  std::function<void()> fence_begins = [] {};
  NativeKernel kernel;
  std::unique_ptr<kv::Replica> replica;
  std::unique_ptr<KernelBridge> bridge;

  const raft::Raft& raft() const { return replica->raft(); }
};

// In term 1, by a vote that only its kernel part has seen.
inline void Lead(Host& host) {
  host.Turn();
  host.now_ns += 5'000 * kMillisecond;
  host.Turn();
  ASSERT_EQ(host.raft().role(), Role::kPreCandidate);
  host.Arrive(1, 0, raft::VoteReply{.asked_term = Term(1), .pre_vote = true, .granted = true});
  host.Turn();
  ASSERT_EQ(host.raft().role(), Role::kCandidate);
  EXPECT_EQ(host.Arrive(1, 1, raft::VoteReply{.asked_term = Term(1), .granted = true}), HR_NODE_EVENT_WOKEN_FOR_VOTES);
  host.passed.clear();  // lost on its way to the process
  host.Turn();
  ASSERT_EQ(host.raft().role(), Role::kLeader);
}

template <typename Body>
const Body* LastSent(const Host& host) {
  for (auto message = host.sent.rbegin(); message != host.sent.rend(); ++message) {
    if (const auto* body = std::get_if<Body>(&message->body)) return body;
  }
  return nullptr;
}

}  // namespace hedgerow::offload
