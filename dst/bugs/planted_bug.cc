// SPDX-License-Identifier: Apache-2.0
//
// Plants the mistake that HEDGEROW_SEEDED_BUG names (`hedgerow-sim --bug list` lists them) before main begins:
// main's thread runs the node's loop, and with it all of raft, kv and bridge. Linked into hedgerow-node-bugs
// alone.
#include <cstdio>
#include <cstdlib>

#include "cluster/sim/bugs/planted.h"

namespace hedgerow {
namespace {

bool PlantFromEnvironment() {
  const char* const name = std::getenv("HEDGEROW_SEEDED_BUG");
  if (name == nullptr) return false;
  sim::planted_bug = sim::FindPlantedBug(name);
  if (sim::planted_bug == 0) {
    std::fprintf(stderr, "hedgerow-node-bugs: there is no bug '%s'\n", name);
    std::exit(2);
  }
  std::fprintf(stderr, "hedgerow-node-bugs: planted %s\n", name);
  return true;
}

[[maybe_unused]] const bool planted = PlantFromEnvironment();

}  // namespace
}  // namespace hedgerow
