// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/snapshots/snapshots.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "cluster/node/config/config_check.h"
#include "cluster/wire/peer_name.h"

namespace hedgerow::node {
namespace {

// A voter whose state is wrong still is sent another snapshot after so long.
constexpr uint64_t kMendAgain_ns = 10'000'000'000;
// A follower that has its snapshot and does not come nearer for so long is not waited for.
constexpr uint64_t kTimeout_ns = 5'000'000'000;

// 0 for one of the future: the clock was set back.
uint64_t AgeOf_ns(const struct stat& file) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age_ns = (now.tv_sec - file.st_mtim.tv_sec) * 1'000'000'000 + (now.tv_nsec - file.st_mtim.tv_nsec);
  return static_cast<uint64_t>(std::max<int64_t>(age_ns, 0));
}

raft::LogIndex MatchOf(const raft::Raft& raft, raft::NodeId member) {
  const size_t slot = raft.configuration().SlotOf(member);
  if (raft.role() != raft::Role::kLeader || slot == raft::Configuration::kNoSlot) return {};
  return raft.progress()[slot].match();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Snapshots>> Snapshots::Open(const NodeConfig& config, const storage::LogStorage& storage,
                                                           const raft::Snapshot& restored, uint64_t incarnation,
                                                           std::function<uint64_t()> now_ns, std::function<void()> wake,
                                                           JudgeOffer judge) {
  std::unique_ptr<Tls> tls;
  if (config.peer_tls.has_value()) {
    const std::string name = wire::PeerName(config.peer_tls->name, config.self);
    absl::StatusOr<operate::TlsMaterial> first =
        operate::ReadTlsMaterial(config.peer_tls->files, name, operate::Reader::kServes);
    if (!first.ok()) return first.status();
    tls = std::make_unique<Tls>(*config.peer_tls, name, *std::move(first));
  }
  std::unique_ptr<Snapshots> snapshots(new Snapshots(config, std::move(tls), storage, restored, incarnation,
                                                     std::move(now_ns), std::move(wake), std::move(judge)));
  absl::StatusOr<std::unique_ptr<transfer::Receiver>> receiver =
      transfer::Receiver::Listen({.cluster_id = config.cluster_id,
                                  .keys = &snapshots->keys_,
                                  .self = config.self,
                                  .address = config.own().peer.ToString(),
                                  .tls = snapshots->tls_ != nullptr ? &snapshots->tls_->peers : nullptr},
                                 storage.snapshots(), *snapshots);
  if (!receiver.ok()) return receiver.status();
  snapshots->receiver_ = *std::move(receiver);
  return snapshots;
}

Snapshots::Snapshots(const NodeConfig& config, std::unique_ptr<Tls> tls, const storage::LogStorage& storage,
                     const raft::Snapshot& restored, uint64_t incarnation, std::function<uint64_t()> now_ns,
                     std::function<void()> wake, JudgeOffer judge)
    : self_(config.self),
      keys_(config.cluster_keys),
      tls_(std::move(tls)),
      folder_(storage.snapshots()),
      storage_(storage),
      now_ns_(now_ns),
      wake_(wake),
      judge_(std::move(judge)),
      taker_(storage.snapshots(), config.cluster_id, now_ns, wake),
      peer_clients_(config.peer_clients),
      on_loopback_(IsLoopback(config.own().peer)),
      sender_(std::make_unique<transfer::Sender>(
          transfer::SenderOptions{.cluster_id = config.cluster_id,
                                  .keys = &keys_,
                                  .self = config.self,
                                  .incarnation = incarnation,
                                  .bytes_per_second = config.snapshots.rate_bytes_per_s,
                                  .tls = tls_ != nullptr ? &tls_->peers : nullptr},
          [this](raft::NodeId to, raft::LogIndex index, const absl::Status& status) {
            {
              absl::MutexLock lock(&mutex_);
              ended_.push_back({.to = to, .index = index, .status = status});
              something_ = true;
            }
            wake_();
          })) {
  struct stat file {};
  if (restored.last.index == raft::LogIndex() || stat(folder_.PathOf(restored.last).c_str(), &file) != 0) return;
  size_bytes_ = static_cast<uint64_t>(file.st_size);
  const uint64_t now = now_ns();
  written_ns_ = now - std::min(now, AgeOf_ns(file));
}

Snapshots::~Snapshots() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (arrived_ != nullptr) {
      arrived_->taken = absl::UnavailableError("the node stops");
      arrived_->done.Notify();
      arrived_.reset();
    }
  }
  receiver_.reset();
  sender_.reset();
}

// Connections to a loopback address come from 127.0.0.1, whichever of them the leader's is.
bool Snapshots::MayCall(const net::IpAddress& source) {
  if (on_loopback_ && source.is_loopback()) return true;
  if (peer_clients_.has_value() && peer_clients_->Contains(source.mapped())) return true;
  absl::MutexLock lock(&mutex_);
  return std::any_of(addresses_.begin(), addresses_.end(),
                     [&source](const NetAddress& address) { return address.bytes == source.mapped(); });
}

absl::Status Snapshots::MayTake(uint64_t now_ns, const transfer::Offered& offered, const kv::Replica& replica,
                                Peers& peers) {
  // A version before 0.3 does not say which one it is in.
  const uint64_t incarnation = offered.incarnation != 0 ? offered.incarnation : peers.IncarnationOf(offered.leader);
  switch (peers.Hear(offered.leader, incarnation, offered.term, now_ns)) {
    case wire::DropReason::kNone: break;
    case wire::DropReason::kTerm: return absl::FailedPreconditionError("elections cannot have reached that term");
    case wire::DropReason::kOtherIncarnation:
      return absl::FailedPreconditionError("that node is in another incarnation");
    default: return absl::UnavailableError("no datagram of that node is believed here (yet)");
  }
  if (offered.last.term > offered.term)
    return absl::InvalidArgumentError("its last entry is of a later term than the offer");
  if (offered.term < replica.raft().term()) return absl::FailedPreconditionError("another term has begun");
  if (offered.last.index <= replica.raft().commit() && !replica.outside())
    return absl::AlreadyExistsError("what it holds is here");
  return absl::OkStatus();
}

absl::Status Snapshots::Take(transfer::Received received) {
  const auto arrived = std::make_shared<Arrived>();
  arrived->received = std::move(received);
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return absl::UnavailableError("the node stops");
    arrived_ = arrived;  // one at a time, says the receiver
    something_ = true;
  }
  wake_();
  arrived->done.WaitForNotification();
  return arrived->taken;
}

void Snapshots::Turn(uint64_t now_ns, kv::Replica& replica, const Peers& peers, offload::KernelBridge* bridge) {
  FollowRole(replica.raft());
  FollowMembers(replica.raft());
  FollowPeers(peers);
  if (taker_.Turn(now_ns, Wanted(now_ns, replica), replica)) {
    size_bytes_ = taker_.status().last_size_bytes;
    written_ns_ = now_ns;
  }
  if (something_.exchange(false)) {
    TakeEnded(now_ns, replica);
    Install(now_ns, replica, bridge);
  }
  replica.Settle();
  MendOutside(now_ns, replica);
  if (!needed_.empty()) SendNeeded(replica, peers);
}

// Members whose state is not the majority's. The snapshot is one that was begun after that was known, so it is further
// on than any that they have taken of a wrong state.
void Snapshots::MendOutside(uint64_t now_ns, const kv::Replica& replica) {
  const std::map<raft::NodeId, raft::LogIndex>& outside = replica.checks().outside();
  std::erase_if(mend_again_ns_, [&outside](const auto& mend) { return !outside.contains(mend.first); });
  if (outside.empty() || !leads_in_.value() || replica.outside()) return;
  const std::vector<transfer::Sending> under_way = sender_->UnderWay();
  for (const auto& [member, known_at] : outside) {
    const auto same = [member = member](const transfer::Sending& sending) { return sending.to == member; };
    if (std::any_of(under_way.begin(), under_way.end(), same)) continue;
    if (replica.raft().snapshot().last.index < known_at) {
      if (!taker_.taking()) taker_.Ask();
    } else if (now_ns >= mend_again_ns_[member]) {
      mend_again_ns_[member] = now_ns + kMendAgain_ns;
      needed_.push_back(member);
    }
  }
}

bool Snapshots::Wanted(uint64_t now_ns, const kv::Replica& replica) {
  if (!replica.wants_snapshot()) return false;
  return !FollowerOnItsWay(now_ns, replica.raft()) || replica.wants_snapshot(kHeldTimes);
}

bool Snapshots::FollowerOnItsWay(uint64_t now_ns, const raft::Raft& raft) {
  if (!leads_in_.value()) return false;
  const std::vector<transfer::Sending> under_way = sender_->UnderWay();
  const auto now = std::chrono::steady_clock::now();
  if (std::any_of(under_way.begin(), under_way.end(),
                  [now](const transfer::Sending& sending) { return transfer::MakesProgress(sending, now); })) {
    return true;
  }
  for (auto& [member, behind] : behind_) {
    const raft::LogIndex match = MatchOf(raft, member);
    if (match > behind.match) behind.moved_ns = now_ns;
    behind.match = std::max(behind.match, match);
  }
  std::erase_if(behind_, [now_ns](const auto& entry) {
    const Behind& behind = entry.second;
    return behind.match >= behind.until || now_ns > behind.moved_ns + kTimeout_ns;
  });
  return !behind_.empty();
}

// A transfer that was begun in another term is given up.
void Snapshots::FollowRole(const raft::Raft& raft) {
  const raft::Term leads_in = raft.role() == raft::Role::kLeader ? raft.term() : raft::Term();
  if (leads_in == leads_in_) return;
  if (leads_in_.value() != 0) sender_->StopAll();
  behind_.clear();
  leads_in_ = leads_in;
}

// A former member is sent nothing, not even the rest.
void Snapshots::FollowMembers(const raft::Raft& raft) {
  const std::pair now(raft.configuration().epoch, raft.peers());
  if (now == members_) return;
  members_ = now;
  for (const transfer::Sending& sending : sender_->UnderWay()) {
    const size_t slot = raft.configuration().SlotOf(sending.to);
    if (((raft.peers() >> slot) & 1) == 0) sender_->StopSendingTo(sending.to);
  }
}

void Snapshots::FollowPeers(const Peers& peers) {
  if (addresses_version_ == peers.addresses_version()) return;
  addresses_version_ = peers.addresses_version();
  std::vector<NetAddress> addresses = peers.MemberAddresses();
  absl::MutexLock lock(&mutex_);
  addresses_ = std::move(addresses);
}

void Snapshots::SendNeeded(kv::Replica& replica, const Peers& peers) {
  const raft::Raft& raft = replica.raft();
  FollowRole(raft);  // the step that asked may have been the one that began to lead
  for (const raft::NodeId to : std::exchange(needed_, {})) {
    if (!leads_in_.value()) continue;  // and with the lead goes what it waited for
    const std::vector<PeerState>& others = peers.states();
    const auto peer =
        std::find_if(others.begin(), others.end(), [to](const PeerState& other) { return other.id == to; });
    if (peer == others.end() || peer->reached_at().port == 0) {
      // Its address is not known yet: the core asks again a heartbeat later.
      replica.Feed(raft::SnapshotSent{.to = to, .index = raft.snapshot().last.index, .delivered = false});
      continue;
    }
    sender_->Send({.to = to,
                   .address = peer->reached_at().ToString(),
                   .term = raft.term(),
                   .last = raft.snapshot().last,
                   .path = folder_.PathOf(raft.snapshot().last)});
  }
  replica.Settle();
}

void Snapshots::TakeEnded(uint64_t now_ns, kv::Replica& replica) {
  std::vector<Ended> ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(ended_);
  }
  for (const Ended& end : ended) {
    // The file itself is no good, or is gone: the next one may be better, also where nothing new was applied.
    const bool bad = absl::IsDataLoss(end.status) || absl::IsNotFound(end.status);
    if (bad && end.index == replica.raft().snapshot().last.index) taker_.Replace();
    if (end.status.ok() && leads_in_.value()) {
      behind_[end.to] = {.until = replica.raft().log().last_index(), .match = end.index, .moved_ns = now_ns};
    }
    if (end.status.ok()) replica.Mended(end.to, end.index);
    replica.Feed(raft::SnapshotSent{.to = end.to, .index = end.index, .delivered = end.status.ok()});
  }
}

void Snapshots::Install(uint64_t now_ns, kv::Replica& replica, offload::KernelBridge* bridge) {
  std::shared_ptr<Arrived> arrived;
  {
    absl::MutexLock lock(&mutex_);
    arrived = std::move(arrived_);
    arrived_ = nullptr;
  }
  if (arrived == nullptr) return;
  const raft::SnapshotReceived event = arrived->received.event;
  if (bridge != nullptr) {
    bridge->ReceiveSnapshot(event, std::move(arrived->received.state), replica);
  } else {
    replica.ReceiveSnapshot(event, std::move(arrived->received.state));
  }
  replica.Settle();
  const raft::EntryId& last = event.snapshot.last;
  if (replica.raft().snapshot().last == last) {
    ++installed_;
    size_bytes_ = arrived->received.size_bytes;
    written_ns_ = now_ns;
  }
  if (replica.raft().commit() < last.index) {
    arrived->taken = absl::FailedPreconditionError("another term has begun, or its sender does not lead");
    // Nothing refers to it: this node's own snapshot of that entry cannot be there yet, and by the next turn it may.
    // Leaders that come and go would fill the disk with theirs. The receiver still has the file open, so nothing waits
    // for it here.
    folder_.Remove(last);
  }
  arrived->done.Notify();
}

raft::LogIndex Snapshots::Ask(const kv::Replica& replica) {
  taker_.Ask();
  return replica.applied().index;
}

// Nothing is read here: that may wait for a disk.
void Snapshots::AddTlsTo(int64_t unix_s, NodeStatus& status) const {
  std::string& problem = status.snapshot_problem;
  if (const std::string of_files = tls_->files.Problem(unix_s); !of_files.empty())
    absl::StrAppend(&problem, problem.empty() ? "" : "; ", of_files);
  status.snapshot_certificate_ends_s = tls_->files.current()->not_after_s;
  status.counters.emplace_back("snapshot_certificate_reloads", tls_->files.reloads());
}

namespace {

void AddTransfer(raft::NodeId peer, const char* direction, raft::LogIndex index, uint64_t done_bytes,
                 uint64_t size_bytes, v1::Snapshots& out) {
  v1::SnapshotTransfer& shown = *out.add_transfers();
  shown.set_peer(peer.value());
  shown.set_direction(direction);
  shown.set_index(index.value());
  shown.set_done_bytes(done_bytes);
  shown.set_size_bytes(size_bytes);
  if (size_bytes != 0) shown.set_percent(100.0 * static_cast<double>(done_bytes) / static_cast<double>(size_bytes));
}

}  // namespace

void Snapshots::AddTo(uint64_t now_ns, int64_t unix_s, const raft::Raft& raft, NodeStatus& status) const {
  v1::Snapshots& reported = status.snapshots;
  std::string& problem = status.snapshot_problem;
  const SnapshotTakerStatus& taker = taker_.status();
  reported.set_last_index(raft.snapshot().last.index.value());
  reported.set_last_term(raft.snapshot().last.term.value());
  reported.set_log_start(raft.log().start().index.value());
  if (reported.last_index() != 0) {
    reported.set_age_ns(static_cast<int64_t>(now_ns - std::min(now_ns, written_ns_)));
    reported.set_size_bytes(size_bytes_);
  }
  reported.set_taking(taker_.taking());
  reported.set_took_ns(taker.last_took_ns);
  reported.set_longest_slice_ns(taker.longest_slice_ns);
  status.snapshot_held_bytes = taker.held_bytes;
  problem = storage_.snapshot_trouble();
  if (!taker.error.empty()) {
    problem = absl::StrCat("the last one failed, and the log grows until one succeeds: ", taker.error);
  }
  for (const transfer::Sending& sending : sender_->UnderWay()) {
    if (!sending.trouble.empty()) {
      absl::StrAppend(&problem, problem.empty() ? "" : "; ", "node ", sending.to.value(),
                      " needs one and does not get it: ", sending.trouble);
    }
    AddTransfer(sending.to, "sends", sending.index, sending.sent_bytes, sending.size_bytes, reported);
  }
  if (tls_ != nullptr) AddTlsTo(unix_s, status);
  const transfer::SenderStatistics sent = sender_->statistics();
  const transfer::ReceiverStatistics got = receiver_->statistics();
  if (const std::optional<transfer::Receiving> receiving = receiver_->under_way()) {
    AddTransfer(receiving->from, "receives", receiving->index, receiving->received_bytes, receiving->size_bytes,
                reported);
  }
  AddCounts(status, "snapshots",
            {{"taken", taker.taken}, {"failed", taker.failed}, {"gave_up", taker.gave_up}, {"installed", installed_}});
  AddCounts(status, "snapshot_transfers",
            {{"send_begun", sent.begun},
             {"send_delivered", sent.delivered},
             {"send_failed", sent.failed},
             {"send_resumed", sent.resumed},
             {"receive_begun", got.begun},
             {"received", got.received},
             {"receive_broken_off", got.broken_off},
             {"receive_refused", got.refused},
             {"unauthenticated", got.unauthenticated}});
  const transfer::PeerListener::Statistics& connections = got.connections;
  AddCounts(status, "snapshot_connections",
            {{"source", connections.strangers},
             {"unproved", connections.unproved},
             {"displaced", connections.displaced},
             {"rate", connections.rate},
             {"no_place", connections.no_place},
             {"no_descriptor", connections.no_descriptor},
             {"silent", connections.silent},
             {"calls", connections.calls},
             {"certificate", got.certificate}});
  AddCounts(status, "snapshot_bytes", {{"sent", sent.sent_bytes}, {"received", got.received_bytes}});
}

}  // namespace hedgerow::node
