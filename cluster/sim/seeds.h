// SPDX-License-Identifier: Apache-2.0
//
// Many seeds, on several threads. Each simulation has its thread to itself and shares nothing.

#pragma once

#include <cstdint>
#include <functional>

#include "cluster/sim/simulation.h"

namespace hedgerow::sim {

struct SeedRange {
  uint64_t first = 1;
  uint64_t count = 1;
  uint64_t seconds = 30;
  unsigned threads = 1;
  bool stop_at_violation = false;
  int planted_bug = 0;  // 0: none; anything else only where mistakes are planted (bugs/planted.h)
};

struct SeedTotals {
  uint64_t runs = 0;
  uint64_t violations = 0;
  uint64_t committed = 0;
  uint64_t elections = 0;
  uint64_t crashes = 0;
  uint64_t operations = 0;
  uint64_t answers = 0;
  uint64_t kernel_answers = 0;
  uint64_t kernel_appends = 0;
  uint64_t kernel_votes = 0;
  uint64_t kernel_answers_late = 0;
  uint64_t changes = 0;  // of membership
  uint64_t changes_refused = 0;
  uint64_t leaders_removed = 0;
  uint64_t settings_changes = 0;
  uint64_t state_checks = 0;
  uint64_t snapshots_taken = 0;
  uint64_t snapshots_installed = 0;
  uint64_t transfers_resumed = 0;
  uint64_t quorum_checks = 0;
  uint64_t appends_reordered = 0;
  uint64_t proposals_known = 0;
  uint64_t recoveries = 0;  // times that the cluster was recovered
  uint64_t folders_emptied = 0;
  uint64_t hung_leaders = 0;      // leaders whose disk hung for good
  uint64_t folders_put_back = 0;  // of followers
  uint64_t sealed_pieces = 0;     // of long messages
  uint64_t sealed_drops = 0;      // datagrams that were not believed
  uint64_t sessions_evicted = 0;  // for others, on all nodes
  uint64_t forged = 0;            // requests under a client's session, without its token
  double seconds = 0;
};

// `each` is called once per run, never by two threads at once.
SeedTotals RunSeeds(const SeedRange& range, const std::function<void(const Report&)>& each);

}  // namespace hedgerow::sim
