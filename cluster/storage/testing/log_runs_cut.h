// SPDX-License-Identifier: Apache-2.0
//
// For log_runs_test: a power cut after a run in memory mode. All that the run wrote after it had opened the
// log is in the log's files and in snapshots, which are synced one by one; so a cut takes from the former what
// log_runs_disk.h did not see synced, in any shape, and may give back what was removed.

#pragma once

#include <cstdint>
#include <string>

#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {

// Beside the log, by the pretended disk: the log's files as far as a cut leaves them, those that were
// removed, and how many writes it had no room for.
std::string SyncedFolderOf(const TestFolder& folder);
std::string RemovedFolderOf(const TestFolder& folder);
std::string RefusedWritesOf(const TestFolder& folder);

struct CutLosses {
  uint64_t files_torn = 0;
  uint64_t removals_undone = 0;
};

// The log in `after` is what the cut leaves of that in `before`, which stays as it is.
CutLosses CutPower(const TestFolder& before, const TestFolder& after, uint64_t seed);

}  // namespace hedgerow::storage
