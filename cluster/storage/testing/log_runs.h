// SPDX-License-Identifier: Apache-2.0
//
// For log_runs_test: the runs of one log, one process after the other, drawn from a seed. The process that does one
// tells it, and so does the test that judges what it has left.

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/storage/storage_options.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {

struct Run {
  bool sync = false;  // disk mode; the log is handed from one mode to the other
  // Processes before it that are killed so many microseconds after they began to open the log.
  std::vector<uint64_t> killed_opens_us;
  uint64_t story_seed = 0;
  uint64_t batches = 0;
  bool disk_fills_up = false;  // now and then, and there is room again
  bool killed = false;         // after its last batch; else it ends in order
  // What comes after it: it is read as `recover` does, and the power fails, for a copy of the log.
  bool read_when_stopped = false;
  bool power_cut = false;
  uint64_t power_cut_seed = 0;
};

struct LogRuns {
  size_t segment_bytes = 0;
  std::vector<Run> runs;
};
LogRuns RunsOf(uint64_t seed);

struct RunBatch {
  std::vector<raft::Persist> persists;
  // After it, in the compactor's place: the log's start is made durable; what lies before the start that was
  // last made so goes, which may be batches later, or never in this run.
  bool start_becomes_durable = false;
  bool drops = false;
};

// Tells a run, batch by batch.
class RunTeller {
 public:
  RunTeller(const Run& run, const raft::RestoredState& before);
  bool over() const { return drawn_ == batches_; }
  RunBatch Next();
  const raft::RestoredState& state() const { return story_.state(); }  // after the last one
  uint64_t drawn() const { return drawn_; }

 private:
  const uint64_t batches_;
  uint64_t drawn_ = 0;
  Story story_;
  std::mt19937_64 random_;
};

// What the log must hold when the run with this number begins, and so when the one before it has ended.
raft::RestoredState StateBefore(const LogRuns& runs, size_t run);

inline constexpr StoredIdentity kRunsIdentity = {.cluster_id = kTestCluster, .node = kTestNode};
// All of a log's runs are of one boot of the host; a reader after a power cut is of the next.
inline constexpr std::string_view kBootBeforeCut = "before";
inline constexpr std::string_view kBootAfterCut = "after";
StorageOptions RunsOptions(const TestFolder& folder, const LogRuns& runs, bool sync, std::string_view boot_id);

}  // namespace hedgerow::storage
