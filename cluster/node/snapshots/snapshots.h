// SPDX-License-Identifier: Apache-2.0
//
// A node's snapshots as its loop uses them: takes its own, sends them to followers whose entries the log does
// not hold any more, and installs what a leader has sent. Files, connections and the making of a state machine
// are other threads'; here they meet the replica, between turns. On the loop's thread but for what the receiver
// calls.
//
// A leader waits a while with its next snapshot for a follower that is getting one: else the log would have
// moved on by the time that the follower is there, and it would need another, for ever. It waits only while the
// follower makes progress, and no longer than until its log is kHeldTimes as long as it should be: a slow or
// dead follower costs so much memory and disk, and no more.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cluster/kv/replica.h"
#include "cluster/node/config/config.h"
#include "cluster/node/peers/peers.h"
#include "cluster/node/snapshots/deferred_reclamation.h"
#include "cluster/node/snapshots/snapshot_taker.h"
#include "cluster/node/status/status.h"
#include "cluster/offload/kernel_bridge.h"
#include "cluster/storage/log_storage.h"
#include "cluster/transfer/receiver.h"
#include "cluster/transfer/sender.h"

namespace hedgerow::node {

class Snapshots final : private transfer::ReceiverHost {
 public:
  static constexpr uint64_t kHeldTimes = 4;

  using JudgeOffer = std::function<absl::Status(const transfer::Offered&)>;
  // Listens on the peer address, alone or not: a cluster of one may grow. `now_ns` makes slices end, `wake`
  // makes the loop turn, from any thread; `judge` has the loop do MayTake. `storage` outlives it.
  static absl::StatusOr<std::unique_ptr<Snapshots>> Open(const NodeConfig& config, const storage::LogStorage& storage,
                                                         const raft::Snapshot& restored, uint64_t incarnation,
                                                         std::function<uint64_t()> now_ns, std::function<void()> wake,
                                                         JudgeOffer judge);
  ~Snapshots() override;

  // What the replica asks of its host (kv::ReplicaHost); done at the next Turn.
  void Needed(raft::NodeId to) { needed_.push_back(to); }
  void Retire(std::unique_ptr<kv::StateMachine> state) { reclamation_.Take(std::move(state)); }

  // Every turn, when the replica has settled; settles it again. `bridge`: null where the kernel does nothing.
  void Turn(uint64_t now_ns, kv::Replica& replica, const Peers& peers, offload::KernelBridge* bridge);
  uint64_t next_deadline_ns() const { return taker_.next_deadline_ns(); }
  // Begins one; the index that it will have at least.
  raft::LogIndex Ask(const kv::Replica& replica);
  // Whether what another node offers would be of use. What changes meanwhile is looked at again by the core.
  static absl::Status MayTake(uint64_t now_ns, const transfer::Offered& offered, const kv::Replica& replica,
                              Peers& peers);
  // Of transfers that begin from now on.
  void SetKeys(const wire::KeyRing& keys) { keys_.Set(keys); }
  // `unix_s`: the time of certificates.
  void AddTo(uint64_t now_ns, int64_t unix_s, const raft::Raft& raft, NodeStatus& status) const;

 private:
  // A follower that has got a snapshot and is not up with the log yet.
  struct Behind {
    raft::LogIndex until{};  // where the log ended by then
    raft::LogIndex match{};
    uint64_t moved_ns = 0;
  };
  // Between the receiver's thread and the loop.
  struct Arrived {
    transfer::Received received;
    absl::Status taken;
    absl::Notification done;
  };
  struct Ended {
    raft::NodeId to{};
    raft::LogIndex index{};
    absl::Status status;
  };

  // Of the peers' TCP port, and what is made of them.
  struct Tls {
    Tls(const PeerTlsConfig& config, std::string name, operate::TlsMaterial first)
        : files(config.files, std::move(name), std::move(first)), peers(files, config.name) {}
    operate::TlsFiles files;
    transfer::PeerTls peers;
  };

  Snapshots(const NodeConfig& config, std::unique_ptr<Tls> tls, const storage::LogStorage& storage,
            const raft::Snapshot& restored, uint64_t incarnation, std::function<uint64_t()> now_ns,
            std::function<void()> wake, JudgeOffer judge);

  // transfer::ReceiverHost: the receiver's threads.
  bool MayCall(const net::IpAddress& source) override;
  absl::Status Judge(const transfer::Offered& offered) override { return judge_(offered); }
  absl::Status Take(transfer::Received received) override;

  bool Wanted(uint64_t now_ns, const kv::Replica& replica);
  bool FollowerOnItsWay(uint64_t now_ns, const raft::Raft& raft);
  void FollowRole(const raft::Raft& raft);
  void FollowMembers(const raft::Raft& raft);
  void FollowPeers(const Peers& peers);
  void MendOutside(uint64_t now_ns, const kv::Replica& replica);
  void SendNeeded(kv::Replica& replica, const Peers& peers);
  void TakeEnded(uint64_t now_ns, kv::Replica& replica);
  void AddTlsTo(int64_t unix_s, NodeStatus& status) const;
  void Install(uint64_t now_ns, kv::Replica& replica, offload::KernelBridge* bridge);

  const raft::NodeId self_;
  transfer::SharedKeys keys_;
  const std::unique_ptr<Tls> tls_;  // null: there is none
  const storage::SnapshotFolder folder_;
  const storage::LogStorage& storage_;
  const std::function<uint64_t()> now_ns_;
  const std::function<void()> wake_;
  const JudgeOffer judge_;
  SnapshotTaker taker_;
  DeferredReclamation reclamation_;
  std::vector<raft::NodeId> needed_;
  const std::optional<net::Networks> peer_clients_;
  const bool on_loopback_;
  std::pair<uint32_t, uint32_t> members_{};  // by epoch and mask, as it last looked
  std::optional<uint64_t> addresses_version_{};
  raft::Term leads_in_{};  // not set: it does not lead, and sends nothing
  std::map<raft::NodeId, Behind> behind_;
  std::map<raft::NodeId, uint64_t> mend_again_ns_;  // of members whose state is wrong
  uint64_t installed_ = 0;

  // Of the last one here.
  uint64_t size_bytes_ = 0;
  uint64_t written_ns_ = 0;

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<NetAddress> addresses_ ABSL_GUARDED_BY(mutex_);  // members'
  std::shared_ptr<Arrived> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ended> ended_ ABSL_GUARDED_BY(mutex_);  // at most one of each member and transfer
  std::atomic<bool> something_ = false;               // arrived_ or ended_

  // Last: their threads use what stands above.
  std::unique_ptr<transfer::Sender> sender_;
  std::unique_ptr<transfer::Receiver> receiver_;
};

}  // namespace hedgerow::node
