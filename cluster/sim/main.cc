// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-sim: runs the simulated cluster. Exit status: 0 nothing was violated, 1 something was, 2 wrong
// usage. With --bug it is the other way round: 0 if the planted mistake was found.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "cluster/sim/bugs/planted.h"
#include "cluster/sim/seeds.h"
#include "operate/commit.h"

ABSL_FLAG(uint64_t, seed, 1, "first seed");
ABSL_FLAG(uint64_t, seeds, 1, "how many seeds");
ABSL_FLAG(uint64_t, seconds, 30, "simulated seconds with faults per seed");
ABSL_FLAG(uint64_t, threads, 1, "threads");
ABSL_FLAG(std::string, bug, "", "plant this mistake; `list` lists them");
ABSL_FLAG(bool, trace, false, "tell everything that happens (one seed)");

namespace hedgerow::sim {
namespace {

int Trace(uint64_t seed, uint64_t seconds, int bug) {
  planted_bug = bug;
  const Report report = Simulate(
      {.seed = seed, .seconds = seconds, .trace = [](const std::string& line) { printf("%s\n", line.c_str()); }});
  printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
         report.violation.empty() ? "nothing violated" : report.violation.c_str());
  return report.violation.empty() == (bug == 0) ? 0 : 1;
}

void PrintViolation(const Report& report, const SeedRange& range, const std::string& bug) {
  printf(
      "seed %llu commit %s: VIOLATION after %.3f s: %s\n  %s\n  again: hedgerow-sim --seed %llu --seconds "
      "%llu%s%s\n",
      static_cast<unsigned long long>(report.seed), operate::kCommit, report.seconds, report.violation.c_str(),
      report.plan.c_str(), static_cast<unsigned long long>(report.seed), static_cast<unsigned long long>(range.seconds),
      bug.empty() ? "" : " --bug ", bug.c_str());
  fflush(stdout);
}

int Main() {
  const std::string name = absl::GetFlag(FLAGS_bug);
  if (name == "list") {
    for (const PlantedBug& known : PlantedBugs()) {
      printf("%-36.*s %.*s\n", static_cast<int>(known.name.size()), known.name.data(),
             static_cast<int>(known.description.size()), known.description.data());
    }
    return 0;
  }
  const int bug = name.empty() ? 0 : FindPlantedBug(name);
  if (bug == 0 && !name.empty()) {
    fprintf(stderr, "no such bug: '%s'; --bug=list lists them\n", name.c_str());
    return 2;
  }
  const SeedRange range{.first = absl::GetFlag(FLAGS_seed),
                        .count = absl::GetFlag(FLAGS_seeds),
                        .seconds = absl::GetFlag(FLAGS_seconds),
                        .threads = static_cast<unsigned>(std::clamp<uint64_t>(absl::GetFlag(FLAGS_threads), 1, 64)),
                        .stop_at_violation = bug != 0,
                        .planted_bug = bug};
  if (absl::GetFlag(FLAGS_trace)) return Trace(range.first, range.seconds, bug);
  printf("seeds %llu to %llu, %llu simulated seconds each, commit %s\n", static_cast<unsigned long long>(range.first),
         static_cast<unsigned long long>(range.first + range.count - 1), static_cast<unsigned long long>(range.seconds),
         operate::kCommit);
  const auto begin = std::chrono::steady_clock::now();
  const SeedTotals totals = RunSeeds(range, [&](const Report& report) {
    if (!report.violation.empty()) PrintViolation(report, range, name);
  });
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  printf(
      "%llu runs, %llu violations; %llu operations, %llu answered; %llu entries committed; %llu elections, "
      "%llu "
      "crashes\n%.0f simulated seconds in %.1f s: %.0f simulated seconds per second on %u threads\n",
      static_cast<unsigned long long>(totals.runs), static_cast<unsigned long long>(totals.violations),
      static_cast<unsigned long long>(totals.operations), static_cast<unsigned long long>(totals.answers),
      static_cast<unsigned long long>(totals.committed), static_cast<unsigned long long>(totals.elections),
      static_cast<unsigned long long>(totals.crashes), totals.seconds, wall_s, totals.seconds / wall_s, range.threads);
  printf("kernel parts: %llu answers (%llu of a longer lease), %llu appends accepted, %llu votes given\n",
         static_cast<unsigned long long>(totals.kernel_answers),
         static_cast<unsigned long long>(totals.kernel_answers_late),
         static_cast<unsigned long long>(totals.kernel_appends), static_cast<unsigned long long>(totals.kernel_votes));
  printf("membership: %llu changes, %llu refused, %llu leaders removed; settings: %llu changes; %llu states compared\n",
         static_cast<unsigned long long>(totals.changes), static_cast<unsigned long long>(totals.changes_refused),
         static_cast<unsigned long long>(totals.leaders_removed),
         static_cast<unsigned long long>(totals.settings_changes),
         static_cast<unsigned long long>(totals.state_checks));
  printf("snapshots: %llu taken, %llu installed, %llu transfers resumed\n",
         static_cast<unsigned long long>(totals.snapshots_taken),
         static_cast<unsigned long long>(totals.snapshots_installed),
         static_cast<unsigned long long>(totals.transfers_resumed));
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
  const bool found = totals.violations > 0;
  if (bug != 0) printf("%s: %s\n", name.c_str(), found ? "found" : "NOT FOUND");
  return found == (bug != 0) ? 0 : 1;
}

}  // namespace
}  // namespace hedgerow::sim

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "simulates a whole cluster under faults: hedgerow-sim --seed N [--seeds N] [--bug NAME]");
  absl::ParseCommandLine(argc, argv);
  return hedgerow::sim::Main();
}
