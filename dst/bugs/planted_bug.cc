// SPDX-License-Identifier: Apache-2.0
//
// Plants the mistake that HEDGEROW_SEEDED_BUG names (the names of cluster/sim/bugs.h) before main begins:
// main's thread runs the node's loop, and with it all of raft, kv and coupling. Linked into hedgerow-node-bugs
// alone.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cluster/raft/seeded_bugs.h"
#include "cluster/sim/bugs.h"

namespace hedgerow {
namespace {

bool PlantFromEnvironment() {
  const char* const name = std::getenv("HEDGEROW_SEEDED_BUG");
  if (name == nullptr) return false;
  const std::optional<Bug> bug = sim::FindBug(name);
  if (!bug.has_value()) {
    std::fprintf(stderr, "hedgerow-node-bugs: there is no bug '%s'\n", name);
    std::exit(2);
  }
  planted_bug = *bug;
  std::fprintf(stderr, "hedgerow-node-bugs: planted %s\n", name);
  return true;
}

[[maybe_unused]] const bool planted = PlantFromEnvironment();

}  // namespace
}  // namespace hedgerow
