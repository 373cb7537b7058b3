// SPDX-License-Identifier: Apache-2.0
//
// Why no writes are done, in words for an operator (docs/cluster.md, "When nothing is committed"). Pure functions, so
// that `status`, its JSON and tests say the same. Where writes come to nothing there is a sentence, whatever the cause:
// of a cause that is not known here the last one in StallProblems.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/kv/state_machine.h"
#include "cluster/node/status/status.h"

namespace hedgerow::node {

// Shorter is an election, or a slow write.
constexpr uint64_t kLeaderlessProblem_ns = 1'000'000'000;
constexpr uint64_t kStalledProblem_ns = 500'000'000;
// Longer than a client waits, as a rule; and what ended so long ago tells nothing of now.
constexpr uint64_t kFailingProblem_ns = 1'000'000'000;
constexpr uint64_t kFailingLately_ns = 10'000'000'000;

// Of a disk that reports no error; empty: it keeps up.
std::string DiskProblem(uint64_t disk_stalled_ns);

// Sentences; none: the log moves, or nothing waits.
std::vector<std::string> StallProblems(const NodeStatus& status);

// Sentences; none: the replicated state has room.
std::vector<std::string> FullProblems(const kv::StateMachine& state);

// A sentence; empty: this node has as much memory as a full store may need.
std::string MemoryProblem(const v1::Memory& memory);

}  // namespace hedgerow::node
