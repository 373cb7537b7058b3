// SPDX-License-Identifier: Apache-2.0
//
// A simulated node: the real replica (core, store, router) and the real order of a turn (node::Turn) on a simulated
// disk, network and clock. A turn takes a while, in which what comes waits.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/kv/replica.h"
#include "cluster/node/turn/turn.h"
#include "cluster/offload/kernel_bridge.h"
#include "cluster/sim/disk.h"
#include "cluster/sim/kernel_model.h"
#include "cluster/sim/sealed_link.h"
#include "cluster/sim/snapshots.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Server : public kv::ReplicaHost, private node::TurnHost {
 public:
  Server(World& world, raft::NodeId id);

  raft::NodeId id() const { return id_; }
  bool up() const { return replica_.has_value(); }
  bool paused() const { return paused_; }
  // It has been told that it is not the log that the others knew, and takes part in nothing any more.
  bool lost() const { return lost_; }
  const raft::Raft& raft() const { return replica_->raft(); }
  const kv::StateMachine& state() const { return replica_->state(); }
  kv::Replica& replica() { return *replica_; }
  Disk& disk() { return disk_; }
  Snapshots& snapshots() { return snapshots_; }

  void Start();
  // Of its process; or of the host, which forgets what is not on its disk.
  void Crash(bool power_cut);
  // While it is down: its disk holds this from now on, and its kernel nothing.
  void Recover(const StoredSnapshot& beginning);
  // Its process ends, and its folder is an older copy when it starts again, which the others should notice.
  void PutFolderBack(Disk::Copy copy, KnownCopies known_copies);
  // No node believes a node with another log, so it is none of the nodes that may not contradict themselves or
  // each other.
  bool MayBeHeard() const;
  const KnownCopies& known_copies() const { return known_copies_; }
  // Its process ends, and all that it has stored is removed.
  void EmptyFolder();
  // Whether it has heard this node, and so recorded its log.
  bool Knows(raft::NodeId other) const { return known_copies_.CopyOf(other) != 0; }
  // What a restored log's snapshot holds.
  std::unique_ptr<kv::StateMachine> StateOf(const raft::RestoredState& log);
  void Pause() { paused_ = true; }
  // Its machine stands still, with its clock or not. What comes waits before it, and has just come when it goes
  // on.
  void StandStill(bool clock_too);
  void Resume();
  // An administrator asks it for other settings.
  void ChangeSettings(kv::SettingValues values);
  // Of the wall; nothing may go by it.
  void JumpClock(int64_t by_ns) { wall_offset_ns_ += by_ns; }

  // From the network. Nothing reaches a node that is down; what reaches one that stands still waits in its
  // socket.
  void ArriveFromPeer(raft::Message message, uint64_t copy_id);
  void ArriveDatagram(uint64_t from, const std::string& bytes);
  void ArriveRequest(kv::Request request);
  void ArriveForwardAnswer(raft::NodeId from, kv::Answer answer);
  void ArriveResignation(const raft::LeaderResigns& hint);
  void ArriveStallHint(const raft::LeaderStalled& hint);
  // From an administrator: a transfer, a change of membership.
  void Post(decltype(raft::Event::what) what);

  // From its own threads: there is something for the loop. It turns now, or once it can.
  void Wake();
  // Within a turn.
  void ReceiveSnapshot(const raft::SnapshotReceived& received, const std::vector<std::string>& chunks);

  // From and for its kernel part.
  void ArriveFromKernel(uint64_t arrived_ns, raft::Message message);
  void SendToPeer(raft::Message message);
  void AddCounters();  // of this incarnation to the world's
  uint64_t last_turn_ns() const { return last_turn_ns_; }
  // What the core tolerated in that turn: the lease is no shorter.
  uint64_t last_turn_tolerated_ns() const { return last_turn_tolerated_ns_; }

 private:
  // kv::ReplicaHost
  uint64_t Now_ns() override;
  uint64_t StampClock_ns() override;
  uint64_t Random() override;
  uint64_t Secret() override { return Random(); }
  void Persist(raft::Persist persist) override { turn_->Persist(std::move(persist)); }
  void Send(raft::Message message) override;
  void Send(kv::Answer answer) override;
  void Send(kv::Forward forward) override;
  void BecameLeader() override;
  void LeaderIs(raft::NodeId, raft::Term) override {}
  void SnapshotNeeded(raft::NodeId to, raft::LogIndex at_least) override { snapshots_.Needed(to, at_least); }
  void Stepped(const raft::Outputs& outputs) override;
  void Applied(raft::LogIndex index, const kv::StateMachine& state) override;
  void MembershipAnswered(const raft::MembershipAnswer& answer) override;
  void ConfigurationIs(const raft::Configuration& configuration) override;

  // node::TurnHost
  void TakeFromPeers() override { Take(from_peers_); }
  void TakeFromClients() override { Take(from_clients_); }
  void TakePosted() override { Take(posted_); }
  void FlushPeers() override;
  void FlushClients() override;
  void WriteLog(raft::Persist persist) override;
  uint64_t TakeDurable() override { return disk_.durable_sequence(); }
  void TurnSnapshots() override { snapshots_.Turn(); }
  void FollowReplica() override;

  bool Believes(raft::NodeId from, uint64_t copy_id);
  bool IsRefusedBy(raft::NodeId other) const;
  using Inbox = std::deque<std::function<void()>>;  // what is to be done in the next turn
  void Arrive(Inbox& inbox, std::function<void()> take);
  static void Take(Inbox& inbox);
  // When what comes now came, as this node is to see it.
  std::function<uint64_t()> ArrivedNow();
  uint64_t StoodStill_ns() const;
  raft::Configuration ConfiguredMembers();
  kv::HashSecret MapSecret() const;
  std::unique_ptr<kv::StateMachine> Load(const std::vector<std::string>& chunks);
  void StartBridge();
  std::vector<raft::NodeId> KernelMembers() const;
  void TakeResignation(const raft::LeaderResigns& hint);
  // It has sent a vote.
  void Voted(const raft::Message& message);
  void IsLost(raft::NodeId by);
  void CheckProposedOnce(const raft::Outputs& outputs);
  void RunTurn();
  void WakeAgain();
  // What a loop with nothing to do does before it sleeps.
  void WriteHeldWhenIdle();
  void Rearm();

  World& world_;
  raft::NodeId id_;
  Disk disk_;
  Snapshots snapshots_;
  std::optional<KernelModel> kernel_;
  std::optional<kv::Replica> replica_;  // what a crash destroys
  std::optional<offload::KernelBridge> bridge_;
  std::optional<node::Turn> turn_;
  std::optional<SealedLink> link_;  // where messages travel as datagrams
  uint64_t incarnations_ = 0;
  bool paused_ = false;
  bool lost_ = false;
  std::optional<uint64_t> stands_since_ns_;  // its machine
  bool clock_stands_ = false;
  uint64_t stood_ns_ = 0;  // what its clock lacks, of earlier standstills
  KnownCopies known_copies_{Disk::kFirstCopy};
  bool put_back_ = false;
  Inbox from_peers_;
  Inbox from_clients_;
  Inbox posted_;
  std::vector<std::function<void()>> to_peers_;  // what the next flush sends
  std::vector<std::function<void()>> to_clients_;
  bool turning_ = false;
  bool wakes_ = false;          // a turn is due once the last one is over
  uint64_t busy_until_ns_ = 0;  // when the last one is over
  uint64_t turns_ = 0;
  uint64_t last_turn_ns_ = 0;
  uint64_t last_turn_tolerated_ns_ = 0;
  uint64_t armed_ns_ = UINT64_MAX;
  int64_t wall_offset_ns_ = 0;
};

}  // namespace hedgerow::sim
