// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/server.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "cluster/raft/check.h"
#include "cluster/raft/describe.h"
#include "cluster/raft/seeded_bugs.h"
#include "cluster/sim/client.h"
#include "cluster/sim/weather.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kSocketMax = 512;  // packets; a full socket drops

kv::ReplicaOptions OptionsOf(const World& world, raft::NodeId id) {
  kv::ReplicaOptions options{.raft = world.plan.raft,
                             .sessions = world.plan.sessions,
                             .window = world.plan.window,
                             .desk = world.plan.desk};
  options.raft.self = id;
  for (uint64_t node = 1; node <= world.plan.nodes; ++node) options.raft.voters.push_back(raft::NodeId(node));
  return options;
}

}  // namespace

Server::Server(World& world, raft::NodeId id)
    : world_(world), id_(id), disk_(world.time, world.random, world.plan.disk, [this](uint64_t sequence) {
        // The disk's word reaches a node that stands still when it goes on, and is never dropped.
        auto tell = [this, sequence] { Feed(raft::Persisted{.sequence = sequence}); };
        if (!paused_) return tell();
        socket_.push_back(tell);
      }) {}

void Server::Start() {
  if (up()) return;
  ++lives_;
  replica_.emplace(*this, OptionsOf(world_, id_), disk_.durable());
  world_.checker.Started(raft(), id_);
  armed_ns_ = UINT64_MAX;
  world_.Trace("node ", id_.value(), " starts: ", raft::Describe(id_, raft()));
  Rearm();
}

void Server::Crash() {
  if (!up()) return;
  world_.Trace("node ", id_.value(), " crashes");
  ++world_.crashes;
  replica_.reset();
  socket_.clear();
  paused_ = false;
  disk_.Crash();
}

void Server::Resume() {
  if (!paused_) return;
  paused_ = false;
  std::deque<std::function<void()>> waiting = std::move(socket_);
  socket_.clear();
  for (auto& handle : waiting) {
    if (up()) handle();
  }
  if (up()) Wake(lives_);
}

void Server::Arrive(std::function<void(uint64_t)> handle) {
  if (!up()) return;
  const uint64_t arrived_ns = world_.time.now_ns();
  if (!paused_) {
    handle(arrived_ns);
  } else if (socket_.size() < kSocketMax) {
    socket_.push_back([handle = std::move(handle), arrived_ns] { handle(arrived_ns); });
  }
}

void Server::ArriveFromPeer(raft::Message message) {
  Arrive([this, message = std::move(message)](uint64_t arrived_ns) {
    replica_->ReceiveMessage(arrived_ns, message);
    Settle();
  });
}

void Server::ArriveRequest(kv::Request request) {
  Arrive([this, request = std::move(request)](uint64_t arrived_ns) {
    replica_->ReceiveRequest(arrived_ns, request);
    Settle();
  });
}

void Server::ArriveForwardAnswer(raft::NodeId from, kv::Answer answer) {
  Arrive([this, from, answer = std::move(answer)](uint64_t) {
    replica_->ReceiveForwardAnswer(answer.reply_to.request, from, answer);
    Settle();
  });
}

void Server::Feed(decltype(raft::Event::what) what) {
  if (!up()) return;
  replica_->Feed(std::move(what));
  Settle();
}

void Server::Settle() {
  if (settling_) return;  // the disk's word during a step
  settling_ = true;
  replica_->Settle();
  settling_ = false;
  Rearm();
}

void Server::Stepped(const raft::Outputs& outputs) {
  world_.checker.Stepped(raft(), id_, outputs);
  if (!world_.trace) return;
  for (const std::string& line : raft::Describe(id_, outputs)) world_.Trace(line);
}

// State Machine Safety to its end: not only the same entries, but the same state.
void Server::Applied(raft::LogIndex index, const kv::StateMachine& state) {
  if (world_.fingerprints.size() < index.value()) {
    world_.fingerprints.push_back(state.fingerprint());
  } else if (world_.fingerprints[index.value() - 1] != state.fingerprint()) {
    world_.Fail("node ", id_.value(), " has another state after entry ", index.value(), " than the first had");
  }
}

void Server::BecameLeader() {
  ++world_.elections;
  world_.weather->NewLeader(*this);
}

void Server::Send(raft::Message message) {
  Server* const to = world_.servers[message.to.value() - 1].get();
  const auto* vote = std::get_if<raft::VoteReply>(&message.body);
  const bool is_vote = vote != nullptr && !vote->pre_vote;
  world_.network.Send(
      id_.value(), to->id().value(), UINT64_MAX,
      [to, message = std::move(message)] { to->ArriveFromPeer(message); }, is_vote);
}

void Server::Send(kv::Answer answer) {
  const uint64_t address = answer.reply_to.client;
  if (address < kFirstClient) {  // to who forwarded it
    Server* const to = world_.servers[address - 1].get();
    world_.network.Send(id_.value(), address, UINT64_MAX, [to, from = id_, answer = std::move(answer)] {
      to->ArriveForwardAnswer(from, answer);
    });
    return;
  }
  Client* const client = world_.clients[address - kFirstClient].get();
  world_.network.Send(id_.value(), address, UINT64_MAX,
                      [client, answer = std::move(answer)] { client->ArriveAnswer(answer); });
}

void Server::Send(kv::Forward forward) {
  Server* const to = world_.servers[forward.to.value() - 1].get();
  const bool windowed = forward.request.command.key.kind == kv::CommandKind::kWindowed;
  forward.request.reply_to = {.client = id_.value(), .request = forward.tag, .way = {}};
  world_.network.Send(id_.value(), forward.to.value(), windowed ? kWindowedDelayMax_ns : UINT64_MAX,
                      [to, request = std::move(forward.request)] { to->ArriveRequest(request); });
}

uint64_t Server::Now_ns() { return world_.time.now_ns(); }

uint64_t Server::StampClock_ns() {
  return SeededBug(Bug::kWallClockExpiry) ? Now_ns() + static_cast<uint64_t>(wall_offset_ns_) : Now_ns();
}

uint64_t Server::Random() { return world_.random.Next(); }

void Server::Rearm() {
  if (!up() || settling_) return;
  const uint64_t due_ns = std::max(world_.time.now_ns(), replica_->next_deadline_ns());
  if (due_ns >= armed_ns_) return;
  armed_ns_ = due_ns;
  world_.time.At(due_ns, [this, life = lives_] { Wake(life); });
}

void Server::Wake(uint64_t life) {
  if (life != lives_ || !up()) return;
  const uint64_t now_ns = world_.time.now_ns();
  if (armed_ns_ <= now_ns) armed_ns_ = UINT64_MAX;
  if (paused_) return;  // Resume wakes it
  replica_->Tick();
  Settle();
}

}  // namespace hedgerow::sim
