// SPDX-License-Identifier: Apache-2.0
//
// The core's state as its kernel part has it: hr_node_shared, without what the kernel may do and for how long.

#pragma once

#include <cstdint>

#include "bpf/node/raft/node_abi.h"
#include "cluster/raft/raft.h"

namespace hedgerow::offload {

uint32_t RoleForKernel(raft::Role role);

// Heartbeats are answered with it. Only what is durable: it is never less than what was acknowledged, and after
// the process's death it says what its log must hold.
raft::LogIndex MatchedForKernel(const raft::Raft& raft);

// Of a leader: the members (bits) whose every acknowledgement its process wants to see.
uint32_t EveryAckForKernel(const raft::Raft& raft);

hr_node_shared SharedStateOf(const raft::Raft& raft);

}  // namespace hedgerow::offload
