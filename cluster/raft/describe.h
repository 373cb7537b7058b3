// SPDX-License-Identifier: Apache-2.0
//
// Messages and outputs in words, for the golden scripts and for the simulator's trace.

#pragma once

#include <string>
#include <vector>

#include "cluster/raft/outputs.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

std::string Describe(Role role);
std::string Describe(const Configuration& configuration);
std::string Describe(const Message& message);
// One line for each thing that the step asks for or tells.
std::vector<std::string> Describe(NodeId node, const Outputs& outputs);
// One line: role, term, leader, log, commit.
std::string Describe(NodeId id, const Raft& node);

}  // namespace hedgerow::raft
