// SPDX-License-Identifier: Apache-2.0
//
// A simulated node: the real replica (core, store, desk) on a simulated disk, network and clock.

#ifndef HEDGEROW_CLUSTER_SIM_SERVER_H_
#define HEDGEROW_CLUSTER_SIM_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "cluster/kv/replica.h"
#include "cluster/sim/disk.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Server : public kv::ReplicaHost {
 public:
  Server(World& world, raft::NodeId id);

  raft::NodeId id() const { return id_; }
  bool up() const { return replica_.has_value(); }
  bool paused() const { return paused_; }
  const raft::Raft& raft() const { return replica_->raft(); }
  const kv::StateMachine& state() const { return replica_->state(); }
  Disk& disk() { return disk_; }

  void Start();
  void Crash();
  void Pause() { paused_ = true; }
  void Resume();
  void JumpClock(int64_t by_ns) { wall_offset_ns_ += by_ns; }

  // From the network. Nothing reaches a node that is down; what reaches one that stands still waits in its
  // socket.
  void ArriveFromPeer(raft::Message message);
  void ArriveRequest(kv::Request request);
  void ArriveForwardAnswer(raft::NodeId from, kv::Answer answer);
  // From its own host: transfer, resignation.
  void Feed(decltype(raft::Event::what) what);

 private:
  // kv::ReplicaHost
  uint64_t Now_ns() override;
  uint64_t StampClock_ns() override;
  uint64_t Random() override;
  void Persist(raft::Persist persist) override { disk_.Write(std::move(persist)); }
  void Send(raft::Message message) override;
  void Send(kv::Answer answer) override;
  void Send(kv::Forward forward) override;
  void BecameLeader() override;
  void LeaderIs(raft::NodeId, raft::Term) override {}
  void Stepped(const raft::Outputs& outputs) override;
  void Applied(raft::LogIndex index, const kv::StateMachine& state) override;

  void Arrive(std::function<void(uint64_t arrived_ns)> handle);
  void Settle();
  void Rearm();
  void Wake(uint64_t life);

  World& world_;
  raft::NodeId id_;
  Disk disk_;
  std::optional<kv::Replica> replica_;  // what a crash destroys
  uint64_t lives_ = 0;
  bool paused_ = false;
  std::deque<std::function<void()>> socket_;
  bool settling_ = false;
  uint64_t armed_ns_ = UINT64_MAX;
  int64_t wall_offset_ns_ = 0;
};

}  // namespace hedgerow::sim

#endif  // HEDGEROW_CLUSTER_SIM_SERVER_H_
