// SPDX-License-Identifier: Apache-2.0
//
// The disk of hr-log-runs-victim: stands in the place of some functions of the C library, in a program that
// links it. Nothing is really synced, for a process that is killed loses nothing by that, and the only power
// cuts are those of log_runs_cut.h; for their sake it remembers which bytes and names of the log's files
// were asked to be on the disk, and keeps what was removed. And it can be full: a write to the log ends in the
// middle, and the next ones fail, the watermark's too. Of one thread.

#pragma once

#include <cstdint>

#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {

// Before the log in the folder is opened; its path is without symbolic links. What an earlier run has left for
// a cut goes.
void UsePretendedDisk(const TestFolder& folder);
// Now and then, at moments that the seed draws, until FreeDisk.
void FillDisk(uint64_t seed);
void FreeDisk();
// For log_runs_cut.h: what a power cut at this moment cannot take.
void LeaveDiskForCut();

}  // namespace hedgerow::storage
