// SPDX-License-Identifier: Apache-2.0
//
// What is tried after the faults have ended, while clients go on: faults that never pass by themselves, one at
// a time and with everything else well, so that what must follow can be said. A leader whose disk hangs for
// good is replaced, and entries are committed meanwhile; a follower that starts with an older copy of its
// folder is not believed.

#pragma once

#include <cstdint>
#include <functional>

#include "cluster/sim/world.h"

namespace hedgerow::sim {

// The one of the latest term; null: no node leads.
Server* LeaderOf(const World& world);

class LastDays {
 public:
  // `run` lets the world go on for so long; false: something was violated.
  LastDays(World& world, std::function<bool(uint64_t duration_ns)> run) : world_(world), run_(std::move(run)) {}

  // False: something was violated.
  bool Run();

 private:
  bool IsWell() const;
  bool RunUntilWell();
  bool HangLeadersDisk();
  bool PutFolderBack();

  World& world_;
  std::function<bool(uint64_t)> run_;
};

}  // namespace hedgerow::sim
