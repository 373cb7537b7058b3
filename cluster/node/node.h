// SPDX-License-Identifier: Apache-2.0
//
// A node of the cluster: the replica on real sockets, a real disk and the real clock. One thread (the caller of
// Run) owns everything; the storage's writer and the administration's threads reach it through event
// descriptors. Memory and time are bounded by the options of the parts; whatever is refused or dropped is
// counted in Status().
//
// The order of one turn of the loop is turn.h's, which the simulator runs as well.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cluster/kv/replica.h"
#include "cluster/node/front_end/announcer.h"
#include "cluster/node/config/config.h"
#include "cluster/node/config/node_keys.h"
#include "cluster/node/status/election_spans.h"
#include "cluster/node/host/event_fd.h"
#include "cluster/node/host/secret_numbers.h"
#include "cluster/node/front_end/front_end.h"
#include "cluster/node/identity/identity_keeper.h"
#include "cluster/node/status/incidents.h"
#include "cluster/node/front_end/memcached_front_end.h"
#include "cluster/node/offloads.h"
#include "cluster/node/peers/peers.h"
#include "cluster/node/front_end/busy_share.h"
#include "cluster/node/front_end/pushback.h"
#include "cluster/node/snapshots/snapshots.h"
#include "cluster/node/status/status.h"
#include "cluster/node/turn/turn.h"
#include "cluster/node/net/udp_socket.h"
#include "cluster/storage/load_progress.h"
#include "cluster/storage/log_storage.h"
#include "net/steady_wait.h"
#include "operate/loop_turns.h"

namespace hedgerow::node {

class Node final : public NodeControl, private kv::ReplicaHost, private PeerReceiver, private TurnHost {
 public:
  // Opens the storage and the sockets. Nothing is sent before Run.
  // `progress`: where it says how far it is; null: nowhere.
  static absl::StatusOr<std::unique_ptr<Node>> Create(NodeConfig config, storage::LoadProgress* progress = nullptr);
  ~Node() override;

  // Until RequestStop: then hands leadership on if it has it, and returns. An error is one that a restart may
  // mend, or storage::IsLost: the node was told that its folder was emptied.
  absl::Status Run();
  // Any thread, or a signal handler.
  void RequestStop();

  // NodeControl: any thread but the loop's.
  absl::StatusOr<NodeStatus> Status() override;
  void AskForKeys() override;
  absl::Status Transfer(raft::NodeId target) override;
  absl::StatusOr<BackupPieces> OpenBackup() override;
  absl::StatusOr<raft::LogIndex> TakeSnapshot() override;
  absl::StatusOr<uint32_t> ChangeMembers(std::vector<raft::MemberChange> changes) override;
  absl::StatusOr<v1::ChangeSettingsReply> ChangeSettings(kv::SettingValues values) override;
  absl::StatusOr<v1::Keys> ReloadKeys(bool force) override;
  absl::StatusOr<v1::PurgeSomeReply> PurgeSome(const v1::PurgeSomeRequest& request) override;

  // For tests: one bit of a key's value changes by itself. False: there is no such key.
  bool FlipForTest(const std::string& key);

 private:
  Node(NodeConfig config, std::unique_ptr<storage::LogStorage> storage, std::unique_ptr<IdentityKeeper> identity,
       std::unique_ptr<kv::StateMachine> state, std::unique_ptr<UdpSocket> peer_socket,
       std::unique_ptr<UdpSocket> client_socket, std::unique_ptr<SourceLimits> sources,
       std::unique_ptr<MemcachedFrontEnd> memcached, uint64_t incarnation, std::unique_ptr<Offloads> offloads);

  // kv::ReplicaHost
  uint64_t Now_ns() override { return now_ns_; }
  uint64_t StampClock_ns() override { return now_ns_; }
  uint64_t Random() override { return random_(); }
  uint64_t Secret() override { return secrets_.Draw(); }
  void Persist(raft::Persist persist) override { turn_.Persist(std::move(persist)); }
  void Send(raft::Message message) override { peers_.Send(std::move(message)); }
  void Send(kv::Answer answer) override;
  void Send(kv::Forward forward) override { peers_.Send(forward); }
  void BecameLeader() override;
  void LeaderIs(raft::NodeId leader, raft::Term term) override;
  void Stepped(const raft::Outputs& outputs) override;
  void SnapshotNeeded(raft::NodeId to, raft::LogIndex) override { snapshots_->Needed(to); }
  void Retire(std::unique_ptr<kv::StateMachine> state) override { snapshots_->Retire(std::move(state)); }
  void MembershipAnswered(const raft::MembershipAnswer& answer) override { membership_answer_ = answer; }

  // PeerReceiver
  void Receive(uint64_t arrived_ns, raft::Message message) override;
  void Receive(uint64_t arrived_ns, kv::Request request) override;
  void Receive(raft::NodeId from, uint64_t tag, const kv::Answer& answer) override;
  void Receive(const raft::LeaderResigns& hint) override;
  void Receive(const raft::LeaderStalled& hint) override;
  Promised PromisedBy(raft::NodeId peer) const override { return node::PromisedBy(replica_.raft(), peer); }

  // TurnHost
  void TakeFromPeers() override;
  void TakeFromClients() override;
  void TakePosted() override;
  void FlushPeers() override;
  void FlushClients() override;
  void WriteLog(raft::Persist persist) override {
    storage_->Write(std::move(persist), replica_.raft().role() == raft::Role::kFollower);
  }
  uint64_t TakeDurable() override;
  void TurnSnapshots() override { snapshots_->Turn(now_ns_, replica_, peers_, offloads_->bridge()); }
  void FollowReplica() override;

  void RunTurn();
  void FollowLogUuid();
  void TakeFromClient(uint64_t arrived_ns, kv::Request request);
  bool IsReady(int fd) const;
  bool MayHaveCome(int fd) const;
  bool Poll(const timespec* timeout);
  bool Spin(uint64_t now_ns, uint64_t until_ns);
  void Sleep();
  void Wait();
  bool MayStop();
  absl::Status IsUnknown();
  static constexpr size_t kPostedMax = 64;
  bool Post(std::function<void()> what);
  // By the loop, for another thread; nothing: it did not answer in time.
  static constexpr absl::Duration kControlTimeout = absl::Seconds(2);
  static absl::Status Late() { return absl::DeadlineExceededError("the node's loop did not answer within 2 s"); }
  template <typename Result>
  std::optional<Result> Ask(std::function<Result()> question);
  NodeStatus StatusNow();
  uint64_t HeardByCore_ns(raft::NodeId peer) const;
  absl::Status TransferNow(raft::NodeId target);
  absl::Status MayTake(const transfer::Offered& offered);

  // node_members.cc
  void FollowMembers();
  absl::StatusOr<uint32_t> ChangeMembersNow(const std::vector<raft::MemberChange>& changes);
  absl::Status CheckStaysAble(const std::vector<raft::MemberChange>& changes) const;
  absl::Status CheckIsThere(const std::vector<raft::MemberChange>& changes) const;
  void AddMembersTo(NodeStatus& status) const;
  bool HasLeft() const;
  bool IsRemoved() const;
  std::string WhyRemoved() const;
  void FollowRemoval();
  void AskWhetherRemoved();

  // node_settings.cc
  void FollowSettings();
  absl::Status CheckLeads() const;
  absl::StatusOr<v1::ChangeSettingsReply> ChangeSettingsNow(const kv::SettingValues& values);
  absl::StatusOr<v1::PurgeSomeReply> PurgeSomeNow(const v1::PurgeSomeRequest& request);
  void AddSettingsTo(NodeStatus& status) const;

  // node_key_change.cc. What a member has told of its keys counts this long.
  static constexpr uint64_t kKeysFresh_ns = 3'000'000'000;
  // As the configuration and its key files have them: `nodes.cluster` before it is derived for the recovery generation.
  struct ConfiguredKeys {
    NodeKeys nodes{};
    std::vector<NamedClientConfig> clients{};
  };
  static std::vector<NamedClient> NamedClientsOf(const NodeConfig& config);
  absl::StatusOr<v1::Keys> ChangeKeys(const ConfiguredKeys& keys, bool force);
  std::vector<MemberKeys> KeysOfMembers() const;
  v1::Keys KeysNow() const;
  void FollowKeys();
  void FollowTermLimit();

  NodeConfig config_;
  const uint64_t available_memory_bytes_;
  std::unique_ptr<storage::LogStorage> storage_;
  std::unique_ptr<IdentityKeeper> identity_;
  std::unique_ptr<UdpSocket> peer_socket_;
  std::unique_ptr<UdpSocket> client_socket_;
  std::unique_ptr<SourceLimits> sources_;
  std::unique_ptr<MemcachedFrontEnd> memcached_;  // if it is configured
  std::mt19937_64 random_;
  SecretNumbers secrets_;
  uint64_t now_ns_;
  uint64_t started_ns_;
  Peers peers_;
  FrontEnd front_end_;
  Pushback pushback_;
  BusyShare busy_;
  Announcer announcer_;
  kv::Replica replica_;
  Turn turn_;
  std::unique_ptr<Offloads> offloads_;
  Readiness readiness_;
  // The members that all parts know: epoch, the members to talk to, committed.
  std::optional<std::tuple<uint32_t, uint32_t, uint32_t>> followed_members_;
  raft::MembershipAnswer membership_answer_;  // the last
  // What the memcached front end goes by: how many members, and the version of the settings.
  std::optional<std::pair<size_t, uint64_t>> followed_settings_;
  wire::KeyRing configured_cluster_keys_;  // config_.cluster_keys are derived from them
  absl::Mutex reloading_keys_;             // one reload at a time: a later one reads later files
  uint64_t asked_for_keys_ns_ = 0;
  bool keys_are_wanted_ = false;  // an administrator asks which keys the members have
  uint64_t key_changes_ = 0;
  raft::TermLimit term_limit_;
  uint64_t elections_won_ = 0;
  uint64_t resigns_heard_ = 0;
  uint64_t stalls_heard_ = 0;
  uint64_t led_since_ns_ = 0;
  uint64_t asked_again_ns_ = 0;   // whether it is a member
  uint64_t leaderless_since_ns_;  // since when no leader is known; 0: one is
  ElectionSpans election_spans_;
  Incidents incidents_;
  LoopTurns turns_;
  uint64_t durable_ = 0;     // the last of TakeDurable()
  bool came_ = false;        // beside datagrams, in this turn: a durable write, another thread's wake-up
  uint64_t worked_ns_ = 0;   // when a datagram last came, or its turn ended
  uint64_t asked_ns_ = 0;    // when a client's or a member's request last came
  uint64_t stop_by_ns_ = 0;  // 0: no stop was requested
  uint64_t hand_over_again_ns_ = 0;
  raft::NodeId handed_over_to_;  // that did not come about

  EventFd wake_;
  std::atomic<bool> stop_requested_ = false;
  int epoll_ = -1;
  std::array<epoll_event, 8> ready_{};  // by the last poll
  int ready_count_ = 0;
  uint64_t polled_ns_ = 0;  // when that began; 0: no poll knows
  absl::Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  std::optional<NodeStatus> last_status_ ABSL_GUARDED_BY(mutex_);  // that was asked for
  std::unique_ptr<Snapshots> snapshots_;                           // last: its threads wake the loop
};

template <typename Result>
std::optional<Result> Node::Ask(std::function<Result()> question) {
  struct Shared {
    net::SteadyNotification done;
    Result result;
  };
  auto shared = std::make_shared<Shared>();
  if (!Post([shared, question = std::move(question)] {
        shared->result = question();
        shared->done.Notify();
      })) {
    return std::nullopt;
  }
  if (!shared->done.WaitFor(kControlTimeout)) return std::nullopt;
  return std::move(shared->result);
}

}  // namespace hedgerow::node
