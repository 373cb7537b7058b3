// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/log_runs.h"

#include <array>

#include "cluster/raft/check.h"

namespace hedgerow::storage {
namespace {

// An open takes 3 to 20 ms, after how busy the machine is. The earlier moments are drawn more often, so that
// they are spread over an open that is fast as well.
uint64_t MomentOfOpen_us(std::mt19937_64& random) { return 1 + (random() % 200) * (random() % 100); }

constexpr uint64_t kBatchesAtMost = 150;
// From a file for nearly every batch, so that starts fall on the ends of files, to one for most of a run.
constexpr std::array<size_t, 4> kSegment_bytes = {8'192, 12'288, 32'768, 131'072};

Run DrawRun(std::mt19937_64& random) {
  Run run;
  run.sync = random() % 3 == 0;
  for (uint64_t killed = random() % 3; killed > 0; --killed) run.killed_opens_us.push_back(MomentOfOpen_us(random));
  run.story_seed = random();
  run.batches = 1 + random() % kBatchesAtMost;
  run.disk_fills_up = random() % 3 == 0;
  run.killed = random() % 3 != 0;
  run.read_when_stopped = random() % 2 == 0;
  // In disk mode nothing is left that a power cut could take.
  run.power_cut = random() % 2 == 0 && !run.sync;
  run.power_cut_seed = random();
  return run;
}

}  // namespace

LogRuns RunsOf(uint64_t seed) {
  std::mt19937_64 random(seed);
  LogRuns runs;
  runs.segment_bytes = kSegment_bytes[random() % kSegment_bytes.size()];
  for (uint64_t left = 2 + random() % 8; left > 0; --left) runs.runs.push_back(DrawRun(random));
  return runs;
}

RunTeller::RunTeller(const Run& run, const raft::RestoredState& before)
    : batches_(run.batches), story_(run.story_seed, before, /*with_snapshots=*/true), random_(~run.story_seed) {}

RunBatch RunTeller::Next() {
  HEDGEROW_CHECK(!over());
  ++drawn_;
  RunBatch batch;
  for (uint64_t persists = 1 + random_() % 4; persists > 0; --persists) batch.persists.push_back(story_.Next());
  batch.start_becomes_durable = random_() % 12 == 0;
  batch.drops = random_() % 3 == 0;
  return batch;
}

raft::RestoredState StateBefore(const LogRuns& runs, size_t run) {
  raft::RestoredState state;
  for (size_t i = 0; i < run; ++i) {
    RunTeller teller(runs.runs[i], state);
    while (!teller.over()) (void)teller.Next();
    state = teller.state();
  }
  return state;
}

StorageOptions RunsOptions(const TestFolder& folder, const LogRuns& runs, bool sync, std::string_view boot_id) {
  StorageOptions options;
  options.path = folder.log();
  options.sync = sync;
  options.segment_bytes = runs.segment_bytes;
  options.boot_id = boot_id;
  return options;
}

}  // namespace hedgerow::storage
