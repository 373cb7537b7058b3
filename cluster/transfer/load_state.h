// SPDX-License-Identifier: Apache-2.0
//
// From a snapshot's file to a state machine. A node does so when it starts, and, in a thread beside its loop,
// with one that it has received.

#pragma once

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "cluster/kv/state_machine.h"
#include "cluster/storage/snapshot_file.h"

namespace hedgerow::transfer {

// DataLoss: the file is damaged, or its contents are none. FailedPrecondition: a later program wrote them.
// Cancelled: `stop` was set meanwhile.
absl::StatusOr<std::unique_ptr<kv::StateMachine>> LoadState(storage::SnapshotReader& snapshot,
                                                            const std::atomic<bool>* stop = nullptr);

}  // namespace hedgerow::transfer
