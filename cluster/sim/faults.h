// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong, and when: draws faults as the plan says, and takes each back after a while.

#pragma once

#include <cstdint>
#include <vector>

#include "cluster/sim/world.h"

namespace hedgerow::sim {

class Faults {
 public:
  explicit Faults(World& world) : world_(world), plan_(world.plan.faults) {}

  void Start();
  // From now on nothing fails, and what failed is repaired.
  void Calm();
  // The worst moment to die: nothing of the new term is committed yet.
  void NewLeader(Server& server);
  // Another bad moment: what this node has promised may not be on its disk yet.
  void Voted(Server& server);
  // It dies, and comes back.
  void CrashFor(Server& server, uint64_t duration_ns, bool power_cut);
  // Something has just become of a snapshot: begun, written, received, installed.
  void SnapshotMoment(Server& server);

 private:
  using Fault = void (Faults::*)(uint64_t duration_ns);

  void Next();
  uint64_t Duration_ns();
  Server& Target();

  void Partition(uint64_t duration_ns);
  void OneWay(uint64_t duration_ns);
  void SlowLinks(uint64_t duration_ns);
  void Crash(uint64_t duration_ns);
  void PowerCut(uint64_t duration_ns);
  void Pause(uint64_t duration_ns);
  void StandStill(uint64_t duration_ns);
  void SlowDisk(uint64_t duration_ns);
  void FullDisk(uint64_t duration_ns);
  void HungDisk(uint64_t duration_ns);
  void SizeFilter(uint64_t duration_ns);
  void ClockJump(uint64_t duration_ns);
  void Transfer(uint64_t duration_ns);
  void Resignation(uint64_t duration_ns);
  void EmptyFolder(uint64_t duration_ns);

  void CutFor(uint64_t from, uint64_t to, uint64_t duration_ns);

  World& world_;
  FaultPlan plan_;
  std::vector<Fault> faults_;
  uint64_t emptied_ = 0;
  bool calm_ = false;
};

}  // namespace hedgerow::sim
