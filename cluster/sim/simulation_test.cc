// SPDX-License-Identifier: Apache-2.0
//
// The cluster under faults. A seed that fails is replayed with `hedgerow-sim --seed N --trace`. A seed means
// the same run only as long as nothing draws other numbers, so what it showed becomes a golden script or a test
// of the core.
#include "cluster/sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "cluster/sim/seeds.h"

namespace hedgerow::sim {
namespace {

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  const Report first = Simulate({.seed = 7, .seconds = 5, .trace = {}});
  const Report second = Simulate({.seed = 7, .seconds = 5, .trace = {}});
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.happened, second.happened);
  EXPECT_NE(first.digest, Simulate({.seed = 8, .seconds = 5, .trace = {}}).digest);
}

// A thousand, unless HR_SIM_SEEDS says how many: `./dev test` 300 of them; a sanitizer makes each take ten times as
// long.
uint64_t Seeds() {
  const char* const text = std::getenv("HR_SIM_SEEDS");
  return text == nullptr ? 1000 : std::max(1ul, std::strtoul(text, nullptr, 10));
}

TEST(Simulation, AThousandSeedsOfThirtySecondsViolateNothing) {
  const auto begin = std::chrono::steady_clock::now();
  const SeedTotals totals = RunSeeds(
      {.first = 1, .count = Seeds(), .seconds = 30, .threads = std::max(1u, std::thread::hardware_concurrency())},
      [](const Report& report) { EXPECT_EQ(report.violation, "") << "seed " << report.seed << ": " << report.plan; });
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  printf("%.0f simulated seconds per second; %llu operations, %llu answered, %llu elections, %llu crashes\n",
         totals.seconds / wall_s, static_cast<unsigned long long>(totals.operations),
         static_cast<unsigned long long>(totals.answers), static_cast<unsigned long long>(totals.elections),
         static_cast<unsigned long long>(totals.crashes));
  printf("kernel parts: %llu answers (%llu of a longer lease), %llu appends accepted, %llu votes given\n",
         static_cast<unsigned long long>(totals.kernel_answers),
         static_cast<unsigned long long>(totals.kernel_answers_late),
         static_cast<unsigned long long>(totals.kernel_appends), static_cast<unsigned long long>(totals.kernel_votes));
  printf("membership: %llu changes, %llu refused, %llu leaders removed\n",
         static_cast<unsigned long long>(totals.changes), static_cast<unsigned long long>(totals.changes_refused),
         static_cast<unsigned long long>(totals.leaders_removed));
  printf("snapshots: %llu taken, %llu installed, %llu transfers resumed\n",
         static_cast<unsigned long long>(totals.snapshots_taken),
         static_cast<unsigned long long>(totals.snapshots_installed),
         static_cast<unsigned long long>(totals.transfers_resumed));
  printf("%llu times a leader asked whether it may go on\n", static_cast<unsigned long long>(totals.quorum_checks));
  printf("%llu appends were stored from reorder buffers, %llu requests not proposed again\n",
         static_cast<unsigned long long>(totals.appends_reordered),
         static_cast<unsigned long long>(totals.proposals_known));
  printf("%llu recoveries, %llu folders emptied\n", static_cast<unsigned long long>(totals.recoveries),
         static_cast<unsigned long long>(totals.folders_emptied));
  printf("%llu leaders' disks hung for good, %llu folders put back; %llu pieces, %llu datagrams not believed\n",
         static_cast<unsigned long long>(totals.hung_leaders), static_cast<unsigned long long>(totals.folders_put_back),
         static_cast<unsigned long long>(totals.sealed_pieces), static_cast<unsigned long long>(totals.sealed_drops));
  printf("%llu sessions ended for others, %llu forged requests\n",
         static_cast<unsigned long long>(totals.sessions_evicted), static_cast<unsigned long long>(totals.forged));
  // Faults that stop everything would violate nothing, and show nothing. A few runs need not have every kind of event.
  if (totals.runs < 100) return;
  EXPECT_GT(totals.answers, totals.operations / 2);
  EXPECT_GT(totals.kernel_appends, totals.runs * 50);
  EXPECT_GT(totals.kernel_votes, totals.runs);
  EXPECT_GT(totals.kernel_answers_late, 0u);
  EXPECT_GT(totals.snapshots_taken, totals.runs * 10);
  EXPECT_GT(totals.changes, totals.runs);
  EXPECT_GT(totals.leaders_removed, totals.runs / 10);
  EXPECT_GT(totals.settings_changes, totals.runs);
  EXPECT_GT(totals.state_checks, totals.runs * 10);
  EXPECT_GT(totals.snapshots_installed, totals.runs);
  EXPECT_GT(totals.transfers_resumed, totals.runs / 10);
  EXPECT_GT(totals.quorum_checks, totals.runs);
  EXPECT_GT(totals.appends_reordered, totals.runs);
  EXPECT_GT(totals.proposals_known, totals.runs);
  EXPECT_GT(totals.recoveries, totals.runs / 10);
  EXPECT_GT(totals.folders_emptied, totals.runs / 20);
  EXPECT_GT(totals.hung_leaders, totals.runs / 20);
  EXPECT_GT(totals.folders_put_back, totals.runs / 50);
  EXPECT_GT(totals.sealed_pieces, totals.runs);
  EXPECT_GT(totals.sealed_drops, totals.runs * 10);
  EXPECT_GT(totals.sessions_evicted, totals.runs);
  EXPECT_GT(totals.forged, totals.runs * 10);
}

}  // namespace
}  // namespace hedgerow::sim
