// SPDX-License-Identifier: Apache-2.0
//
// A simulated node, the part that is its incarnations: starts from the disk or from a snapshot, crashes, folders that
// are emptied or put back, and by whom it may be heard since.
#include "cluster/sim/server.h"

#include <utility>

#include "cluster/kv/state_loader.h"
#include "cluster/raft/check.h"
#include "cluster/raft/describe.h"
#include "cluster/sim/membership.h"

namespace hedgerow::sim {
namespace {

kv::ReplicaOptions OptionsOf(const World& world, raft::NodeId id) {
  kv::ReplicaOptions options{.raft = world.plan.raft,
                             .router = world.plan.router,
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
      // The disk's word reaches a node that stands still when it goes on, and is never lost.
      disk_(world.time, world.random, world.plan.disk, [this] { Wake(); }),
      snapshots_(world, *this) {}

void Server::Start() {
  if (up() || lost_) return;
  ++incarnations_;
  known_copies_.CountStart();
  raft::RestoredState restored = disk_.Restore();
  std::unique_ptr<kv::StateMachine> state;
  if (restored.snapshot.last.index > raft::LogIndex()) state = Load(*disk_.Find(restored.snapshot.last)->chunks);
  kv::ReplicaOptions options = OptionsOf(world_, id_);
  options.raft.initial = disk_.BeginsWith(ConfiguredMembers());
  {
    const kv::ScopedHashSecret secret(MapSecret());
    replica_.emplace(*this, std::move(options), std::move(restored), std::move(state));
  }
  turn_.emplace(static_cast<node::TurnHost&>(*this), *replica_,
                world_.plan.disk.memory ? node::Turn::Durability::kMemory : node::Turn::Durability::kDisk);
  if (world_.plan.sealed.on) {
    link_.emplace(world_, id_, known_copies_, *replica_, *turn_);
  } else {
    replica_->SetAgreedFeatures(kv::kAllFeatures);
  }
  if (MayBeHeard()) world_.checker.Started(raft(), id_);
  armed_ns_ = UINT64_MAX;
  world_.Trace("node ", id_.value(), " starts: ", raft::Describe(id_, raft()));
  if (world_.plan.kernel.on) StartBridge();
  if (link_.has_value()) {
    link_->Started();
    RunTurn();
  }
  if (up()) Rearm();
}

// The members, by the configuration file: the cluster's first ones, or none for a spare; and later perhaps an
// edited version, on this node alone. A real node then reports it and does not start until the file is mended.
raft::Configuration Server::ConfiguredMembers() {
  const uint64_t edits_ppm = world_.plan.membership.edit_file_ppm;
  const bool edited = incarnations_ > 1 && edits_ppm > 0 && world_.random.Chance(edits_ppm);
  std::vector<raft::NodeId> voters;
  for (const auto& server : world_.servers) {
    const bool first = id_.value() <= world_.plan.nodes && server->id().value() <= world_.plan.nodes;
    if (edited ? server->id() == id_ || world_.random.Chance(500'000) : first) voters.push_back(server->id());
  }
  return raft::Configuration::OfVoters(voters);
}

// Another one in each incarnation, as processes draw theirs: what went by the order of a walk would differ between
// replicas.
kv::HashSecret Server::MapSecret() const { return {.first = id_.value(), .second = incarnations_}; }

std::unique_ptr<kv::StateMachine> Server::Load(const std::vector<std::string>& chunks) {
  const kv::ScopedHashSecret secret(MapSecret());
  kv::StateLoader loader;
  for (const std::string& chunk : chunks) loader.Add(chunk);
  std::unique_ptr<kv::StateMachine> state = loader.Finish();
  if (state == nullptr) world_.Fail("node ", id_.value(), " cannot read a snapshot: ", loader.error());
  HEDGEROW_CHECK(state != nullptr);
  return state;
}

// Transfers know no incarnations. But no node hears of one that was installed in a new log.
void Server::ReceiveSnapshot(const raft::SnapshotReceived& received, const std::vector<std::string>& chunks) {
  if (IsRefusedBy(received.leader)) return;
  if (bridge_.has_value()) {
    bridge_->ReceiveSnapshot(received, Load(chunks), *replica_);
  } else {
    replica_->ReceiveSnapshot(received, Load(chunks));
  }
}

void Server::StartBridge() {
  const KernelPlan& plan = world_.plan.kernel;
  if (!kernel_.has_value()) kernel_.emplace(world_, *this);
  kernel_->kernel().ProcessBegins();
  kernel_->kernel().SetMembers(KernelMembers());
  bridge_.emplace(kernel_->kernel(),
                  offload::KernelBridgeOptions{.incarnation = incarnations_,
                                               .durability = plan.durability,
                                               .switches = plan.switches,
                                               .lease_ns = plan.lease_ns},
                  [this](std::string_view datagram) { return kernel_->kernel().Decode(datagram); });
  turning_ = true;
  const absl::Status adopted = bridge_->Adopt(*replica_);
  turning_ = false;
  if (!adopted.ok()) world_.Fail("node ", id_.value(), ": ", adopted.ToString());
  if (MayBeHeard()) world_.checker.Adopted(id_);
  kernel_->Attach();
  turn_->SetBridge(&*bridge_);
  RunTurn();
}

std::vector<raft::NodeId> Server::KernelMembers() const {
  std::vector<raft::NodeId> members(HR_RAFT_MAX_MEMBERS);
  for (const raft::Member& member : raft().configuration().members) {
    if (((raft().peers() >> member.slot) & 1) != 0) members[member.slot] = member.id;
  }
  return members;
}

// The map of members is another than the state, and is written at another time.
void Server::ConfigurationIs(const raft::Configuration& configuration) {
  if (raft().role() == raft::Role::kLeader) world_.membership->ConfigurationSeen(configuration);
  if (!kernel_.has_value()) return;
  world_.time.After(world_.random.Below(5 * kMillisecond), [this, incarnation = incarnations_] {
    if (incarnation == incarnations_ && up()) kernel_->kernel().SetMembers(KernelMembers());
  });
}

void Server::MembershipAnswered(const raft::MembershipAnswer& answer) { world_.membership->Answered(*this, answer); }

void Server::Crash(bool power_cut) {
  if (!up()) return;
  world_.Trace("node ", id_.value(), power_cut ? " loses its power" : " crashes");
  ++world_.crashes;
  AddCounters();
  link_.reset();
  turn_.reset();
  replica_.reset();
  bridge_.reset();
  from_peers_.clear();
  from_clients_.clear();
  posted_.clear();
  to_peers_.clear();
  to_clients_.clear();
  wakes_ = false;
  busy_until_ns_ = 0;
  paused_ = false;
  stood_ns_ = StoodStill_ns();
  stands_since_ns_.reset();
  disk_.Crash();
  snapshots_.Crashed();
  if (!kernel_.has_value()) return;
  if (power_cut) {
    kernel_->PowerCut();
  } else {
    kernel_->ProcessDied();
  }
}

void Server::Recover(const StoredSnapshot& beginning) {
  disk_.Recover(beginning);
  if (kernel_.has_value()) kernel_->PowerCut();
}

void Server::EmptyFolder() {
  Crash(/*power_cut=*/true);
  world_.Trace("the folder of node ", id_.value(), " is emptied");
  ++world_.folders_emptied;
  if (kernel_.has_value()) kernel_->PowerCut();
  disk_.Empty();
  known_copies_ = KnownCopies(disk_.copy_id());
  if (MayBeHeard()) world_.checker.Emptied(id_);
}

void Server::PutFolderBack(Disk::Copy copy, KnownCopies known_copies) {
  Crash(/*power_cut=*/true);
  world_.Trace("the folder of node ", id_.value(), " is an older copy");
  disk_.PutBack(std::move(copy));
  known_copies_ = std::move(known_copies);
  put_back_ = true;
  world_.checker.Emptied(id_);
}

// A HELLO_ACK says which log its sender has (docs/WIRE_FORMAT.md). The first one is recorded before anything
// else of that node is believed; nothing of a node with another one ever is.
bool Server::Believes(raft::NodeId from, uint64_t copy_id) {
  if (known_copies_.CopyOf(from) == 0) (void)known_copies_.Record(from, copy_id);
  return known_copies_.CopyOf(from) == copy_id;
}

bool Server::IsRefusedBy(raft::NodeId other) const {
  const Server& peer = *world_.servers[other.value() - 1];
  const uint64_t known = peer.known_copies_.CopyOf(id_);
  return known != 0 && known != disk_.copy_id();
}

bool Server::MayBeHeard() const { return disk_.copy_id() == Disk::kFirstCopy && !put_back_; }

std::unique_ptr<kv::StateMachine> Server::StateOf(const raft::RestoredState& log) {
  if (log.snapshot.last.index > raft::LogIndex()) return Load(*disk_.Find(log.snapshot.last)->chunks);
  const kv::ScopedHashSecret secret(MapSecret());
  return std::make_unique<kv::StateMachine>();
}

void Server::AddCounters() {
  if (!up()) return;
  world_.state_checks += replica_->checks().counters().equal;
  world_.quorum_checks += raft().counters().quorum_checks;
  world_.appends_reordered += raft().counters().reordered_stored;
  world_.proposals_known += replica_->proposals().counters.known;
  world_.sessions_evicted += replica_->state().sessions_evicted();
  if (!link_.has_value()) return;
  world_.sealed_pieces += link_->peers().received_pieces().received;
  for (const uint64_t drops : link_->peers().counters().drops) world_.sealed_drops += drops;
}

}  // namespace hedgerow::sim
