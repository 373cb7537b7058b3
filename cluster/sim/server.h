// SPDX-License-Identifier: Apache-2.0
//
// A simulated node: the real core, state machine and desk around a simulated disk, network and clock. What it
// does with the core's outputs is what cluster/node must do.

#ifndef HEDGEROW_CLUSTER_SIM_SERVER_H_
#define HEDGEROW_CLUSTER_SIM_SERVER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "cluster/kv/request_desk.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/raft.h"
#include "cluster/sim/disk.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Server {
 public:
  Server(World& world, raft::NodeId id);

  raft::NodeId id() const { return id_; }
  bool up() const { return life_.has_value(); }
  bool paused() const { return paused_; }
  const raft::Raft& raft() const { return life_->raft; }
  const kv::StateMachine& state() const { return life_->state; }
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
  // From its own host: transfer, resignation.
  void Feed(decltype(raft::Event::what) what);

 private:
  // What a crash destroys.
  struct Life {
    Life(World& world, raft::NodeId id, raft::RestoredState restored);
    raft::Raft raft;
    kv::StateMachine state;
    kv::CommittedClock clock;
    kv::RequestDesk desk;
  };

  void Arrive(std::function<void(uint64_t arrived_ns)> handle);
  void Carry(raft::Outputs& outputs);
  void Apply(const std::vector<raft::Entry>& entries);
  void SendToPeers(std::vector<raft::Message>& messages);
  void Do(std::vector<kv::Action>& actions);
  void Act(kv::Answer& answer);
  void Act(kv::Forward& forward);
  void Act(kv::ProposeCommand& propose);
  void Act(kv::StartRead& read);
  void Rearm();
  void Wake(uint64_t life);
  uint64_t ClockOfStamps_ns() const;

  World& world_;
  raft::NodeId id_;
  Disk disk_;
  std::optional<Life> life_;
  uint64_t lives_ = 0;
  bool paused_ = false;
  std::deque<std::function<void()>> socket_;
  std::deque<decltype(raft::Event::what)> todo_;
  bool busy_ = false;
  uint64_t armed_ns_ = UINT64_MAX;
  int64_t wall_offset_ns_ = 0;
  std::array<uint64_t, 64> heartbeat_sent_ns_{};  // by round
};

}  // namespace hedgerow::sim

#endif  // HEDGEROW_CLUSTER_SIM_SERVER_H_
