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

raft::Options OptionsOf(const World& world, raft::NodeId id) {
  raft::Options options = world.plan.raft;
  options.self = id;
  for (uint64_t node = 1; node <= world.plan.nodes; ++node) options.voters.push_back(raft::NodeId(node));
  return options;
}

}  // namespace

Server::Life::Life(World& world, raft::NodeId id, raft::RestoredState restored)
    : raft(OptionsOf(world, id), std::move(restored), world.time.now_ns(), world.random.Next()),
      state(world.plan.sessions, world.plan.window),
      desk(id, state, world.plan.desk) {}

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
  life_.emplace(world_, id_, disk_.durable());
  world_.checker.Started(life_->raft, id_);
  armed_ns_ = UINT64_MAX;
  world_.Trace("node ", id_.value(), " starts: ", raft::Describe(id_, life_->raft));
  Rearm();
}

void Server::Crash() {
  if (!up()) return;
  world_.Trace("node ", id_.value(), " crashes");
  ++world_.crashes;
  life_.reset();
  socket_.clear();
  todo_.clear();
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
    if (const auto* reply = std::get_if<raft::HeartbeatReply>(&message.body)) {
      const uint64_t sent_ns = heartbeat_sent_ns_[reply->round % heartbeat_sent_ns_.size()];
      if (sent_ns < arrived_ns)
        Feed(raft::RoundTrip{.peer = message.from, .duration_ns = arrived_ns - sent_ns});
    }
    Feed(raft::Receive{.message = message});
  });
}

void Server::ArriveRequest(kv::Request request) {
  Arrive([this, request = std::move(request)](uint64_t arrived_ns) {
    std::vector<kv::Action> actions;
    life_->desk.Receive(world_.time.now_ns(), arrived_ns, request, actions);
    Do(actions);
  });
}

void Server::Feed(decltype(raft::Event::what) what) {
  if (!up()) return;
  todo_.push_back(std::move(what));
  if (busy_) return;
  busy_ = true;
  raft::Outputs outputs;
  while (!todo_.empty()) {
    const raft::Event event{
        .now_ns = world_.time.now_ns(), .random = world_.random.Next(), .what = std::move(todo_.front())};
    todo_.pop_front();
    outputs.Clear();
    life_->raft.Step(event, outputs);
    world_.checker.Stepped(life_->raft, id_, outputs);
    if (world_.trace) {
      for (const std::string& line : raft::Describe(id_, outputs)) world_.Trace(line);
    }
    Carry(outputs);
  }
  busy_ = false;
  Rearm();
}

// In the order of the contract: outputs.h.
void Server::Carry(raft::Outputs& outputs) {
  if (outputs.persist.has_value()) disk_.Write(std::move(*outputs.persist));
  SendToPeers(outputs.send);
  Apply(outputs.apply);
  std::vector<kv::Action> actions;
  const uint64_t now_ns = world_.time.now_ns();
  for (const raft::Refusal& refusal : outputs.refused_proposals) {
    life_->desk.ProposalRefused(now_ns, refusal.tag, refusal.reason, actions);
  }
  for (const raft::ReadReady& read : outputs.reads_ready) life_->desk.ReadReady(read.tag, actions);
  for (const raft::Refusal& refusal : outputs.refused_reads) life_->desk.ReadRefused(refusal.tag, actions);
  if (outputs.role_change.has_value() && outputs.role_change->role == raft::Role::kLeader) {
    ++world_.elections;
    life_->clock.StartTerm();
    world_.weather->NewLeader(*this);
  }
  if (outputs.publish_leader.has_value()) {
    life_->desk.LeaderChanged(now_ns, outputs.publish_leader->leader, actions);
  }
  Do(actions);
}

void Server::SendToPeers(std::vector<raft::Message>& messages) {
  for (raft::Message& message : messages) {
    if (const auto* heartbeat = std::get_if<raft::Heartbeat>(&message.body)) {
      heartbeat_sent_ns_[heartbeat->round % heartbeat_sent_ns_.size()] = world_.time.now_ns();
    }
    Server* const to = world_.servers[message.to.value() - 1].get();
    const auto* vote = std::get_if<raft::VoteReply>(&message.body);
    const bool is_vote = vote != nullptr && !vote->pre_vote;
    world_.network.Send(
        id_.value(), to->id().value(), UINT64_MAX,
        [to, message = std::move(message)] { to->ArriveFromPeer(message); }, is_vote);
  }
}

void Server::Apply(const std::vector<raft::Entry>& entries) {
  if (entries.empty()) return;
  std::vector<kv::Action> actions;
  for (const raft::Entry& entry : entries) {
    if (entry.kind == raft::EntryKind::kCommand) {
      const std::optional<kv::Command> command = kv::Decode(entry.payload.view());
      HEDGEROW_CHECK(command.has_value());
      const kv::Result result = life_->state.Apply(entry.index.value(), *command);
      life_->desk.Applied(command->key, result, actions);
    }
    // State Machine Safety to its end: not only the same entries, but the same state.
    if (world_.fingerprints.size() < entry.index.value()) {
      world_.fingerprints.push_back(life_->state.fingerprint());
    } else if (world_.fingerprints[entry.index.value() - 1] != life_->state.fingerprint()) {
      world_.Fail("node ", id_.value(), " has another state after entry ", entry.index.value(),
                  " than the first had");
    }
  }
  todo_.push_back(raft::Applied{.index = entries.back().index});
  Do(actions);
}

void Server::Do(std::vector<kv::Action>& actions) {
  for (kv::Action& action : actions) {
    std::visit([this](auto& what) { Act(what); }, action);
  }
  Rearm();
}

void Server::Act(kv::Answer& answer) {
  Client* const client = world_.clients[answer.reply_to.client - kFirstClient].get();
  world_.network.Send(id_.value(), answer.reply_to.client, UINT64_MAX,
                      [client, answer = std::move(answer)] { client->ArriveAnswer(answer); });
}

void Server::Act(kv::Forward& forward) {
  Server* const to = world_.servers[forward.to.value() - 1].get();
  const bool windowed = forward.request.command.key.kind == kv::CommandKind::kWindowed;
  world_.network.Send(id_.value(), forward.to.value(), windowed ? kWindowedDelayMax_ns : UINT64_MAX,
                      [to, request = std::move(forward.request)] { to->ArriveRequest(request); });
}

void Server::Act(kv::ProposeCommand& propose) {
  propose.command.elapsed_ns = life_->clock.Elapsed_ns(ClockOfStamps_ns());
  Feed(raft::Propose{
      .proposals = {{.tag = propose.tag, .payload = raft::Payload(kv::Encode(propose.command))}}});
}

void Server::Act(kv::StartRead& read) { Feed(raft::Read{.tag = read.tag, .deadline_ns = read.deadline_ns}); }

uint64_t Server::ClockOfStamps_ns() const {
  const uint64_t now_ns = world_.time.now_ns();
  return SeededBug(Bug::kWallClockExpiry) ? now_ns + static_cast<uint64_t>(wall_offset_ns_) : now_ns;
}

void Server::Rearm() {
  if (!up() || busy_) return;
  const uint64_t due_ns =
      std::max(world_.time.now_ns(), std::min(life_->raft.next_deadline_ns(), life_->desk.next_deadline_ns()));
  if (due_ns >= armed_ns_) return;
  armed_ns_ = due_ns;
  world_.time.At(due_ns, [this, life = lives_] { Wake(life); });
}

void Server::Wake(uint64_t life) {
  if (life != lives_ || !up()) return;
  const uint64_t now_ns = world_.time.now_ns();
  if (armed_ns_ <= now_ns) armed_ns_ = UINT64_MAX;
  if (paused_) return;  // Resume wakes it
  if (now_ns >= life_->desk.next_deadline_ns()) {
    std::vector<kv::Action> actions;
    life_->desk.Tick(now_ns, actions);
    Do(actions);
  }
  if (now_ns >= life_->raft.next_deadline_ns()) Feed(raft::Tick{});
  Rearm();
}

}  // namespace hedgerow::sim
