// SPDX-License-Identifier: Apache-2.0
//
// Why nothing is committed, in words for an operator (docs/cluster.md, "When nothing is committed"). A pure function of
// the status, so that `status`, its JSON and tests say the same.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/node/status.h"

namespace hedgerow::node {

// Shorter is an election, or a slow write.
constexpr uint64_t kLeaderlessProblem_ns = 1'000'000'000;
constexpr uint64_t kStalledProblem_ns = 500'000'000;

// Of a disk that reports no error; empty: it keeps up.
std::string DiskProblem(uint64_t disk_stalled_ns);

// Sentences; none: the log moves, or nothing waits.
std::vector<std::string> StallProblems(const NodeStatus& status);

}  // namespace hedgerow::node
