// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/node.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include <sched.h>
#include <sys/epoll.h>

#include "cluster/node/host/node_memory.h"
#include "cluster/node/snapshots/backup_pieces.h"
#include "cluster/node/status/stall_problem.h"
#include "cluster/transfer/load_state.h"
#include "cluster/transfer/peer_listener.h"
#include "config/scalar.h"
#include "operate/clock.h"
#include "operate/key_file.h"
#include "operate/log.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

constexpr size_t kSocketBuffer_bytes = 4 * 1024 * 1024;
// Batches taken from one socket before others have their turn.
constexpr int kBatchesPerTurn = 4;
// How long a poll that found a socket empty is believed, from its begin on.
constexpr uint64_t kPollHolds_ns = 1'000'000;
// A follower's clients wait while its loop commits, however patient the members are with each other.
constexpr uint64_t kQuickSyncMax_ns = 2'000'000;
// Clients that ask again do so within it; what followers say at rest does not keep a leader awake.
constexpr uint64_t kSpinAfterRequest_ns = 2'000'000;

// Election Safety does not depend on it, but incarnations, read ids and nonces must not repeat: the kernel's
// generator.
uint64_t Seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

uint64_t DrawIncarnation() {
  const uint64_t incarnation = Seed();
  return incarnation == 0 ? 1 : incarnation;
}

wire::PeerTraits TraitsOf(const NodeConfig& config, const IdentityKeeper& identity) {
  using Durability = wire::PeerTraits::Durability;
  return {.durability = config.durability == node::Durability::kDisk ? Durability::kDisk : Durability::kMemory,
          .features = config.features,
          .version_min = HR_PEER_VERSION,
          .version_max = HR_PEER_VERSION,
          .log_uuid = identity.log_uuid(),
          .build = std::string(operate::kVersion).substr(0, wire::kBuildMax_bytes)};
}

// What a new cluster begins with, if this node is its first leader: where the file does not say how large the store may
// be, what this node's memory is enough for.
kv::Settings SeedOf(const NodeConfig& config, uint64_t available_memory_bytes) {
  kv::Settings seed = config.settings;
  const auto says = [&named = config.settings_in_file](kv::Setting setting) {
    return std::find(named.begin(), named.end(), setting) != named.end();
  };
  if (!says(kv::Setting::kMemory)) seed.memory_bytes = LimitFor_bytes(available_memory_bytes, seed.memory_bytes);
  if (!says(kv::Setting::kMemcachedMemory))
    seed.memcached.memory_bytes = std::min(seed.memcached.memory_bytes, seed.memory_bytes / 2);
  return seed;
}

kv::ReplicaOptions ReplicaOptionsOf(const NodeConfig& config) {
  const uint64_t available_memory_bytes = AvailableMemory_bytes();
  kv::ReplicaOptions options;
  options.router.waiting_max_bytes = WaitingMax_bytes(available_memory_bytes);
  options.raft.self = config.self;
  options.raft.election_floor_ns = config.election_floor_ns;
  options.raft.election_cap_ns = config.election_cap_ns;
  options.router.waiting_max = config.waiting_max;
  options.raft.tail_max_entries = config.snapshots.tail_entries;
  // The log is in memory from its beginning on.
  const uint64_t log_bytes = LogMax_bytes(available_memory_bytes);
  options.raft.tail_max_bytes = std::min(config.snapshots.tail_bytes, log_bytes / 2);
  options.snapshots = {.every_entries = config.snapshots.every_entries,
                       .every_bytes = std::min(config.snapshots.every_bytes, log_bytes)};
  options.seed = SeedOf(config, available_memory_bytes);
  options.check_every_entries = config.check_every_entries;
  return options;
}

kv::ReplicaOptions FirstMembers(const NodeConfig& config, const storage::LogStorage& storage,
                                kv::ReplicaOptions options) {
  options.raft.initial = storage.began_with();
  config.Readdress(options.raft.initial);
  return options;
}

raft::RestoredState Readdressed(const NodeConfig& config, raft::RestoredState restored) {
  config.Readdress(restored.snapshot.configuration);
  return restored;
}

std::vector<Announcer::Proxy> ProxiesOf(const NodeConfig& config) {
  std::vector<Announcer::Proxy> proxies;
  for (const ProxyConfig& proxy : config.proxies) {
    proxies.push_back(
        {.address = proxy.address, .key = wire::DeriveProxyKey(config.announce_keys->seals().key, proxy.name)});
  }
  return proxies;
}

std::vector<NetAddress> PeerAddressesOf(const NodeConfig& config) {
  std::vector<NetAddress> addresses;
  for (const MemberConfig& member : config.members) addresses.push_back(member.peer);
  return addresses;
}

// Before the folder is opened, which may take minutes: an address may not be there yet, or another program may have it.
absl::Status CheckAddresses(const NodeConfig& config) {
  std::vector<NetAddress> addresses = {config.own().peer, config.serve};
  if (config.memcached.on()) addresses.push_back(config.memcached.listen);
  absl::Status status;
  for (const NetAddress& address : addresses) status.Update(UdpSocket::Bind(address, 0, 1).status());
  status.Update(transfer::PeerListener::Listen(config.own().peer.ToString()).status());
  return status;
}

void Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    operate::EndForWantOf("a place to wait for datagrams (fs.epoll.max_user_watches)");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> Node::Create(NodeConfig config, storage::LoadProgress* progress) {
  if (absl::Status there = CheckAddresses(config); !there.ok()) return there;
  absl::StatusOr<std::unique_ptr<IdentityKeeper>> identity = IdentityKeeper::Open(config);
  if (!identity.ok()) return identity.status();
  if (absl::Status left = Offloads::CheckLeft(config, **identity); !left.ok()) return left;
  storage::StorageOptions stored;
  stored.path = config.data_dir;
  stored.sync = config.durability == Durability::kDisk;
  stored.quick_sync_ns = std::min(config.election_floor_ns / 10, kQuickSyncMax_ns);
  stored.begins_with = config.Initial();
  stored.generation = {.epoch = config.cluster_epoch, .nonce = config.recovery_nonce};  // of one that joins
  stored.progress = progress;
  std::unique_ptr<kv::StateMachine> state;
  const auto load = [&state](storage::SnapshotReader& snapshot) {
    auto loaded = transfer::LoadState(snapshot);
    if (loaded.ok()) state = *std::move(loaded);
    return loaded.status();
  };
  absl::StatusOr<std::unique_ptr<storage::LogStorage>> storage =
      storage::LogStorage::Open(stored, {.cluster_id = config.cluster_id, .node = config.self}, load);
  if (!storage.ok()) return storage.status();
  absl::Status counted = (*identity)->CountStart((*storage)->copy_id(), config.admin_socket);
  if (!counted.ok()) return counted;
  const storage::RecoveryGeneration& generation = (*storage)->generation();
  const wire::KeyRing configured_keys = config.cluster_keys;
  config.cluster_keys = wire::DeriveClusterKeys(configured_keys, generation.epoch, generation.nonce);
  config.cluster_epoch = generation.epoch;
  config.recovery_nonce = generation.nonce;
  absl::StatusOr<std::unique_ptr<UdpSocket>> peers =
      UdpSocket::Bind(config.own().peer, kSocketBuffer_bytes, UdpSocket::kDatagramMax_bytes);
  if (!peers.ok()) return peers.status();
  absl::StatusOr<std::unique_ptr<UdpSocket>> clients =
      UdpSocket::Bind(config.serve, kSocketBuffer_bytes, 2 * wire::kHkvMax_bytes);
  if (!clients.ok()) return clients.status();
  auto sources = std::make_unique<SourceLimits>(config.sources);
  absl::StatusOr<std::unique_ptr<MemcachedFrontEnd>> memcached = MemcachedFrontEnd::Open(config, *sources);
  if (!memcached.ok()) return memcached.status();
  const uint64_t incarnation = DrawIncarnation();
  absl::StatusOr<std::unique_ptr<Offloads>> offloads = Offloads::Open(config, incarnation, **identity);
  if (!offloads.ok()) return offloads.status();
  auto node = std::unique_ptr<Node>(
      new Node(std::move(config), *std::move(storage), *std::move(identity), std::move(state), *std::move(peers),
               *std::move(clients), std::move(sources), *std::move(memcached), incarnation, *std::move(offloads)));
  node->configured_cluster_keys_ = configured_keys;
  if (absl::Status members =
          node->config_.CheckMembers(node->storage_->began_with(), node->replica_.raft().configuration());
      !members.ok())
    return members;
  absl::StatusOr<std::unique_ptr<Snapshots>> snapshots = Snapshots::Open(
      node->config_, *node->storage_, node->replica_.raft().snapshot(), incarnation, operate::Monotonic_ns,
      [&wake = node->wake_] { wake.Wake(); },
      [node = node.get()](const transfer::Offered& offered) { return node->MayTake(offered); });
  if (!snapshots.ok()) return snapshots.status();
  node->snapshots_ = *std::move(snapshots);
  const absl::Status started = node->offloads_->Start(node->replica_, node->peers_);
  if (!started.ok()) return started;
  node->turn_.SetBridge(node->offloads_->bridge());
  const raft::Raft& raft = node->replica_.raft();  // with what the kernel part has held for the former incarnation
  node->peers_.SetStarted(raft.term(), raft.log().last_index());
  node->FollowTermLimit();
  return node;
}

Node::Node(NodeConfig config, std::unique_ptr<storage::LogStorage> storage, std::unique_ptr<IdentityKeeper> identity,
           std::unique_ptr<kv::StateMachine> state, std::unique_ptr<UdpSocket> peer_socket,
           std::unique_ptr<UdpSocket> client_socket, std::unique_ptr<SourceLimits> sources,
           std::unique_ptr<MemcachedFrontEnd> memcached, uint64_t incarnation, std::unique_ptr<Offloads> offloads)
    : config_(std::move(config)),
      available_memory_bytes_(AvailableMemory_bytes()),
      storage_(std::move(storage)),
      identity_(std::move(identity)),
      peer_socket_(std::move(peer_socket)),
      client_socket_(std::move(client_socket)),
      sources_(std::move(sources)),
      memcached_(std::move(memcached)),
      random_(Seed()),
      now_ns_(operate::Monotonic_ns()),
      started_ns_(now_ns_),
      peers_(*peer_socket_,
             {.cluster_id = config_.cluster_id,
              .keys = config_.cluster_keys,
              .self = config_.self,
              .incarnation = incarnation,
              .traits = TraitsOf(config_, *identity_)},
             *identity_, [this] { return random_(); }),
      front_end_(*client_socket_, config_.clients, config_.anonymous, NamedClientsOf(config_), *sources_),
      pushback_(config_.waiting_max),
      announcer_(*peer_socket_, config_.cluster_id, config_.own().serve,
                 {.since_ns = started_ns_, .longest_ns = ReplicaOptionsOf(config_).router.hold_max_ns},
                 ProxiesOf(config_)),
      replica_(*this, FirstMembers(config_, *storage_, ReplicaOptionsOf(config_)),
               Readdressed(config_, storage_->TakeRestored()), std::move(state)),
      turn_(*this, replica_,
            config_.durability == node::Durability::kMemory ? Turn::Durability::kMemory : Turn::Durability::kDisk),
      offloads_(std::move(offloads)),
      leaderless_since_ns_(now_ns_),
      incidents_(config_.election_floor_ns / 2),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) operate::EndForWantOf("a descriptor to wait for datagrams by");
  for (const int fd : {wake_.fd(), peer_socket_->fd(), client_socket_->fd(), storage_->event_fd()}) Watch(epoll_, fd);
  announcer_.SetEpoch(config_.cluster_epoch);
  if (memcached_ != nullptr) {
    Watch(epoll_, memcached_->fd());
    announcer_.AlsoName(memcached_->served());
  }
  announcer_.DrawSequencesFrom([this] { return offloads_->DrawAnnounceSequence(); });
  peers_.SetSources(PeerAddressesOf(config_), config_.peer_clients);
  FollowMembers();
  FollowSettings();
}

Node::~Node() { close(epoll_); }

absl::Status Node::Run() {
  while (true) {
    RunTurn();
    // A full disk may have room again; whatever else is wrong with it does not go by itself.
    const absl::Status health = storage_->health();
    if (!health.ok() && !absl::IsResourceExhausted(health)) return health;
    if (peers_.refused_by().IsSet()) return IsUnknown();
    if (stop_requested_.load(std::memory_order_relaxed) && MayStop()) break;
    if (offload::KernelBridge* const bridge = offloads_->bridge(); bridge != nullptr && bridge->superseded())
      return absl::AbortedError("another process has started as this node");
    Wait();
  }
  turn_.WriteHeld();
  offloads_->Stop(replica_);
  turn_.FlushPeers();
  FlushClients();
  TakePosted();
  return absl::OkStatus();
}

// The node that reported it is a member, has just been asked, and never believes this log. This node must not
// go on with members that do not know the log before.
absl::Status Node::IsUnknown() {
  offloads_->Stop(replica_);
  TakePosted();
  return identity_->MarkUnknown(peers_.refused_by());
}

void Node::RequestStop() {
  stop_requested_.store(true, std::memory_order_relaxed);
  wake_.Wake();
}

void Node::RunTurn() {
  now_ns_ = operate::Monotonic_ns();
  busy_.Works(now_ns_);
  if (incidents_.TurnBegins(now_ns_) >= kv::kStandstill_ns) replica_.StoodStill();
  sources_->TurnBegins(now_ns_);
  const kv::StateMachine& state = replica_.state();
  sources_->FollowWindow(state.seen_without_session(), state.settings().window,
                         std::max<size_t>(1, replica_.raft().configuration().members.size()));
  if (turn_.Run(now_ns_)) worked_ns_ = now_ns_;
  turns_.Count(std::exchange(came_, false) || worked_ns_ == now_ns_);
}

uint64_t Node::TakeDurable() {
  const uint64_t durable = storage_->TakeDurable();
  came_ |= std::exchange(durable_, durable) != durable;
  return durable;
}

void Node::FollowReplica() {
  FollowMembers();
  FollowSettings();
  FollowLogUuid();
  replica_.SetAgreedFeatures(peers_.AgreedFeatures());
  peers_.SetTerm(replica_.raft().term());
  FollowTermLimit();
  FollowRemoval();
  FollowKeys();
  peers_.Greet(now_ns_);
  offloads_->Follow(now_ns_, replica_.raft(), peers_);
}

// Recorded, so that a node knows of it before it has applied anything; the applied log alone says it.
void Node::FollowLogUuid() {
  const uint64_t log_uuid = replica_.state().log_uuid();
  if (log_uuid == 0 || log_uuid == identity_->log_uuid()) return;
  identity_->SetLogUuid(log_uuid);
  peers_.SetLogUuid(log_uuid);
}

void Node::FlushPeers() {
  peers_.Flush();
  peer_socket_->Flush();
}

void Node::FlushClients() {
  client_socket_->Flush();
  if (memcached_ != nullptr) memcached_->Flush(now_ns_);
}

void Node::TakeFromPeers() {
  if (!MayHaveCome(peer_socket_->fd())) return peer_socket_->WasEmpty(polled_ns_);
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const std::vector<Datagram>& batch = peer_socket_->Receive(now_ns_);
    for (const Datagram& datagram : batch) peers_.Take(datagram, now_ns_, *this);
    if (!batch.empty()) worked_ns_ = now_ns_;
    if (batch.size() < UdpSocket::kBatch) break;
  }
}

void Node::TakeFromClients() {
  if (!MayHaveCome(client_socket_->fd())) {
    client_socket_->WasEmpty(polled_ns_);
  } else {
    for (int i = 0; i < kBatchesPerTurn; ++i) {
      const std::vector<Datagram>& batch = client_socket_->Receive(now_ns_);
      for (const Datagram& datagram : batch) {
        std::optional<kv::Request> request = front_end_.Take(datagram, now_ns_);
        if (!request.has_value()) continue;
        if (replica_.router().TakesPlaceInWindow(*request) &&
            !sources_->MayTakePlaceInWindow(datagram, front_end_.ClientOf(request->reply_to))) {
          Send(kv::Answer{.reply_to = request->reply_to, .result = {.code = kv::ResultCode::kOverloaded}});
          continue;
        }
        TakeFromClient(datagram.arrived_ns, std::move(*request));
      }
      if (!batch.empty()) worked_ns_ = asked_ns_ = now_ns_;
      if (batch.size() < UdpSocket::kBatch) break;
    }
  }
  if (memcached_ == nullptr) return;
  const auto take = [this](uint64_t arrived_ns, kv::Request request) {
    TakeFromClient(arrived_ns, std::move(request));
  };
  if (!MayHaveCome(memcached_->fd())) {
    memcached_->WasEmpty(polled_ns_);
  } else if (memcached_->Receive(now_ns_, replica_.state().memcached(), take)) {
    worked_ns_ = asked_ns_ = now_ns_;
  }
}

bool Node::IsReady(int fd) const {
  const auto end = ready_.begin() + ready_count_;
  return std::any_of(ready_.begin(), end, [fd](const epoll_event& event) { return event.data.fd == fd; });
}

// A node that stood still since its poll has not heard what has come meanwhile; before it judges by the clock, it must.
bool Node::MayHaveCome(int fd) const { return now_ns_ > polled_ns_ + kPollHolds_ns || IsReady(fd); }

// A node that was removed never hears of a leader again, so nothing is gained by holding a request for one.
void Node::TakeFromClient(uint64_t arrived_ns, kv::Request request) {
  const auto may_read = [&] {
    const uint64_t client = IsMemcacheds(request.reply_to) ? 0 : front_end_.ClientOf(request.reply_to);
    request.counted_at = sources_->PlacesOf(EndsOf(request.reply_to).second, client);
    return sources_->MayRead(replica_.router().reads(), replica_.raft().options().reads_max, request.counted_at);
  };
  if (IsRemoved()) {
    Send(kv::Answer{.reply_to = request.reply_to, .kind = kv::Answer::Kind::kNotLeader});
  } else if (request.is_read() && !may_read()) {
    Send(kv::Answer{.reply_to = request.reply_to, .result = {.code = kv::ResultCode::kOverloaded}});
  } else {
    replica_.ReceiveRequest(arrived_ns, std::move(request));
  }
}

void Node::Receive(uint64_t arrived_ns, raft::Message message) {
  if (std::holds_alternative<raft::ReadIndexRequest>(message.body)) asked_ns_ = now_ns_;
  turn_.Receive(arrived_ns, std::move(message));
}

void Node::Receive(uint64_t arrived_ns, kv::Request request) {
  asked_ns_ = now_ns_;
  replica_.ReceiveRequest(arrived_ns, std::move(request));
}

void Node::Receive(raft::NodeId from, uint64_t tag, const kv::Answer& answer) {
  replica_.ReceiveForwardAnswer(tag, from, answer);
}

void Node::Receive(const raft::LeaderResigns& hint) {
  ++resigns_heard_;
  turn_.Receive(hint);
}

void Node::Receive(const raft::LeaderStalled& hint) {
  ++stalls_heard_;
  replica_.Feed(hint);
}

void Node::Send(kv::Answer answer) {
  if (const std::optional<raft::NodeId> node = NodeOf(answer.reply_to)) {
    peers_.Answer(*node, answer);
  } else if (IsMemcacheds(answer.reply_to)) {
    memcached_->Answer(now_ns_, answer);
  } else {
    front_end_.Answer(answer, pushback_.ForAnswer(now_ns_, replica_.router().waiting(), busy_.share()));
  }
}

void Node::Stepped(const raft::Outputs& outputs) {
  if (outputs.configuration.has_value()) FollowMembers();  // before what is sent to them
  if (ElectionSpans::Concern(outputs)) election_spans_.Take(outputs, operate::Monotonic_ns());
  if (outputs.stand.has_value()) incidents_.Stands(*outputs.stand, now_ns_);
  if (outputs.step_down.has_value()) incidents_.StepsDown(*outputs.step_down, now_ns_);
  const bool round = std::any_of(outputs.send.begin(), outputs.send.end(), [](const raft::Message& message) {
    return std::holds_alternative<raft::Heartbeat>(message.body);
  });
  if (round) announcer_.HeartbeatRound(now_ns_);
}

void Node::BecameLeader() { led_since_ns_ = operate::Monotonic_ns(); }

void Node::LeaderIs(raft::NodeId leader, raft::Term term) {
  if (leader.IsSet()) {
    LogInfo(
        leader == config_.self ? "this node leads" : absl::StrCat("node ", leader.value(), " leads"), " in term ",
        term.value(),
        leaderless_since_ns_ == 0
            ? ""
            : absl::StrCat(", after ", config::RoundedDurationNs(static_cast<int64_t>(now_ns_ - leaderless_since_ns_)),
                           " without a leader"));
  }
  leaderless_since_ns_ = leader.IsSet() ? 0 : now_ns_;
  if (leader != config_.self) {
    announcer_.Lost();
    return;
  }
  ++elections_won_;
  announcer_.Led(term, now_ns_);
}

// Whether something has come. The next turn asks those sockets alone that are ready. The time is from before: a thread
// that a poll has woken may not run for a while (a quota of processor time is enforced there), and what comes
// meanwhile no poll has seen.
bool Node::Poll(const timespec* timeout) {
  polled_ns_ = operate::Monotonic_ns();
  ready_count_ = epoll_pwait2(epoll_, ready_.data(), static_cast<int>(ready_.size()), timeout, nullptr);
  if (ready_count_ < 0) polled_ns_ = 0;
  ready_count_ = std::max(ready_count_, 0);
  return ready_count_ != 0;
}

// A leader that has just worked for a client will soon be asked again, and waking it would take longer than its work.
// It yields to other threads that want its core.
bool Node::Spin(uint64_t now_ns, uint64_t until_ns) {
  if (replica_.raft().role() != raft::Role::kLeader || now_ns - asked_ns_ > kSpinAfterRequest_ns) return false;
  const uint64_t stop_ns = std::min(until_ns, worked_ns_ + config_.spin_ns);
  offload::KernelBridge* const bridge = offloads_->bridge();
  for (; now_ns < stop_ns && (bridge == nullptr || !bridge->DoorbellRang()); now_ns = polled_ns_) {
    constexpr timespec kNone{};
    if (Poll(&kNone)) return true;
    sched_yield();
  }
  return false;
}

// Until something has come, or time demands something.
void Node::Sleep() {
  const uint64_t now_ns = operate::Monotonic_ns();
  busy_.Rests(now_ns);
  if (worked_ns_ == now_ns_) worked_ns_ = now_ns;  // spinning begins with the end of the work
  uint64_t until_ns =
      std::min({replica_.next_deadline_ns(), peers_.next_greeting_ns(), snapshots_->next_deadline_ns()});
  offload::KernelBridge* const bridge = offloads_->bridge();
  if (bridge != nullptr) until_ns = std::min(until_ns, bridge->next_deadline_ns());
  if (memcached_ != nullptr) until_ns = std::min(until_ns, memcached_->next_deadline_ns());
  if (stop_by_ns_ != 0) until_ns = std::min(until_ns, now_ns + 1'000'000);
  if (Spin(now_ns, until_ns) || (bridge != nullptr && !bridge->MaySleep())) return;
  const uint64_t spun_ns = operate::Monotonic_ns();
  incidents_.Sleeps(spun_ns, until_ns);
  const uint64_t wait_ns = until_ns > spun_ns ? until_ns - spun_ns : 0;
  const timespec timeout{.tv_sec = static_cast<time_t>(wait_ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(wait_ns % 1'000'000'000)};
  Poll(until_ns == UINT64_MAX ? nullptr : &timeout);
  if (bridge != nullptr) bridge->Awake();
}

void Node::Wait() {
  constexpr timespec kNone{};
  polled_ns_ = 0;
  ready_count_ = 0;
  if (storage_->CommitHere()) return;
  if (!turn_.holds_writes() || !Poll(&kNone)) {
    turn_.WriteHeld();
    Sleep();
  }
  if (IsReady(wake_.fd())) {
    wake_.Drain();
    came_ = true;
  }
  if (IsReady(storage_->event_fd())) storage_->ReadEvent();
}

bool Node::Post(std::function<void()> what) {
  {
    absl::MutexLock lock(&mutex_);
    if (posted_.size() >= kPostedMax) return false;
    posted_.push_back(std::move(what));
  }
  wake_.Wake();
  return true;
}

void Node::TakePosted() {
  std::vector<std::function<void()>> posted;
  {
    absl::MutexLock lock(&mutex_);
    posted.swap(posted_);
  }
  for (const std::function<void()>& what : posted) what();
}

void Node::AskForKeys() {
  Ask<bool>([this] { return keys_are_wanted_ = true; });
}

// What is posted may outlive the caller's timeout, so it owns what it writes to.
absl::StatusOr<NodeStatus> Node::Status() {
  std::optional<NodeStatus> status = Ask<NodeStatus>([this] { return StatusNow(); });
  absl::MutexLock lock(&mutex_);
  if (status.has_value()) return *(last_status_ = *std::move(status));
  // A follower's loop waits for its disk itself while that is quick; should it then hang, that is what there is to say.
  const std::string disk = DiskProblem(storage_->here_for_ns());
  if (disk.empty() || !last_status_.has_value()) return Late();
  last_status_->storage = disk;
  last_status_->ready = false;
  return *last_status_;
}

bool Node::FlipForTest(const std::string& key) {
  return Ask<bool>([this, key] { return replica_.FlipForTest(key); }).value_or(false);
}

absl::StatusOr<raft::LogIndex> Node::TakeSnapshot() {
  using Index = absl::StatusOr<raft::LogIndex>;
  return Ask<Index>([this] { return snapshots_->Ask(replica_); }).value_or(Late());
}

absl::Status Node::MayTake(const transfer::Offered& offered) {
  return Ask<absl::Status>([this, offered] { return Snapshots::MayTake(now_ns_, offered, replica_, peers_); })
      .value_or(Late());
}

absl::StatusOr<BackupPieces> Node::OpenBackup() {
  const auto open = [this] {
    const raft::EntryId last = replica_.raft().snapshot().last;
    return ReadBackup({.cluster_id = config_.cluster_id,
                       .of = {.epoch = config_.cluster_epoch, .nonce = config_.recovery_nonce},
                       .node = config_.self,
                       .last = last},
                      storage_->snapshots().PathOf(last));
  };
  return Ask<absl::StatusOr<BackupPieces>>(open).value_or(Late());
}

}  // namespace hedgerow::node
