// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/snapshots.h"

#include <memory>
#include <utility>

#include "cluster/kv/state_loader.h"
#include "cluster/sim/server.h"
#include "cluster/sim/faults.h"

namespace hedgerow::sim {
namespace {

constexpr uint64_t kPushAgain_ns = 60 * kMillisecond;
constexpr uint64_t kTimeout_ns = 600 * kMillisecond;

}  // namespace

void Snapshots::Crashed() {
  ++incarnation_;
  left_.clear();
  needed_.clear();
  taking_.reset();
  taken_.clear();
  sending_.clear();
  receiving_ = {};
}

void Snapshots::Leave(std::function<void()> what) {
  left_.push_back(std::move(what));
  server_.Wake();
}

void Snapshots::Turn() {
  kv::Replica& replica = server_.replica();
  if (!taking_.has_value() && replica.wants_snapshot()) Begin();
  for (const std::function<void()>& what : std::exchange(left_, {})) {
    what();
    replica.Settle();
  }
  for (const auto& [to, at_least] : std::exchange(needed_, {})) SendNeeded(to, at_least);
  replica.Settle();
}

void Snapshots::Begin() {
  taking_ = server_.replica().BeginSnapshot(world_.plan.snapshots.chunk_bytes);
  world_.Trace("node ", server_.id().value(), " begins a snapshot at ", taking_->last.index.value());
  world_.faults->SnapshotMoment(server_);
  world_.time.After(world_.random.Below(world_.plan.snapshots.pause_max_ns), [this, incarnation = incarnation_] {
    if (incarnation == incarnation_) Leave([this] { Slice(); });
  });
}

void Snapshots::Slice() {
  kv::Replica& replica = server_.replica();
  if (!replica.taking_snapshot()) {  // a leader's has replaced the state
    taking_.reset();
    taken_.clear();
    return;
  }
  for (std::string& chunk : replica.ContinueSnapshot(world_.plan.snapshots.slice_bytes)) {
    taken_.push_back(std::move(chunk));
  }
  const bool more = replica.taking_snapshot();
  const uint64_t pause_ns = world_.random.Below(world_.plan.snapshots.pause_max_ns);
  world_.time.After(pause_ns, [this, incarnation = incarnation_, more] {
    if (incarnation != incarnation_) return;
    if (more) return Leave([this] { Slice(); });
    WriteTaken();
  });
}

// The file is whole, synced and in its place; or there was no room for it.
void Snapshots::WriteTaken() {
  const raft::Snapshot snapshot = *std::exchange(taking_, {});
  std::vector<std::string> chunks = std::exchange(taken_, {});
  if (server_.disk().full()) return;
  server_.disk().PutSnapshot(
      {.snapshot = snapshot, .chunks = std::make_shared<const std::vector<std::string>>(std::move(chunks))});
  ++world_.snapshots_taken;
  world_.faults->SnapshotMoment(server_);
  Leave([this, snapshot] { server_.replica().Feed(raft::SnapshotTaken{.snapshot = snapshot}); });
}

void Snapshots::SendNeeded(raft::NodeId to, raft::LogIndex at_least) {
  if (server_.raft().role() != raft::Role::kLeader) return;  // and with the lead goes what it waited for
  const StoredSnapshot* newest = server_.disk().Find(server_.raft().snapshot().last);
  const uint64_t number = ++world_.transfers;
  if (newest == nullptr || newest->snapshot.last.index < at_least) {
    world_.Fail("node ", server_.id().value(), " wants to send a snapshot at ", at_least.value(), ", and has none");
    return;
  }
  sending_[to] = {
      .number = number, .what = *newest, .term = server_.raft().term(), .next = 0, .progress_ns = world_.time.now_ns()};
  Push(to, number);
  Watch(to, number);
}

Snapshots::Sending* Snapshots::Find(raft::NodeId to, uint64_t number) {
  const auto found = sending_.find(to);
  return found == sending_.end() || found->second.number != number ? nullptr : &found->second;
}

void Snapshots::Push(raft::NodeId to, uint64_t number) {
  const Sending* const sending = Find(to, number);
  if (sending == nullptr || sending->next >= sending->what.chunks->size()) return;
  Server* const peer = world_.servers[to.value() - 1].get();
  world_.network.Send(server_.id().value(), to.value(), UINT64_MAX,
                      [peer, from = server_.id(), sending = *sending, place = sending->next] {
                        if (peer->up()) peer->snapshots().ArrivePiece(from, sending, place);
                      });
}

// Sends again what was lost, and gives up at last.
void Snapshots::Watch(raft::NodeId to, uint64_t number) {
  world_.time.After(kPushAgain_ns, [this, to, number] {
    const Sending* const sending = Find(to, number);
    if (sending == nullptr) return;
    const bool leads = server_.raft().role() == raft::Role::kLeader && server_.raft().term() == sending->term;
    if (!leads || world_.time.now_ns() >= sending->progress_ns + kTimeout_ns) {
      End(to, false);
      return;
    }
    Push(to, number);
    Watch(to, number);
  });
}

void Snapshots::End(raft::NodeId to, bool delivered) {
  const raft::LogIndex index = sending_.at(to).what.snapshot.last.index;
  sending_.erase(to);
  Leave([this, to, index, delivered] {
    server_.replica().Feed(raft::SnapshotSent{.to = to, .index = index, .delivered = delivered});
  });
}

void Snapshots::ArriveHave(raft::NodeId from, uint64_t number, uint64_t have) {
  Sending* const sending = Find(from, number);
  // What is said twice is answered once: else doubled packets would breed.
  if (sending == nullptr || server_.paused() || have == sending->next) return;
  if (have > sending->next) sending->progress_ns = world_.time.now_ns();
  if (have < sending->next) ++world_.transfers_resumed;
  sending->next = have;
  Push(from, number);
}

void Snapshots::ArriveInstalled(raft::NodeId from, uint64_t number) {
  if (Find(from, number) != nullptr) End(from, true);
}

void Snapshots::ArrivePiece(raft::NodeId from, const Sending& sending, uint64_t place) {
  if (server_.paused()) return;
  const raft::Snapshot& snapshot = sending.what.snapshot;
  if (receiving_.last != snapshot.last) {
    if (place != 0 && receiving_.complete) return;  // late
    receiving_ = {.last = snapshot.last, .chunks = {}};
  }
  const std::vector<std::string>& chunks = *sending.what.chunks;
  if (place == receiving_.chunks.size()) receiving_.chunks.push_back(chunks[place]);
  Server* const peer = world_.servers[from.value() - 1].get();
  world_.network.Send(server_.id().value(), from.value(), UINT64_MAX,
                      [peer, self = server_.id(), number = sending.number, have = receiving_.chunks.size()] {
                        if (peer->up()) peer->snapshots().ArriveHave(self, number, have);
                      });
  if (receiving_.complete || receiving_.chunks.size() < chunks.size()) return;
  receiving_.complete = true;
  const uint64_t write_ns = world_.random.Below(world_.plan.snapshots.pause_max_ns);
  world_.time.After(write_ns, [this, incarnation = incarnation_, from, sending] {
    if (incarnation == incarnation_) Complete(from, sending.number, sending.term, sending.what);
  });
}

void Snapshots::Complete(raft::NodeId from, uint64_t number, raft::Term term, StoredSnapshot what) {
  receiving_ = {};
  if (server_.disk().full()) return;
  server_.disk().PutSnapshot(what);
  world_.faults->SnapshotMoment(server_);
  Leave([this, from, number, term, what = std::move(what)] { Install(from, number, term, what); });
}

void Snapshots::Install(raft::NodeId from, uint64_t number, raft::Term term, const StoredSnapshot& what) {
  server_.ReceiveSnapshot({.leader = from, .term = term, .snapshot = what.snapshot}, *what.chunks);
  server_.replica().Settle();
  world_.faults->SnapshotMoment(server_);
  Server* const peer = world_.servers[from.value() - 1].get();
  world_.network.Send(server_.id().value(), from.value(), UINT64_MAX, [peer, self = server_.id(), number] {
    if (peer->up()) peer->snapshots().ArriveInstalled(self, number);
  });
}

}  // namespace hedgerow::sim
