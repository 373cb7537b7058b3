// SPDX-License-Identifier: Apache-2.0
//
// What a cluster is recovered from (docs/adr/0019): the state that a survivor's snapshot and log lead to, every
// entry applied whether it was known to be committed or not. `hedgerow-node recover` does it with files, the
// simulator with its disks.

#pragma once

#include "cluster/kv/state_machine.h"
#include "cluster/raft/types.h"

namespace hedgerow::kv {

// `state` is what the log's snapshot holds, or empty. The entry at which it failed: that is no command; 0:
// none.
raft::LogIndex ApplyAll(const raft::RestoredState& log, StateMachine& state);

// The last entry of it, in the snapshot or after it.
raft::EntryId LastOf(const raft::RestoredState& log);

}  // namespace hedgerow::kv
