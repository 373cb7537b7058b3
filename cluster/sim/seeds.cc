// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/seeds.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "cluster/sim/bugs/planted.h"

namespace hedgerow::sim {
SeedTotals RunSeeds(const SeedRange& range, const std::function<void(const Report&)>& each) {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  SeedTotals totals;
  const auto work = [&] {
    planted_bug = range.planted_bug;
    for (uint64_t i = next++; i < range.count && !stop; i = next++) {
      const Report report = Simulate({.seed = range.first + i, .seconds = range.seconds, .trace = {}});
      const std::lock_guard<std::mutex> lock(mutex);
      ++totals.runs;
      totals.violations += !report.violation.empty();
      totals.committed += report.committed;
      totals.elections += report.elections;
      totals.crashes += report.crashes;
      totals.operations += report.operations;
      totals.answers += report.answers;
      totals.kernel_answers += report.kernel_answers;
      totals.kernel_appends += report.kernel_appends;
      totals.kernel_votes += report.kernel_votes;
      totals.kernel_answers_late += report.kernel_answers_late;
      totals.changes += report.changes;
      totals.changes_refused += report.changes_refused;
      totals.leaders_removed += report.leaders_removed;
      totals.settings_changes += report.settings_changes;
      totals.state_checks += report.state_checks;
      totals.snapshots_taken += report.snapshots_taken;
      totals.snapshots_installed += report.snapshots_installed;
      totals.transfers_resumed += report.transfers_resumed;
      totals.quorum_checks += report.quorum_checks;
      totals.appends_reordered += report.appends_reordered;
      totals.proposals_known += report.proposals_known;
      totals.recoveries += report.recoveries;
      totals.folders_emptied += report.folders_emptied;
      totals.hung_leaders += report.hung_leaders;
      totals.folders_put_back += report.folders_put_back;
      totals.sealed_pieces += report.sealed_pieces;
      totals.sealed_drops += report.sealed_drops;
      totals.sessions_evicted += report.sessions_evicted;
      totals.forged += report.forged;
      totals.seconds += report.seconds;
      each(report);
      if (range.stop_at_violation && !report.violation.empty()) stop = true;
    }
    planted_bug = 0;
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < range.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return totals;
}

}  // namespace hedgerow::sim
