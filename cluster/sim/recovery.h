// SPDX-License-Identifier: Apache-2.0
//
// A bad day: all nodes are down, and an operator recovers the cluster from what one of them has left
// (docs/adr/0019). It is the one with the longest log by (term, index), which holds everything that was ever
// acknowledged, or another one that does; so whatever is lost is a fault. In memory mode one node's process has
// died and the others' hosts have lost their power, so they are LOST and come back as other incarnations; but
// never a day on which no node is left that has all that was committed, since then writes are lost by consent.
// Packets of the cluster before arrive for seconds after.

#pragma once

#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Recovery {
 public:
  explicit Recovery(World& world) : world_(world) {}

  void Start();
  void Calm() { calm_ = true; }
  // A node leads.
  void NewLeader(Server& server);
  // A node is about to get a vote.
  void Voted(raft::NodeId candidate);

 private:
  void Next();
  void Recover(bool worst);
  Server& Longest();
  // Null, in memory mode alone: no log has all of it.
  Server* RecoverySeed(bool shortest);
  const Server* Leader() const;
  void StartAgain(const Server* led);

  World& world_;
  raft::NodeId led_;    // before the cluster was recovered at its worst moment, and not since
  bool alone_ = false;  // it was cut off since, as far as it speaks
  bool calm_ = false;
};

}  // namespace hedgerow::sim
