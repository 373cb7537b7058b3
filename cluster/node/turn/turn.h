// SPDX-License-Identifier: Apache-2.0
//
// One turn of a node's loop: in which order a replica, its kernel part, its log, its peers and its clients have
// their turns. The order decides what leaves before what is durable, and what the kernel part may say meanwhile, so
// it exists once: a node runs it on sockets and a disk (node.cc), the simulator on its own (cluster/sim/server.cc).
// On the loop's thread.

#pragma once

#include <cstdint>

#include "cluster/kv/replica.h"
#include "cluster/node/turn/log_writer.h"
#include "cluster/offload/kernel_bridge.h"
#include "cluster/raft/outputs.h"

namespace hedgerow::node {

// What a turn is made of. Nothing here settles the replica, but for TurnSnapshots.
class TurnHost {
 public:
  virtual ~TurnHost() = default;

  // Gives what has come: messages and hints to Turn::Receive, everything else to the replica.
  virtual void TakeFromPeers() = 0;
  virtual void TakeFromClients() = 0;
  // What other threads have asked the loop to do.
  virtual void TakePosted() = 0;
  // What the replica has sent since the last flush leaves.
  virtual void FlushPeers() = 0;
  virtual void FlushClients() = 0;
  // Begins a write, after all writes before it.
  virtual void WriteLog(raft::Persist persist) = 0;
  // The sequence number up to which the log is durable.
  virtual uint64_t TakeDurable() = 0;
  // Takes, sends and installs snapshots, and settles the replica.
  virtual void TurnSnapshots() = 0;
  // The turn's last work: what follows the replica's term, members and settings.
  virtual void FollowReplica() = 0;
};

class Turn {
 public:
  using Durability = offload::Durability;

  // Both outlive it.
  Turn(TurnHost& host, kv::Replica& replica, Durability durability);

  // Null, as at the start: the node has no kernel part.
  void SetBridge(offload::KernelBridge* bridge) { bridge_ = bridge; }

  // False: the kernel part had nothing new.
  bool Run(uint64_t now_ns);

  // From TakeFromPeers.
  void Receive(uint64_t arrived_ns, raft::Message message);
  void Receive(const raft::LeaderResigns& hint);
  // kv::ReplicaHost::Persist.
  void Persist(raft::Persist persist);

  // Writes that wait for more, until WriteHeld: at the latest before the loop sleeps.
  bool holds_writes() const { return writer_.holds(); }
  void WriteHeld();
  // As a turn does it; for a node that stops.
  void FlushPeers();

 private:
  bool MayWriteLater() const;
  void TakeDurable();

  TurnHost& host_;
  kv::Replica& replica_;
  offload::KernelBridge* bridge_ = nullptr;
  Durability durability_;
  LogWriter writer_;
  uint64_t now_ns_ = 0;
  uint64_t durable_ = 0;  // the last sequence number that the replica was told of
};

}  // namespace hedgerow::node
