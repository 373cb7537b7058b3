// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/identity/lost_node.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cluster/node/status/status_message.h"
#include "cluster/node/identity/recovery_seed.h"
#include "cluster/storage/stopped_log.h"
#include "operate/clock.h"

namespace hedgerow::node {
namespace {

constexpr size_t kSocketBuffer_bytes = 256 * 1024;
constexpr uint64_t kReportEvery_ns = 1'000'000'000;
constexpr int kNap_ms = 200;
constexpr size_t kCandidatesMax = 4;
constexpr size_t kReportedToMax = size_t{2} * HR_RAFT_MAX_MEMBERS;
constexpr uint64_t kAskAgain_ns = 100'000'000;

uint64_t DrawNotZero() {
  std::random_device device;
  uint64_t drawn = 0;
  while (drawn == 0) drawn = static_cast<uint64_t>(device()) << 32 | device();
  return drawn;
}

bool Decides(const raft::Configuration& configuration, const raft::Member& member) {
  return ((configuration.deciding() >> member.slot) & 1) != 0;
}

}  // namespace

struct LostNode::Left {
  storage::RecoveryGeneration generation;
  raft::Configuration configuration;
};

// What the others go by: they believe no key but that of the cluster's recovery generation, and may be others
// by now than those of the file.
LostNode::Left LostNode::WhatIsLeft(const NodeConfig& config, storage::LoadProgress* progress) {
  const storage::StoredIdentity identity = {.cluster_id = config.cluster_id, .node = config.self};
  storage::StorageOptions options;
  options.path = config.data_dir;
  options.progress = progress;
  Left left{.generation = {.epoch = config.cluster_epoch, .nonce = config.recovery_nonce},
            .configuration = config.Initial()};
  // The state in the snapshot is not needed here.
  const auto pass = [](storage::SnapshotReader&) { return absl::OkStatus(); };
  if (const auto log = storage::ReadStoppedLog(options, identity, pass); log.ok()) {
    left.generation = log->generation;
    left.configuration = MembersOf(log->raft, config);
  } else if (const auto generation = storage::ReadGenerationOfStopped(options, identity); generation.ok()) {
    left.generation = *generation;
  }
  return left;
}

LostNode::LostNode(NodeConfig config, std::string why, storage::LoadProgress* progress)
    : LostNode(config, std::move(why), WhatIsLeft(config, progress)) {}

LostNode::LostNode(NodeConfig config, std::string why, Left left)
    : config_([&config, &left] {
        // As Node::Create makes it of the log.
        config.cluster_keys =
            wire::DeriveClusterKeys(config.cluster_keys, left.generation.epoch, left.generation.nonce);
        config.cluster_epoch = left.generation.epoch;
        config.recovery_nonce = left.generation.nonce;
        return std::move(config);
      }()),
      configuration_(std::move(left.configuration)),
      why_(std::move(why)),
      started_ns_(operate::Monotonic_ns()) {
  codec_ = std::make_unique<wire::PeerCodec>(wire::PeerIdentity{.cluster_id = config_.cluster_id,
                                                                .keys = config_.cluster_keys,
                                                                .self = config_.self,
                                                                .incarnation = DrawNotZero(),
                                                                .config_epoch = configuration_.epoch});
  for (const raft::Member& member : configuration_.members) {
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(member.address);
    const bool left_it = ((configuration_.leaving >> member.slot) & 1) != 0;
    if (member.id == config_.self || left_it || !address.ok()) continue;
    others_.push_back({.id = member.id, .address = *address, .slot = member.slot});
  }
  // It has joined, and its log does not name the members.
  for (const MemberConfig& member : config_.members) {
    if (configuration_.members.empty() && member.id != config_.self)
      others_.push_back({.id = member.id, .address = member.peer});
  }
  absl::StatusOr<std::unique_ptr<UdpSocket>> socket =
      UdpSocket::Bind(config_.own().peer, kSocketBuffer_bytes, UdpSocket::kDatagramMax_bytes);
  if (socket.ok()) {
    socket_ = *std::move(socket);
  } else {
    absl::StrAppend(&why_, ". The other members cannot be told: ", socket.status().message());
  }
}

void LostNode::RequestStop() {
  stop_requested_.store(true, std::memory_order_relaxed);
  wake_.Wake();
}

void LostNode::Run() {
  uint64_t report_at_ns = 0;
  while (!stop_requested_.load(std::memory_order_relaxed) && !rejoin_.has_value()) {
    const uint64_t now_ns = operate::Monotonic_ns();
    if (socket_ != nullptr && now_ns >= report_at_ns) {
      Tell();
      report_at_ns = now_ns + kReportEvery_ns;
    }
    std::array<pollfd, 2> ready = {
        pollfd{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
        pollfd{.fd = socket_ == nullptr ? -1 : socket_->fd(), .events = POLLIN, .revents = 0}};
    (void)poll(ready.data(), ready.size(), kNap_ms);
    if (socket_ != nullptr) Listen(operate::Monotonic_ns());
  }
}

void LostNode::Tell() {
  const absl::MutexLock lock(&mutex_);
  for (const PeerState& peer : others_) {
    const auto report = [&](const NetAddress& address) {
      socket_->Send(address, codec_->Seal(peer.id, wire::kLostTerm, wire::Hello{.nonce = DrawNotZero()}));
    };
    report(peer.address);
    if (peer.seen_at.port != 0) report(peer.seen_at);
  }
  socket_->Flush();
}

// Others may be lost as well. Whatever else they say is for a node that has a log.
void LostNode::Listen(uint64_t now_ns) {
  const std::vector<Datagram>& batch = socket_->Receive(now_ns);
  for (const Datagram& datagram : batch) {
    const wire::Opened opened = codec_->Open(datagram.bytes);
    if (opened.reason == wire::DropReason::kOtherNode) TakeForAnother(datagram, now_ns);
    if (!opened.ok()) continue;
    const absl::MutexLock lock(&mutex_);
    const auto peer = FindOrMeet(opened.header.from, datagram.from);
    if (peer == others_.end()) continue;
    if (datagram.from != peer->address) peer->seen_at = datagram.from;
    const bool lost = std::holds_alternative<wire::Hello>(opened.body) && opened.header.term == wire::kLostTerm;
    (lost ? peer->lost_ns : peer->heard_ns) = now_ns;
  }
}

// The log may be older than the members are: that of a folder that was put back, or of a node that was added
// and knows no member. So the senders of datagrams to this node are informed as well.
std::vector<PeerState>::iterator LostNode::FindOrMeet(raft::NodeId id, const NetAddress& address) {
  const auto found =
      std::find_if(others_.begin(), others_.end(), [id](const PeerState& other) { return other.id == id; });
  if (found != others_.end() || others_.size() >= kReportedToMax) return found;
  others_.push_back({.id = id, .address = address});
  return others_.end() - 1;
}

// A member greets the node that was added at this address. The greeting may be a recording, so the sender is
// asked, as that member. Only a node that counts it among the members answers, and only now (Peers::Take).
void LostNode::TakeForAnother(const Datagram& datagram, uint64_t now_ns) {
  uint32_t to = 0;
  if (datagram.bytes.size() < wire::kPeerHeader_bytes) return;
  std::memcpy(&to, datagram.bytes.data() + offsetof(hr_peer_header, to), sizeof(to));
  const raft::NodeId as(to);
  if (configuration_.Find(as) != nullptr) return;  // the address is another member's
  auto found = candidates_.find(as);
  if (found == candidates_.end()) {
    const wire::PeerIdentity identity{
        .cluster_id = config_.cluster_id, .keys = config_.cluster_keys, .self = as, .incarnation = DrawNotZero()};
    auto codec = std::make_unique<wire::PeerCodec>(identity);
    if (!codec->Open(datagram.bytes).ok()) return;  // a sender without the key takes no place
    if (candidates_.size() >= kCandidatesMax) candidates_.erase(candidates_.begin());
    found = candidates_.emplace(as, Candidate{.codec = std::move(codec)}).first;
  }
  Candidate& candidate = found->second;
  const wire::Opened opened = candidate.codec->Open(datagram.bytes);
  if (!opened.ok()) return;
  if (const auto* ack = std::get_if<wire::HelloAck>(&opened.body)) {
    const bool fresh = candidate.nonce != 0 && ack->nonce == candidate.nonce;
    if (fresh) rejoin_ = {.as = as, .generation = {.epoch = config_.cluster_epoch, .nonce = config_.recovery_nonce}};
    return;
  }
  if (!std::holds_alternative<wire::Hello>(opened.body) || now_ns < candidate.asked_ns + kAskAgain_ns) return;
  candidate.asked_ns = now_ns;
  if (candidate.nonce == 0) candidate.nonce = DrawNotZero();
  socket_->Send(datagram.from,
                candidate.codec->Seal(opened.header.from, raft::Term(), wire::Hello{.nonce = candidate.nonce}));
  socket_->Flush();
}

absl::StatusOr<NodeStatus> LostNode::Status() {
  const uint64_t now_ns = operate::Monotonic_ns();
  NodeStatus status;
  status.node = config_.self;
  status.uptime_ns = now_ns - started_ns_;
  status.cluster_epoch = config_.cluster_epoch;
  status.recovery_nonce = config_.recovery_nonce;
  status.lost = why_;
  size_t voters = 0;
  for (const raft::Member& member : configuration_.members) {
    const bool decides = Decides(configuration_, member);
    voters += decides;
    v1::Member& reported = *status.members.Add();
    reported.set_id(member.id.value());
    reported.set_address(member.address);
    reported.set_role(decides ? "voter" : "learner");
  }
  const absl::MutexLock lock(&mutex_);
  for (const PeerState& peer : others_) {
    v1::Peer& reported = AddPeer(status, peer.id, peer.address);
    reported.set_lost(peer.ReportsLost(now_ns));
    const uint64_t heard_ns = std::max(peer.heard_ns, peer.lost_ns);
    if (heard_ns != 0) reported.set_heard_ago_ns(static_cast<int64_t>(now_ns - std::min(now_ns, heard_ns)));
  }
  if (voters != 0) status.cluster_lost = WhyClusterLost(status, voters);
  return status;
}

}  // namespace hedgerow::node
