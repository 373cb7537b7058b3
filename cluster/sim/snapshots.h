// SPDX-License-Identifier: Apache-2.0
//
// A simulated node's snapshots: taken slice by slice while the node works, written to its disk, sent to
// followers in pieces that are lost, doubled and late, received, and installed; with crashes in the midst of
// any of it. A transfer that stalls goes on where it was; one that stalls for too long has failed. What
// cluster/node does with files and streams is done here with what the disk and the network of the simulator
// allow.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/raft/types.h"
#include "cluster/sim/disk.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Snapshots {
 public:
  Snapshots(World& world, Server& server) : world_(world), server_(server) {}

  // The process is gone, and what was not finished with it.
  void Crashed();
  // Within each turn, when the replica has settled; settles it again. Begins one if it is time, and does what the
  // other threads have left for the loop.
  void Turn();
  // The core asks for one to be sent; done in the next Turn.
  void Needed(raft::NodeId to, raft::LogIndex at_least) { needed_.emplace_back(to, at_least); }

 private:
  struct Sending {
    uint64_t number = 0;  // of this transfer, among all
    StoredSnapshot what;
    raft::Term term{};
    uint64_t next = 0;
    uint64_t progress_ns = 0;
  };
  struct Receiving {
    raft::EntryId last{};
    std::vector<std::string> chunks;
    bool complete = false;
  };

  // For the loop, soon, from another thread.
  void Leave(std::function<void()> what);
  void Begin();
  void Slice();
  void WriteTaken();
  void SendNeeded(raft::NodeId to, raft::LogIndex at_least);

  void Push(raft::NodeId to, uint64_t number);
  void Watch(raft::NodeId to, uint64_t number);
  void ArriveHave(raft::NodeId from, uint64_t number, uint64_t have);
  void ArriveInstalled(raft::NodeId from, uint64_t number);
  Sending* Find(raft::NodeId to, uint64_t number);
  void End(raft::NodeId to, bool delivered);

  void ArrivePiece(raft::NodeId from, const Sending& sending, uint64_t place);
  void Complete(raft::NodeId from, uint64_t number, raft::Term term, StoredSnapshot what);
  void Install(raft::NodeId from, uint64_t number, raft::Term term, const StoredSnapshot& what);

  World& world_;
  Server& server_;
  uint64_t incarnation_ = 0;
  std::deque<std::function<void()>> left_;
  std::vector<std::pair<raft::NodeId, raft::LogIndex>> needed_;
  std::optional<raft::Snapshot> taking_;
  std::vector<std::string> taken_;
  std::map<raft::NodeId, Sending> sending_;
  Receiving receiving_;
};

}  // namespace hedgerow::sim
