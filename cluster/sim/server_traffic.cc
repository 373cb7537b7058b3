// SPDX-License-Identifier: Apache-2.0
//
// A simulated node, the part that is its traffic and its turns. What arrives waits for a turn, as in a socket; a turn
// feeds the replica, writes the log, checks what the replica has done, and hands what is to be sent to the network.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "cluster/raft/describe.h"
#include "cluster/sim/client.h"
#include "cluster/sim/faults.h"
#include "cluster/sim/memcached_client.h"
#include "cluster/sim/recovery.h"
#include "cluster/sim/server.h"
#include "cluster/sim/stranger.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kSocketMax = 512;  // packets; a full socket drops
constexpr size_t kTakenMax = 64;    // of a socket, in one turn
// What waited in the hypervisor (docs/SAFETY.md, Exactly once).
constexpr uint64_t kHandedOverWithin_ns = 900 * kMillisecond;

}  // namespace

void Server::StandStill(bool clock_too) {
  if (!up() || stands_since_ns_.has_value()) return;
  paused_ = true;
  stands_since_ns_ = world_.time.now_ns();
  clock_stands_ = clock_too;
}

// So far, by the world's time; 0: its clock goes on.
uint64_t Server::StoodStill_ns() const {
  return stood_ns_ + (stands_since_ns_.has_value() && clock_stands_ ? world_.time.now_ns() - *stands_since_ns_ : 0);
}

void Server::Resume() {
  if (!paused_) return;
  paused_ = false;
  if (stands_since_ns_.has_value()) {
    const uint64_t since_ns = *stands_since_ns_;
    stood_ns_ = StoodStill_ns();
    stands_since_ns_.reset();
    // A card with several queues hands over first whichever it likes, or within a second.
    if (world_.random.Chance(500'000)) {
      from_peers_.insert(from_peers_.begin(), from_clients_.begin(), from_clients_.end());
      from_clients_.clear();
    } else if (world_.random.Chance(500'000)) {
      world_.time.After(world_.random.Below(kHandedOverWithin_ns),
                        [this, held = std::exchange(from_clients_, {}), incarnation = incarnations_] {
                          if (incarnation != incarnations_) return;
                          for (const std::function<void()>& take : held) Arrive(from_clients_, take);
                        });
    }
    // By a clock that went on the node sees it itself (Node::RunTurn).
    if (up() && !clock_stands_ && world_.time.now_ns() - since_ns >= kv::kStandstill_ns) replica_->StoodStill();
  }
  Wake();
}

std::function<uint64_t()> Server::ArrivedNow() {
  if (stands_since_ns_.has_value()) return [this] { return Now_ns(); };
  return [arrived_ns = Now_ns()] { return arrived_ns; };
}

void Server::Arrive(Inbox& inbox, std::function<void()> take) {
  if (!up() || inbox.size() >= kSocketMax) return;
  inbox.push_back(std::move(take));
  Wake();
}

void Server::Take(Inbox& inbox) {
  for (size_t i = 0; i < kTakenMax && !inbox.empty(); ++i) {
    const std::function<void()> take = std::move(inbox.front());
    inbox.pop_front();
    take();
  }
}

// The answer with a peer's incarnation also says that the peer knows another log of the asker; so the asker has
// heard nothing of that peer before it is LOST.
void Server::ArriveFromPeer(raft::Message message, uint64_t copy_id) {
  if (up() && !paused_ && IsRefusedBy(message.from)) IsLost(message.from);
  if (lost_ || IsRefusedBy(message.from) || !Believes(message.from, copy_id)) return;
  if (kernel_.has_value() && kernel_->attached()) {
    kernel_->Arrive(std::move(message));
  } else {
    Arrive(from_peers_,
           [this, arrived = ArrivedNow(), message = std::move(message)] { turn_->Receive(arrived(), message); });
  }
}

void Server::IsLost(raft::NodeId by) {
  world_.Trace("node ", by.value(), " knows another log of node ", id_.value(), ", which is LOST");
  Crash(/*power_cut=*/true);
  lost_ = true;
}

void Server::ArriveDatagram(uint64_t from, const std::string& bytes) {
  Arrive(from_peers_, [this, from, bytes, arrived = ArrivedNow()] { link_->Take(from, bytes, arrived()); });
}

void Server::ArriveFromKernel(uint64_t arrived_ns, raft::Message message) {
  Arrive(from_peers_, [this, arrived_ns, message = std::move(message)] { turn_->Receive(arrived_ns, message); });
}

// Of a client, or of a node that forwards it.
void Server::ArriveRequest(kv::Request request) {
  Inbox& inbox = request.reply_to.client < kFirstClient ? from_peers_ : from_clients_;
  Arrive(inbox, [this, arrived = ArrivedNow(), request = std::move(request)] {
    replica_->ReceiveRequest(arrived(), request);
  });
}

void Server::ArriveForwardAnswer(raft::NodeId from, kv::Answer answer) {
  Arrive(from_peers_, [this, from, answer = std::move(answer)] {
    replica_->ReceiveForwardAnswer(answer.reply_to.request, from, answer);
  });
}

void Server::ArriveResignation(const raft::LeaderResigns& hint) {
  if (IsRefusedBy(hint.leader)) return;
  Arrive(from_peers_, [this, hint] { TakeResignation(hint); });
}

// A hint about a term that is over, or not yet known, must change nothing.
void Server::TakeResignation(const raft::LeaderResigns& hint) {
  replica_->Settle();
  const raft::NodeId leader = raft().leader();
  const raft::Term term = raft().term();
  turn_->Receive(hint);
  if (hint.term == term) return;
  replica_->Settle();
  if (raft().term() == term && leader.IsSet() && !raft().leader().IsSet()) {
    world_.Fail("node ", id_.value(), " leaves its leader in term ", term.value(), " for a resignation in term ",
                hint.term.value());
  }
}

void Server::ArriveStallHint(const raft::LeaderStalled& hint) {
  if (IsRefusedBy(hint.leader)) return;
  Arrive(from_peers_, [this, hint] { replica_->Feed(hint); });
}

void Server::ChangeSettings(kv::SettingValues values) {
  Arrive(posted_, [this, values = std::move(values)] { replica_->ChangeSettings(values); });
}

void Server::Post(decltype(raft::Event::what) what) {
  Arrive(posted_, [this, what = std::move(what)] { replica_->Feed(what); });
}

void Server::Wake() {
  if (!up() || paused_) return;
  if (!turning_ && world_.time.now_ns() >= busy_until_ns_) return RunTurn();
  WakeAgain();
}

void Server::WakeAgain() {
  if (wakes_) return;
  wakes_ = true;
  world_.time.At(busy_until_ns_, [this, incarnation = incarnations_] {
    if (incarnation != incarnations_ || !up()) return;
    wakes_ = false;
    Wake();
  });
}

void Server::RunTurn() {
  turning_ = true;
  ++turns_;
  last_turn_ns_ = world_.time.now_ns();
  last_turn_tolerated_ns_ = raft().detector().tolerated_pause_ns();
  if (world_.plan.turn_max_ns > 0) busy_until_ns_ = last_turn_ns_ + world_.random.Below(world_.plan.turn_max_ns);
  if (bridge_.has_value()) bridge_->Awake();
  turn_->Run(Now_ns());
  last_turn_tolerated_ns_ = std::max(last_turn_tolerated_ns_, raft().detector().tolerated_pause_ns());
  turning_ = false;
  if (link_.has_value() && link_->peers().refused_by().IsSet()) return IsLost(link_->peers().refused_by());
  Rearm();
  const bool more = !from_peers_.empty() || !from_clients_.empty() || !posted_.empty();
  if (more || (bridge_.has_value() && !bridge_->MaySleep())) {
    WakeAgain();
  } else if (turn_->holds_writes()) {
    WriteHeldWhenIdle();
  }
}

void Server::WriteHeldWhenIdle() {
  world_.time.At(busy_until_ns_, [this, incarnation = incarnations_, turns = turns_] {
    if (incarnation != incarnations_ || !up() || paused_ || turns != turns_) return;
    turning_ = true;
    turn_->WriteHeld();
    turning_ = false;
    Rearm();
  });
}

void Server::FollowReplica() {
  if (link_.has_value()) link_->FollowReplica();
}

// A log grows by what clients ask for, however often it is handed to how many leaders.
void Server::CheckProposedOnce(const raft::Outputs& outputs) {
  if (outputs.accepted.empty()) return;
  const raft::Log& log = raft().log();
  std::set<kv::RequestKey> keys;
  for (raft::LogIndex i = raft().commit().Next(); i <= log.last_index(); i = i.Next()) {
    if (log.At(i).kind != raft::EntryKind::kCommand) continue;
    const std::optional<kv::RequestKey> key = kv::KeyUsedOnceIn(log.At(i).payload.view());
    if (!key.has_value() || keys.insert(*key).second || i < outputs.accepted.front().index) continue;
    world_.Fail("node ", id_.value(), " proposes at ", i.value(), " what its log holds and has not committed: (",
                key->a, ", ", key->b, ")");
  }
}

void Server::WriteLog(raft::Persist persist) {
  if (kernel_.has_value()) kernel_->OtherCpus();
  disk_.Write(std::move(persist));
}

void Server::Stepped(const raft::Outputs& outputs) {
  if (MayBeHeard()) world_.checker.Stepped(raft(), id_, outputs);
  if (link_.has_value() && outputs.configuration.has_value()) link_->FollowMembers();
  CheckProposedOnce(outputs);
  world_.snapshots_installed += outputs.install.has_value();
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
  const kv::StateChecks& checks = replica_->checks();
  if (replica_->outside() || !checks.outside().empty() || checks.undecided() != raft::LogIndex())
    world_.Fail("node ", id_.value(), " finds a state that is not the majority's, and all are the same");
}

void Server::BecameLeader() {
  ++world_.elections;
  const kv::ProposalQueue& proposals = replica_->proposals();
  if (proposals.proposed() > raft().log().last_index().value() - replica_->applied().index.value()) {
    world_.Fail("node ", id_.value(), " begins to lead and takes ", proposals.proposed(),
                " requests for proposed, which its log has no room for");
  }
  world_.faults->NewLeader(*this);
  world_.recovery->NewLeader(*this);
}

void Server::Send(raft::Message message) {
  if (kernel_.has_value()) kernel_->OtherCpus();
  if (!link_.has_value()) {
    to_peers_.push_back([this, message = std::move(message)] { SendToPeer(message); });
    return;
  }
  Voted(message);
  link_->peers().Send(std::move(message));
}

void Server::FlushPeers() {
  if (link_.has_value()) link_->peers().Flush();
  if (to_peers_.empty()) return;
  if (kernel_.has_value()) kernel_->OtherCpus();
  for (const std::function<void()>& send : std::exchange(to_peers_, {})) send();
}

void Server::FlushClients() {
  for (const std::function<void()>& send : std::exchange(to_clients_, {})) send();
}

void Server::SendToPeer(raft::Message message) {
  Server* const to = world_.servers[message.to.value() - 1].get();
  const auto* append = std::get_if<raft::AppendRequest>(&message.body);
  if (append != nullptr && !append->entries.empty() && world_.network.FiltersEntriesOf(id_.value())) return;
  Voted(message);
  const auto* vote = std::get_if<raft::VoteReply>(&message.body);
  const bool is_vote = vote != nullptr && !vote->pre_vote;
  const bool is_ack = std::holds_alternative<raft::AppendReply>(message.body);
  world_.network.Send(
      id_.value(), to->id().value(), UINT64_MAX,
      [to, message = std::move(message), copy_id = disk_.copy_id()] { to->ArriveFromPeer(message, copy_id); },
      is_vote  ? Network::Kind::kVote
      : is_ack ? Network::Kind::kAck
               : Network::Kind::kOther);
}

void Server::Voted(const raft::Message& message) {
  const auto* vote = std::get_if<raft::VoteReply>(&message.body);
  if (vote == nullptr || vote->pre_vote || !vote->granted) return;
  world_.faults->Voted(*this);
  world_.recovery->Voted(message.to);
}

void Server::Send(kv::Answer answer) {
  if (const std::optional<raft::NodeId> node = node::NodeOf(answer.reply_to)) {
    link_->peers().Answer(*node, answer);
    return;
  }
  const uint64_t address = answer.reply_to.client;
  const auto send = [this, address](std::function<void()> arrive) {
    world_.network.Send(id_.value(), address, UINT64_MAX, std::move(arrive));
  };
  if (address < kFirstClient) {  // to the node that forwarded the request
    Server* const to = world_.servers[address - 1].get();
    to_peers_.push_back([send, to, from = id_, answer = std::move(answer)] {
      send([to, from, answer] { to->ArriveForwardAnswer(from, answer); });
    });
  } else if (address == kStranger) {
    to_clients_.push_back(
        [send, this, answer = std::move(answer)] { send([this, answer] { world_.stranger->ArriveAnswer(answer); }); });
  } else if (address >= kFirstMemcachedClient) {
    MemcachedClient* const client = world_.memcached_clients[address - kFirstMemcachedClient].get();
    to_clients_.push_back(
        [send, client, answer = std::move(answer)] { send([client, answer] { client->ArriveAnswer(answer); }); });
  } else {
    Client* const client = world_.clients[address - kFirstClient].get();
    to_clients_.push_back(
        [send, client, answer = std::move(answer)] { send([client, answer] { client->ArriveAnswer(answer); }); });
  }
}

void Server::Send(kv::Forward forward) {
  if (link_.has_value()) return link_->peers().Send(forward);
  Server* const to = world_.servers[forward.to.value() - 1].get();
  const kv::CommandKind kind = forward.request.command.key.kind;
  const bool windowed = kind == kv::CommandKind::kWindowed || kind == kv::CommandKind::kMemcached;
  forward.request.reply_to = {.client = id_.value(), .request = forward.tag, .way = {}};
  to_peers_.push_back([this, to, windowed, request = std::move(forward.request)] {
    world_.network.Send(id_.value(), to->id().value(), windowed ? kWindowedDelayMax_ns : UINT64_MAX,
                        [to, request] { to->ArriveRequest(request); });
  });
}

uint64_t Server::Now_ns() { return world_.time.now_ns() - StoodStill_ns(); }

uint64_t Server::StampClock_ns() { return Now_ns(); }

uint64_t Server::Random() { return world_.random.Next(); }

void Server::Rearm() {
  uint64_t due_ns = replica_->next_deadline_ns();
  if (due_ns != UINT64_MAX) due_ns += stood_ns_;
  if (bridge_.has_value()) due_ns = std::min(due_ns, bridge_->next_deadline_ns());
  if (link_.has_value()) due_ns = std::min(due_ns, link_->peers().next_greeting_ns());
  due_ns = std::max(world_.time.now_ns(), due_ns);
  if (due_ns >= armed_ns_) return;
  armed_ns_ = due_ns;
  world_.time.At(due_ns, [this, incarnation = incarnations_] {
    if (incarnation != incarnations_ || !up()) return;
    if (armed_ns_ <= world_.time.now_ns()) armed_ns_ = UINT64_MAX;
    Wake();
  });
}

}  // namespace hedgerow::sim
