// SPDX-License-Identifier: Apache-2.0
//
// From a snapshot of the data plane to the raw counts that `hedgerow top` makes
// rates of. Pure: the controller calls it, tests with a made-up snapshot.

#pragma once

#include <vector>

#include "proxy/admin/status.h"
#include "proxy/api/admin.pb.h"

namespace hedgerow {

v1::Counts BuildCounts(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot,
                       const std::vector<ProgramInfo>& programs);

// A histogram across the socket and back: only what is not zero.
v1::Durations ToDurations(const Histogram& histogram);
Histogram FromDurations(const v1::Durations& durations);

}  // namespace hedgerow
