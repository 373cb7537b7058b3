// SPDX-License-Identifier: Apache-2.0
//
// Writes the cluster's keys to map `node_keys` (bpf/node/state.bpf.h) while kernel programs read it. Called by
// BpfKernel, and by a Watch that has no kernel part beside it.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "bpf/node/raft/node_abi.h"

namespace hedgerow::offload {

// The first of `keys` seals, all open; at most two are left over from before, so a map of HR_NODE_KEYS has room for
// both. An error: the kernel has no memory, or refuses. No key that was valid is then removed.
absl::Status WriteKeys(int map_fd, const std::vector<hr_node_key>& keys);

}  // namespace hedgerow::offload
