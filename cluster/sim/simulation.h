// SPDX-License-Identifier: Apache-2.0
//
// One simulation from a seed: the same seed gives the same run, on any machine, at the same commit.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hedgerow::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  uint64_t seconds = 30;  // with faults; then the world settles
  std::function<void(const std::string&)> trace;
};

struct Report {
  uint64_t seed = 0;
  std::string violation;  // empty: none
  std::string plan;
  double seconds = 0;  // simulated
  uint64_t happened = 0;
  uint64_t digest = 0;  // of the final state: equal for equal runs
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
  uint64_t quorum_checks = 0;      // a leader asked whether it may go on
  uint64_t appends_reordered = 0;  // stored once what they had overtaken had come
  uint64_t proposals_known = 0;    // not made, since the log had them
  uint64_t recoveries = 0;         // times that the cluster was recovered
  uint64_t folders_emptied = 0;
  uint64_t hung_leaders = 0;      // leaders whose disk hung for good
  uint64_t folders_put_back = 0;  // of followers
  uint64_t sealed_pieces = 0;     // of long messages
  uint64_t sealed_drops = 0;      // datagrams that were not believed
  uint64_t sessions_evicted = 0;  // for others, on all nodes
  uint64_t forged = 0;            // requests under a client's session, without its token
};

Report Simulate(const SimulationOptions& options);

}  // namespace hedgerow::sim
