// SPDX-License-Identifier: Apache-2.0
//
// Offloads, the part that runs on the netlink watcher's thread: attaches the programs again where something took them
// off, follows the neighbours, and writes members, routes and proxies' keys to the kernel. offloads.h says why the loop
// does none of it.
#include <arpa/inet.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cluster/node/kernel_address.h"
#include "cluster/node/offloads.h"

namespace hedgerow::node {
namespace {

// Hooks that were taken off, neighbours that moved.
constexpr absl::Duration kPollNetwork = absl::Seconds(1);
constexpr uint64_t kPollsPerRoutes = 10;

offload::XdpChoice ChoiceOf(XdpMode mode) {
  switch (mode) {
    case XdpMode::kNative: return offload::XdpChoice::kNative;
    case XdpMode::kGeneric: return offload::XdpChoice::kGeneric;
    case XdpMode::kAuto: break;
  }
  return offload::XdpChoice::kAuto;
}

}  // namespace

void Offloads::WatchNetlink() {
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || members_version_ != members_written_.load(std::memory_order_relaxed);
  };
  while (true) {
    WriteMembers();
    PollNetwork();
    absl::MutexLock lock(&mutex_);
    wanted_.Await(mutex_, kPollNetwork, wanted);
    if (stopping_) return;
  }
}

// At the start, and then on the watcher's thread.
void Offloads::WriteMembers() {
  std::vector<PeerState> members;
  std::vector<hr_siphash_key> proxy_keys;
  uint64_t version = 0;
  {
    absl::MutexLock lock(&mutex_);
    members = members_;
    proxy_keys = proxy_keys_;
    version = members_version_;
  }
  if (version == members_written_.load(std::memory_order_relaxed)) return;
  std::array<hr_node_peer, HR_NODE_MEMBERS> peers{};
  std::vector<offload::Endpoint> endpoints;
  for (const PeerState& member : members) {
    if (member.address.port == 0) continue;
    hr_node_peer& peer = peers[member.slot];
    peer.address = AddressOf(member.address);
    peer.node = static_cast<uint32_t>(member.id.value());
    peer.port_be = htons(member.address.port);
    endpoints.push_back(EndpointOf(member.address));
  }
  for (uint32_t slot = 0; slot < HR_NODE_MEMBERS; ++slot) {
    const hr_node_peer before = kernel_->Member(slot);
    const hr_node_peer& peer = peers[slot];
    const bool same = before.node == peer.node && before.port_be == peer.port_be &&
                      std::memcmp(&before.address, &peer.address, sizeof(peer.address)) == 0;
    if (same) continue;
    kernel_->SetMember(slot, peer);
    reachable_.fetch_and(~(1u << slot), std::memory_order_relaxed);  // until its neighbour is found
  }
  if (watch_ != nullptr) {
    watch_->SetProxyKeys(proxy_keys);
    watch_->SetPeers(std::move(endpoints));
  }
  polls_ = 0;  // and the routes to them
  members_written_.store(version, std::memory_order_release);
}

void Offloads::StopNetlinkWatcher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    wanted_.SignalAll();
  }
  if (netlink_watcher_.joinable()) netlink_watcher_.join();
}

// Attaches what is not, and follows the neighbours.
void Offloads::PollNetwork() {
  const OffloadsConfig& wanted = config_.offloads;
  Found found;
  const absl::StatusOr<bool> pinned = kernel_->KeepPins();
  if (!pinned.ok()) found.pins_why_not = std::string(pinned.status().message());
  if (pinned.ok() && *pinned) pinned_again_.fetch_add(1, std::memory_order_relaxed);
  const bool on = kernel_->Xdp().on;
  if (xdp_was_on_ && !on) detached_.fetch_add(1, std::memory_order_relaxed);
  if (!on || (wanted.broadcast && !kernel_->Broadcast().on)) {
    kernel_->Attach({.interface = "",
                     .xdp = wanted.heartbeat || wanted.vote || wanted.append || wanted.quorum,
                     .broadcast = wanted.broadcast,
                     .mode = ChoiceOf(wanted.xdp)});
  }
  found.xdp = kernel_->Xdp();
  found.broadcast = kernel_->Broadcast();
  if (!on && found.xdp.on) attached_.fetch_add(1, std::memory_order_relaxed);
  xdp_was_on_ = found.xdp.on;
  if (neighbours_.has_value()) {
    const absl::Status refreshed = neighbours_->Refresh();
    if (!refreshed.ok()) found.neighbours_why_not = std::string(refreshed.message());
  }
  {
    absl::MutexLock lock(&mutex_);
    found.unreachable = found_.unreachable;
    if (!neighbours_.has_value()) found.neighbours_why_not = found_.neighbours_why_not;
  }
  if (watch_ != nullptr && (polls_++ % kPollsPerRoutes == 0 || !found.unreachable.empty())) {
    found.unreachable = absl::StrJoin(watch_->FindRoutes(), "; ");
  }
  absl::MutexLock lock(&mutex_);
  found_ = std::move(found);
  reachable_.store(found_.broadcast.on ? kernel_->Reachable() : 0, std::memory_order_relaxed);
}

}  // namespace hedgerow::node
