// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/offloads.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/node/config/config_check.h"
#include "cluster/node/kernel_address.h"
#include "cluster/storage/errors.h"
#include "cluster/wire/announce.h"
#include "cluster/wire/key.h"
#include "net/fnv.h"
#include "operate/clock.h"

namespace hedgerow::node {
namespace {

constexpr char kBpffs[] = "/sys/fs/bpf";

// What is pinned belongs to a log: two hosts of a lab share one bpffs.
std::string InstanceOf(const NodeConfig& config) {
  return absl::StrCat("node-", config.self.value(), "-", absl::Hex(net::Fnv1a(config.data_dir), absl::kZeroPad8));
}

// The log was made anew: what is pinned here was promised for one that is not continued.
absl::Status ForgetFormerLog(const NodeConfig& config, IdentityKeeper& identity) {
  if (!identity.JustRestored()) return absl::OkStatus();
  const std::string instance = InstanceOf(config);
  if (offload::BpfKernel::HasPins(kBpffs, instance)) {
    if (absl::Status status = offload::BpfKernel::RemovePins(kBpffs, instance); !status.ok()) return status;
  }
  return identity.SetStarted();
}

// Either the maps are gone, or the log that goes with them (`detail`: by what that was just seen).
absl::Status WhyLost(const NodeConfig& config, const IdentityKeeper& identity, absl::string_view detail = "") {
  const bool left = offload::BpfKernel::HasPins(kBpffs, InstanceOf(config));
  const std::string what =
      left ? absl::StrCat("the kernel holds what this node has acknowledged, and the log in ", config.data_dir,
                          " is not the one that it goes with", detail.empty() ? "" : absl::StrCat(" (", detail, ")"),
                          ": somebody has emptied the folder, or it is another disk's. If the folder of before is "
                          "there still, stop the node and put it back; otherwise it")
           : "the kernel held entries that this node has acknowledged, and its maps are gone; it";
  return storage::AsLost(absl::DataLossError(absl::StrCat(
      what, " must not come back as itself (", identity.path(), " says so). ",
      left ? "So " : "Do not empty its folder; ", storage::kLetItComeBack,
      ", and once they are not, `hedgerow-node recover` makes a cluster of the member that has the most")));
}

absl::Status OutOfReach(const absl::Status& why) {
  return absl::DataLossError(absl::StrCat(
      "the kernel holds entries that this node has acknowledged, and they cannot be reached: ", why.message()));
}

std::vector<hr_node_key> KernelKeys(const wire::KeyRing& ring) {
  std::vector<hr_node_key> keys;
  for (const wire::KeyRing::Entry* const entry : {&ring.seals(), ring.other()}) {
    if (entry != nullptr) keys.push_back({.key = wire::SipHashKey(entry->key), .id = entry->id, .reserved = 0});
  }
  return keys;
}

}  // namespace

Offloads::Offloads(const NodeConfig& config, uint64_t incarnation, IdentityKeeper& identity)
    : config_(config), incarnation_(incarnation), identity_(identity) {}

Offloads::~Offloads() { StopNetlinkWatcher(); }

absl::StatusOr<std::unique_ptr<Offloads>> Offloads::Open(const NodeConfig& config, uint64_t incarnation,
                                                         IdentityKeeper& identity) {
  auto offloads = std::unique_ptr<Offloads>(new Offloads(config, incarnation, identity));
  if (absl::Status status = ForgetFormerLog(config, identity); !status.ok()) return status;
  if (identity.KernelLost()) return WhyLost(config, identity);
  const absl::Status loaded = offloads->Load();
  const bool owed = identity.KernelHolds();
  if (owed && absl::IsDataLoss(loaded)) {
    if (absl::Status marked = identity.SetKernelLost(); !marked.ok()) return marked;
    return WhyLost(config, identity);
  }
  if (!loaded.ok()) {
    if (owed) return OutOfReach(loaded);
    if (absl::IsFailedPrecondition(loaded)) return loaded;
    offloads->kernel_.reset();
    offloads->why_not_ = std::string(loaded.message());
  }
  return offloads;
}

absl::Status Offloads::CheckLeft(const NodeConfig& config, const IdentityKeeper& identity) {
  const std::string instance = InstanceOf(config);
  if (!identity.KernelHolds() || identity.KernelLost() || !offload::BpfKernel::HasPins(kBpffs, instance))
    return absl::OkStatus();
  const absl::Status pins =
      offload::BpfKernel::CheckPins(kBpffs, instance, config.cluster_id, static_cast<uint32_t>(config.self.value()));
  return pins.ok() ? pins : OutOfReach(pins);
}

absl::Status Offloads::Load() {
  const OffloadsConfig& wanted = config_.offloads;
  const bool owed = identity_.KernelHolds();
  const bool left = offload::BpfKernel::HasPins(kBpffs, InstanceOf(config_));
  if (!owed && !left) {  // else what may still answer for a process that died is to be fenced
    if (!wanted.any()) return absl::UnavailableError("switched off");
    if (config_.members.size() == 1 && !config_.join) return absl::UnavailableError("this node is the whole cluster");
    if (IsLoopback(config_.own().peer)) return absl::UnavailableError("the members share the loopback interface");
  }
  offload::BpfKernelOptions options;
  options.cluster_id = config_.cluster_id;
  options.keys = KernelKeys(config_.cluster_keys);
  options.self = static_cast<uint32_t>(config_.self.value());
  options.address = AddressOf(config_.own().peer);
  options.port = config_.own().peer.port;
  options.instance = InstanceOf(config_);
  options.pin = true;
  options.must_adopt = owed;
  absl::StatusOr<std::unique_ptr<offload::BpfKernel>> kernel = offload::BpfKernel::Open(options);
  if (!kernel.ok() && config_.durability == Durability::kDisk && !owed) {
    // The kernel part promises nothing in disk mode: pins of another version of this program may go, and so may
    // a node on which nothing can be pinned.
    offload::BpfKernel::RemovePins(kBpffs, options.instance).IgnoreError();
    options.pin = false;
    kernel = offload::BpfKernel::Open(options);
  }
  if (!kernel.ok()) return kernel.status();
  kernel_ = *std::move(kernel);
  return absl::OkStatus();
}

absl::Status Offloads::Start(kv::Replica& replica, Peers& peers) {
  if (kernel_ == nullptr) return absl::OkStatus();
  const bool memory = config_.durability == Durability::kMemory;
  peers.DrawNumbersFrom([this] { return kernel_->DrawPacketNumber(); });
  offload::KernelBridgeOptions options;
  options.incarnation = incarnation_;
  options.durability = memory ? offload::Durability::kMemory : offload::Durability::kDisk;
  options.switches = {.heartbeat = config_.offloads.heartbeat,
                      .vote = config_.offloads.vote,
                      .append = config_.offloads.append,
                      .quorum = config_.offloads.quorum};
  // A node that is silent for longer than this may be given up: so long the kernel speaks for a process that
  // does not turn.
  options.lease_ns = config_.election_floor_ns;
  options.fence_begins = [this] { fence_begun_ns_ = operate::Monotonic_ns(); };
  options.fence_ended = [this] { fences_.Record(operate::Monotonic_ns() - fence_begun_ns_); };
  if (memory && (options.switches.append || options.switches.vote)) {
    const absl::Status marked = identity_.SetKernelHolds();
    if (!marked.ok()) return marked;
  }
  bridge_ = std::make_unique<offload::KernelBridge>(
      *kernel_, options, [&peers](std::string_view datagram) { return peers.Decode(datagram); });
  for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) kernel_->SetIncarnation(slot, 0, 0);
  WriteMembers();
  absl::StatusOr<offload::Neighbours> neighbours = offload::Neighbours::Open(*kernel_);
  if (neighbours.ok()) {
    neighbours_.emplace(*std::move(neighbours));
  } else {
    absl::MutexLock lock(&mutex_);
    found_.neighbours_why_not = std::string(neighbours.status().message());
  }
  StartWatch();
  const absl::Status adopted = bridge_->Adopt(replica);
  if (absl::IsDataLoss(adopted)) {
    if (absl::Status marked = identity_.SetKernelLost(); !marked.ok()) return marked;
    return WhyLost(config_, identity_, adopted.message());
  }
  if (adopted.ok()) netlink_watcher_ = std::thread([this] { WatchNetlink(); });
  return adopted;
}

// A slot that changes its member is empty to the kernel until the map names the new one: its window is
// closed here, and the broadcast passes it over (Follow). What is counted goes by the shared state (R0). A
// member that moves is known anew as well: the kernel left to the process what came from elsewhere, and has not
// seen those numbers.
void Offloads::SetMembers(std::vector<PeerState> others) {
  std::array<raft::NodeId, HR_NODE_MEMBERS> ids{};
  std::array<NetAddress, HR_NODE_MEMBERS> addresses{};
  for (const PeerState& peer : others) {
    ids[peer.slot] = peer.id;
    addresses[peer.slot] = peer.address;
  }
  for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) {
    if (ids[slot] == ids_[slot] && addresses[slot] == addresses_[slot]) continue;
    ids_[slot] = ids[slot];
    addresses_[slot] = addresses[slot];
    incarnations_[slot] = 0;
    if (bridge_ != nullptr) kernel_->SetIncarnation(slot, 0, 0);
  }
  absl::MutexLock lock(&mutex_);
  members_ = std::move(others);
  members_wanted_ = ++members_version_;
  wanted_.SignalAll();
}

absl::Status Offloads::SetKeys(const wire::KeyRing& cluster, const std::vector<wire::Key>& proxies) {
  if (kernel_ == nullptr) return absl::OkStatus();
  if (absl::Status set = kernel_->SetKeys(KernelKeys(cluster)); !set.ok()) return set;
  absl::MutexLock lock(&mutex_);
  proxy_keys_.clear();
  for (const wire::Key& key : proxies) proxy_keys_.push_back(wire::SipHashKey(key));
  members_wanted_ = ++members_version_;
  wanted_.SignalAll();
  return absl::OkStatus();
}

void Offloads::StartWatch() {
  if (!config_.offloads.watchdog) return;
  offload::WatchSpec spec;
  spec.instance = InstanceOf(config_);
  spec.incarnation = incarnation_;
  spec.self = config_.self;
  spec.cluster_id = config_.cluster_id;
  spec.cluster_epoch = config_.cluster_epoch;
  spec.peer_address = EndpointOf(config_.own().peer);
  spec.serve = EndpointOf(config_.own().serve);
  {
    absl::MutexLock lock(&mutex_);
    for (const PeerState& member : members_) {
      if (member.address.port != 0) spec.peers.push_back(EndpointOf(member.address));
    }
  }
  for (const ProxyConfig& proxy : config_.proxies) {
    spec.proxies.push_back(
        {.address = EndpointOf(proxy.address),
         .key = wire::SipHashKey(wire::DeriveProxyKey(config_.announce_keys->seals().key, proxy.name))});
  }
  spec.stall_from_ns = config_.election_floor_ns / 2;
  spec.stall_until_ns = raft::Options().stall_max_floors * config_.election_floor_ns;
  spec.state_map = kernel_->state_map();
  spec.numbers_map = kernel_->numbers_map();
  spec.keys_map = kernel_->keys_map();
  absl::StatusOr<std::unique_ptr<offload::Watch>> watch = offload::Watch::Start(spec);
  if (watch.ok()) {
    watch_ = *std::move(watch);
  } else {
    watch_why_not_ = std::string(watch.status().message());
  }
}

// A leader's clock goes round as long as it is tended, and knows the successors.
void Offloads::Tend(uint64_t now_ns, const raft::Raft& raft) {
  if (watch_ == nullptr || raft.role() != raft::Role::kLeader) return;
  std::array<std::pair<raft::LogIndex, raft::NodeId>, HR_RAFT_MAX_MEMBERS> order;
  size_t count = 0;
  const raft::Configuration& configuration = raft.configuration();
  const uint32_t staying = configuration.joint() ? configuration.next_voters : configuration.voters;
  for (const raft::Member& member : configuration.members) {
    if (((raft.peers() & staying) >> member.slot & 1) != 0)
      order[count++] = {raft.progress()[member.slot].match(), member.id};
  }
  std::stable_sort(order.begin(), order.begin() + count,
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::array<raft::NodeId, HR_RAFT_MAX_MEMBERS> successors;
  for (size_t i = 0; i < count; ++i) successors[i] = order[i].second;
  watch_->SetSuccessors(raft.term(), std::span(successors.data(), count));
  watch_->Tend(now_ns);
}

void Offloads::Stop(kv::Replica& replica) {
  if (bridge_ == nullptr) return;
  StopNetlinkWatcher();
  bridge_->Close(replica);
  kernel_->Detach();
  if (replica.raft().durable_sequence() != replica.raft().asked_sequence() || bridge_->superseded()) return;
  // In this order: a node that is killed in between starts with the maps and owes nothing. The other way round
  // it would owe what is gone, and be LOST with everything in its log.
  if (!identity_.SetKernelFree().ok()) return;
  offload::BpfKernel::RemovePins(kBpffs, InstanceOf(config_)).IgnoreError();
}

void Offloads::Follow(uint64_t now_ns, const raft::Raft& raft, Peers& peers) {
  if (kernel_ == nullptr) return;
  FollowIncarnations(peers);
  Tend(now_ns, raft);
  // No member may be reached before all are written: the map may still name the former member of a slot.
  const bool written = members_written_.load(std::memory_order_acquire) == members_wanted_;
  peers.SetBroadcast(HR_NODE_MARK_BROADCAST, written ? reachable_.load(std::memory_order_relaxed) : 0);
  // Numbers that only the process has seen, while no program was there to take them, must not be new to the
  // kernel. What is on its way with an earlier one is lost.
  const uint64_t attached = attached_.load(std::memory_order_relaxed);
  if (attached != attached_seen_) {
    attached_seen_ = attached;
    for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) {
      if (!ids_[slot].IsSet() || incarnations_[slot] == 0) continue;
      kernel_->SetIncarnation(slot, incarnations_[slot], peers.HighestNumberOf(ids_[slot]));
    }
  }
  const uint64_t detached = detached_.load(std::memory_order_relaxed);
  if (detached == detached_seen_) return;
  detached_seen_ = detached;
  // Numbers that only the kernel has seen must not be new to the process.
  for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) {
    if (ids_[slot].IsSet()) peers.NumbersSeen(ids_[slot], kernel_->ReadWindow(slot).highest);
  }
}

void Offloads::FollowIncarnations(Peers& peers) {
  for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) {
    const raft::NodeId id = ids_[slot];
    if (!id.IsSet() || peers.IncarnationOf(id) == incarnations_[slot]) continue;
    incarnations_[slot] = peers.IncarnationOf(id);
    kernel_->SetIncarnation(slot, incarnations_[slot], peers.HighestNumberOf(id));
  }
}

}  // namespace hedgerow::node
