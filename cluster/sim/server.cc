// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/server.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "cluster/kv/state_loader.h"
#include "cluster/raft/check.h"
#include "cluster/raft/describe.h"
#include "cluster/raft/seeded_bugs.h"
#include "cluster/sim/client.h"
#include "cluster/sim/memcached_client.h"
#include "cluster/sim/membership.h"
#include "cluster/sim/recovery.h"
#include "cluster/sim/weather.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kSocketMax = 512;  // packets; a full socket drops

kv::ReplicaOptions OptionsOf(const World& world, raft::NodeId id) {
  kv::ReplicaOptions options{.raft = world.plan.raft,
                             .desk = world.plan.desk,
                             .snapshots = {.every_entries = world.plan.snapshots.every_entries},
                             .seed = world.plan.settings.files[id.value() - 1],
                             .check_every_entries = world.plan.settings.check_every_entries};
  options.raft.self = id;
  return options;
}

}  // namespace

Server::Server(World& world, raft::NodeId id)
    : world_(world),
      id_(id),
      disk_(world.time, world.random, world.plan.disk,
            [this](uint64_t sequence) {
              // The disk's word reaches a node that stands still when it goes on, and is never dropped.
              auto tell = [this, sequence] { Feed(raft::Persisted{.sequence = sequence}); };
              if (!paused_) return tell();
              socket_.push_back(tell);
            }),
      snapshots_(world, *this) {}

void Server::Start() {
  if (up() || lost_) return;
  ++lives_;
  raft::RestoredState restored = disk_.Restore();
  std::unique_ptr<kv::StateMachine> state;
  if (restored.snapshot.last.index > raft::LogIndex())
    state = Load(*disk_.Find(restored.snapshot.last)->chunks);
  kv::ReplicaOptions options = OptionsOf(world_, id_);
  options.raft.initial = disk_.BeginsWith(FileSays());
  replica_.emplace(*this, std::move(options), std::move(restored), std::move(state));
  if (MayBeHeard()) world_.checker.Started(raft(), id_);
  armed_ns_ = UINT64_MAX;
  world_.Trace("node ", id_.value(), " starts: ", raft::Describe(id_, raft()));
  if (world_.plan.kernel.on) StartCoupling();
  Rearm();
}

// The members, by the configuration file: the cluster's first ones, or none for a spare; and later perhaps what
// somebody has made of it, on this node alone. A real node then tells him and does not start until the file is
// mended.
raft::Configuration Server::FileSays() {
  const uint64_t edits_ppm = world_.plan.membership.edit_file_ppm;
  const bool edited = lives_ > 1 && edits_ppm > 0 && world_.random.Chance(edits_ppm);
  std::vector<raft::NodeId> voters;
  for (const auto& server : world_.servers) {
    const bool first = id_.value() <= world_.plan.nodes && server->id().value() <= world_.plan.nodes;
    if (edited ? server->id() == id_ || world_.random.Chance(500'000) : first) voters.push_back(server->id());
  }
  return raft::Configuration::OfVoters(voters);
}

std::unique_ptr<kv::StateMachine> Server::Load(const std::vector<std::string>& chunks) {
  kv::StateLoader loader;
  for (const std::string& chunk : chunks) loader.Add(chunk);
  std::unique_ptr<kv::StateMachine> state = loader.Finish();
  if (state == nullptr) world_.Fail("node ", id_.value(), " cannot read a snapshot: ", loader.error());
  HEDGEROW_CHECK(state != nullptr);
  return state;
}

void Server::WhenAwake(std::function<void()> handle) {
  if (!up()) return;
  if (paused_) {
    socket_.push_back(std::move(handle));
  } else if (turning_) {
    world_.time.After(0, [this, handle = std::move(handle), life = lives_] {
      if (life == lives_) WhenAwake(handle);
    });
  } else {
    handle();
  }
}

// Transfers know no lives. But nobody hears what is said of one that was installed in a new log.
void Server::ReceiveSnapshot(const raft::SnapshotReceived& received, const std::vector<std::string>& chunks) {
  if (IsRefusedBy(received.leader)) return;
  Turn([this, &received, &chunks] {
    if (coupling_.has_value()) {
      coupling_->ReceiveSnapshot(received, Load(chunks), *replica_);
    } else {
      replica_->ReceiveSnapshot(received, Load(chunks));
    }
  });
}

void Server::StartCoupling() {
  const KernelPlan& plan = world_.plan.kernel;
  if (!kernel_.has_value()) kernel_.emplace(world_, *this);
  kernel_->kernel().ProcessBegins();
  kernel_->kernel().SetMembers(KernelMembers());
  coupling_.emplace(kernel_->kernel(),
                    offload::CouplingOptions{.incarnation = lives_,
                                             .durability = plan.durability,
                                             .switches = plan.switches,
                                             .lease_ns = plan.lease_ns},
                    [this](std::string_view datagram) { return kernel_->kernel().Decode(datagram); });
  turning_ = true;
  const absl::Status adopted = coupling_->Adopt(*replica_);
  turning_ = false;
  if (!adopted.ok()) world_.Fail("node ", id_.value(), ": ", adopted.ToString());
  if (MayBeHeard()) world_.checker.Adopted(id_);
  kernel_->Attach();
  Turn([] {});
  if (SeededBug(Bug::kLeaseByHelper)) HelperThread(lives_);
}

std::vector<raft::NodeId> Server::KernelMembers() const {
  std::vector<raft::NodeId> members(HR_RAFT_MAX_MEMBERS);
  for (const raft::Member& member : raft().configuration().members) {
    if (((raft().peers() >> member.position) & 1) != 0) members[member.position] = member.id;
  }
  return members;
}

// The map of members is another than the state, and is written at another time.
void Server::ConfigurationIs(const raft::Configuration& configuration) {
  if (raft().role() == raft::Role::kLeader) world_.membership->ConfigurationSeen(configuration);
  if (!kernel_.has_value()) return;
  world_.time.After(world_.random.Below(5 * kMillisecond), [this, life = lives_] {
    if (life == lives_ && up()) kernel_->kernel().SetMembers(KernelMembers());
  });
}

void Server::MembershipAnswered(const raft::MembershipAnswer& answer) {
  world_.membership->Answered(*this, answer);
}

// What R5 forbids: the lease is kept while the loop stands still.
void Server::HelperThread(uint64_t life) {
  world_.time.After(world_.plan.kernel.lease_ns / 2, [this, life] {
    if (life != lives_ || !up()) return;
    hr_node_control lease{};
    lease.operation = HR_NODE_LEASE;
    lease.incarnation = lives_;
    lease.view = kernel_->kernel().view();
    lease.view.lease_until_ns = world_.time.now_ns() + world_.plan.kernel.lease_ns;
    kernel_->kernel().Control(lease);
    HelperThread(life);
  });
}

void Server::Crash(bool power_cut) {
  if (!up()) return;
  world_.Trace("node ", id_.value(), power_cut ? " loses its power" : " crashes");
  ++world_.crashes;
  AddCounters();
  replica_.reset();
  coupling_.reset();
  socket_.clear();
  paused_ = false;
  disk_.Crash();
  snapshots_.Crashed();
  if (!kernel_.has_value()) return;
  if (power_cut) {
    kernel_->PowerCut();
  } else {
    kernel_->ProcessDied();
  }
}

void Server::BeginAnew(const StoredSnapshot& beginning) {
  disk_.BeginAnew(beginning);
  if (kernel_.has_value()) kernel_->PowerCut();
}

void Server::EmptyFolder() {
  Crash(/*power_cut=*/true);
  world_.Trace("the folder of node ", id_.value(), " is emptied");
  ++world_.folders_emptied;
  if (kernel_.has_value()) kernel_->PowerCut();
  disk_.Empty();
  known_logs_.clear();
  if (MayBeHeard()) world_.checker.Emptied(id_);
}

// A HELLO_ACK says which log its sender has (docs/WIRE_FORMAT.md). The first one is recorded before anything
// else of that node is believed; nothing of a node with another one ever is.
bool Server::Believes(raft::NodeId from, uint64_t log_id) {
  const bool known = known_logs_.try_emplace(from, log_id).first->second == log_id;
  return known || SeededBug(Bug::kEmptiedFolderAccepted);
}

bool Server::IsRefusedBy(raft::NodeId other) const {
  if (SeededBug(Bug::kEmptiedFolderAccepted)) return false;
  const Server& peer = *world_.servers[other.value() - 1];
  const auto known = peer.known_logs_.find(id_);
  return known != peer.known_logs_.end() && known->second != disk_.log_id();
}

bool Server::MayBeHeard() const {
  return disk_.log_id() == Disk::kFirstLog || SeededBug(Bug::kEmptiedFolderAccepted);
}

std::unique_ptr<kv::StateMachine> Server::StateOf(const raft::RestoredState& log) {
  if (log.snapshot.last.index > raft::LogIndex()) return Load(*disk_.Find(log.snapshot.last)->chunks);
  return std::make_unique<kv::StateMachine>();
}

void Server::AddCounters() {
  if (!up()) return;
  world_.state_checks += replica_->checks().counters().equal;
  world_.doubts += raft().counters().doubts;
  world_.appends_early += raft().counters().early_stored;
  world_.proposals_known += replica_->proposals().counters.known;
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

void Server::Arrive(uint64_t arrived_ns, std::function<void()> handle) {
  if (!up()) return;
  if (turning_) {  // another CPU has it ready while the loop is at work
    world_.time.After(0, [this, arrived_ns, handle = std::move(handle), life = lives_] {
      if (life == lives_) Arrive(arrived_ns, handle);
    });
  } else if (!paused_) {
    Turn(handle);
  } else if (socket_.size() < kSocketMax) {
    socket_.push_back([this, handle = std::move(handle)] { Turn(handle); });
  }
}

// Who asks for a peer's life is told in the same answer that the peer knows another log of it; so it has heard
// nothing of that peer before it is LOST.
void Server::ArriveFromPeer(raft::Message message, uint64_t log_id) {
  if (up() && !paused_ && IsRefusedBy(message.from)) {
    world_.Trace("node ", message.from.value(), " knows another log of node ", id_.value(), ", which is LOST");
    Crash(/*power_cut=*/true);
    lost_ = true;
  }
  if (lost_ || IsRefusedBy(message.from) || !Believes(message.from, log_id)) return;
  if (kernel_.has_value() && kernel_->attached()) {
    kernel_->Arrive(std::move(message));
  } else {
    ReceiveFromPeer(world_.time.now_ns(), std::move(message));
  }
}

void Server::ArriveFromKernel(uint64_t arrived_ns, raft::Message message) {
  ReceiveFromPeer(arrived_ns, std::move(message));
}

void Server::ReceiveFromPeer(uint64_t arrived_ns, raft::Message message) {
  Arrive(arrived_ns, [this, arrived_ns, message = std::move(message)] {
    if (coupling_.has_value()) {
      coupling_->Receive(arrived_ns, message, *replica_);
    } else {
      replica_->ReceiveMessage(arrived_ns, message);
    }
  });
}

void Server::ArriveRequest(kv::Request request) {
  const uint64_t arrived_ns = world_.time.now_ns();
  Arrive(arrived_ns,
         [this, arrived_ns, request = std::move(request)] { replica_->ReceiveRequest(arrived_ns, request); });
}

void Server::ArriveForwardAnswer(raft::NodeId from, kv::Answer answer) {
  Arrive(world_.time.now_ns(), [this, from, answer = std::move(answer)] {
    replica_->ReceiveForwardAnswer(answer.reply_to.request, from, answer);
  });
}

// A hint about a term that is over, or not yet known, must change nothing.
void Server::ArriveResignation(const raft::LeaderResigns& hint) {
  if (!up() || paused_ || turning_ || IsRefusedBy(hint.leader)) return;
  const raft::NodeId leader = raft().leader();
  const raft::Term term = raft().term();
  Turn([this, &hint] {
    if (coupling_.has_value()) {
      coupling_->Resigned(hint, *replica_);
    } else {
      replica_->Feed(hint);
    }
  });
  if (hint.term != term && raft().term() == term && leader.IsSet() && !raft().leader().IsSet()) {
    world_.Fail("node ", id_.value(), " leaves its leader in term ", term.value(),
                " for a resignation in term ", hint.term.value());
  }
}

void Server::ArriveLateness(const raft::LeaderLate& hint) {
  if (!up() || paused_ || turning_ || IsRefusedBy(hint.leader)) return;
  Turn([this, &hint] { replica_->Feed(hint); });
}

void Server::ChangeSettings(kv::SettingValues values) {
  if (!up() || turning_) return;
  Turn([this, &values] { replica_->ChangeSettings(std::move(values)); });
}

uint64_t Server::DigestOf(const kv::StateMachine& state) {
  uint64_t digest = state.fingerprint() + state.settings().version;
  for (const kv::SettingValue& value : kv::ValuesOf(state.settings())) {
    digest = (digest ^ value.value) * 0x9e3779b97f4a7c15;
  }
  return digest;
}

void Server::Feed(decltype(raft::Event::what) what) {
  if (!up()) return;
  if (turning_) {  // the disk's word during a step
    replica_->Feed(std::move(what));
  } else {
    Turn([this, &what] { replica_->Feed(std::move(what)); });
  }
}

void Server::Turn(const std::function<void()>& work, bool tick) {
  turning_ = true;
  last_turn_ns_ = world_.time.now_ns();
  last_turn_tolerated_ns_ = raft().tolerated_silence_ns();
  if (coupling_.has_value()) {
    coupling_->Awake();
    coupling_->BeginTurn(last_turn_ns_, *replica_);
    work();
    if (tick) coupling_->Tick(last_turn_ns_, *replica_);
    coupling_->Look(last_turn_ns_, *replica_);
    coupling_->EndTurn(last_turn_ns_, *replica_);
    CheckReservation();
  } else {
    work();
    if (tick) replica_->Tick();
  }
  replica_->Settle();
  last_turn_tolerated_ns_ = std::max(last_turn_tolerated_ns_, raft().tolerated_silence_ns());
  turning_ = false;
  Rearm();
  snapshots_.AfterTurn();
  if (coupling_.has_value() && !coupling_->MaySleep()) {
    world_.time.After(0, [this, life = lives_] { Wake(life); });
  }
}

// R9: released as soon as the leader is heard. A node that dies with a reservation can follow nobody up to
// there.
void Server::CheckReservation() {
  if (raft().role() != raft::Role::kFollower || raft().reserved() == raft::Term()) return;
  if (raft().suspected_term() != raft::Term() || coupling_->superseded()) return;
  world_.Fail("node ", id_.value(), " keeps term ", raft().reserved().value(), " reserved in term ",
              raft().term().value(), " though it suspects nobody");
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
    world_.Fail("node ", id_.value(), " proposes at ", i.value(),
                " what its log holds and has not committed: (", key->a, ", ", key->b, ")");
  }
}

void Server::Persist(raft::Persist persist) {
  if (kernel_.has_value()) kernel_->OtherCpus();
  disk_.Write(std::move(persist));
}

void Server::Stepped(const raft::Outputs& outputs) {
  if (MayBeHeard()) world_.checker.Stepped(raft(), id_, outputs);
  CheckProposedOnce(outputs);
  world_.snapshots_installed += outputs.install.has_value();
  if (!world_.trace) return;
  for (const std::string& line : raft::Describe(id_, outputs)) world_.Trace(line);
}

// State Machine Safety to its end: not only the same entries, but the same state.
void Server::Applied(raft::LogIndex index, const kv::StateMachine& state) {
  if (world_.fingerprints.size() < index.value()) {
    world_.fingerprints.push_back(DigestOf(state));
  } else if (world_.fingerprints[index.value() - 1] != DigestOf(state)) {
    world_.Fail("node ", id_.value(), " has another state after entry ", index.value(), " than the first had");
  }
  if (replica_->outside()) world_.Fail("node ", id_.value(), " differs from the majority, and says so");
}

void Server::BecameLeader() {
  ++world_.elections;
  world_.weather->NewLeader(*this);
  world_.recovery->NewLeader(*this);
}

void Server::Send(raft::Message message) {
  if (kernel_.has_value()) kernel_->OtherCpus();
  SendToPeer(std::move(message));
}

void Server::SendToPeer(raft::Message message) {
  Server* const to = world_.servers[message.to.value() - 1].get();
  const auto* append = std::get_if<raft::AppendRequest>(&message.body);
  if (append != nullptr && !append->entries.empty() && world_.network.FiltersEntriesOf(id_.value())) return;
  const auto* vote = std::get_if<raft::VoteReply>(&message.body);
  const bool is_vote = vote != nullptr && !vote->pre_vote;
  if (is_vote && vote->granted) {
    world_.weather->Voted(*this);
    world_.recovery->Voted(to->id());
  }
  const bool is_ack = std::holds_alternative<raft::AppendReply>(message.body);
  world_.network.Send(
      id_.value(), to->id().value(), UINT64_MAX,
      [to, message = std::move(message), log_id = disk_.log_id()] { to->ArriveFromPeer(message, log_id); },
      is_vote  ? Network::Kind::kVote
      : is_ack ? Network::Kind::kAck
               : Network::Kind::kOther);
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
  if (address >= kFirstMemcachedClient) {
    MemcachedClient* const client = world_.memcached_clients[address - kFirstMemcachedClient].get();
    world_.network.Send(id_.value(), address, UINT64_MAX,
                        [client, answer = std::move(answer)] { client->ArriveAnswer(answer); });
    return;
  }
  Client* const client = world_.clients[address - kFirstClient].get();
  world_.network.Send(id_.value(), address, UINT64_MAX,
                      [client, answer = std::move(answer)] { client->ArriveAnswer(answer); });
}

void Server::Send(kv::Forward forward) {
  Server* const to = world_.servers[forward.to.value() - 1].get();
  const kv::CommandKind kind = forward.request.command.key.kind;
  const bool windowed = kind == kv::CommandKind::kWindowed || kind == kv::CommandKind::kMemcached;
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
  if (!up() || turning_) return;
  uint64_t due_ns = replica_->next_deadline_ns();
  if (coupling_.has_value()) due_ns = std::min(due_ns, coupling_->next_deadline_ns());
  due_ns = std::max(world_.time.now_ns(), due_ns);
  if (due_ns >= armed_ns_) return;
  armed_ns_ = due_ns;
  world_.time.At(due_ns, [this, life = lives_] { Wake(life); });
}

void Server::Wake(uint64_t life) {
  if (life != lives_ || !up()) return;
  const uint64_t now_ns = world_.time.now_ns();
  if (armed_ns_ <= now_ns) armed_ns_ = UINT64_MAX;
  if (paused_) return;  // Resume wakes it
  Turn([] {}, true);
}

}  // namespace hedgerow::sim
