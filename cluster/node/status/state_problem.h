// SPDX-License-Identifier: Apache-2.0
//
// Which sentence an operator reads where replicas do not have the same state. For the status; the checks are
// cluster/kv/state_checks.h.

#pragma once

#include <string>

#include "cluster/kv/state_checks.h"

namespace hedgerow::node {

// Empty: nothing is known to be wrong.
std::string DivergedProblem(const kv::StateChecks& checks);
std::string UnreadableProblem(raft::LogIndex entry);

}  // namespace hedgerow::node
