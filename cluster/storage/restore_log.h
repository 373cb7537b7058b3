// SPDX-License-Identifier: Apache-2.0
//
// Makes a log in an empty folder that begins with a snapshot: how a member of a recovered cluster comes
// to its state (docs/adr/0019). Used by `hedgerow-node restore`, while no node runs on the folder.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "cluster/raft/types.h"
#include "cluster/storage/snapshot_file.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// OK: it may be used. FailedPrecondition: its identity says that a restore was cut short.
absl::Status CheckFinished(const std::string& path);

// What the log of `generation` goes on from, of a backup that ends with `last`: far beyond every entry that the
// cluster before can have had after it. Clients remember what was made of indices (a session's id, a memcached
// item's `cas`), and what they remember of entries that are gone must not be used again here.
raft::EntryId FirstOf(const RecoveryGeneration& generation, const raft::EntryId& last);

// Everything is durable when it returns. AlreadyExists: the folder is not empty. `configuration` is the new
// cluster's; of `snapshot`, which is at its beginning, only the contents and their place in the log are kept. The
// folder's identity says from before anything else that it is not finished, and then that it was never started.
absl::Status RestoreLog(const std::string& path, const StoredIdentity& identity, const RecoveryGeneration& generation,
                        SnapshotReader& snapshot, const raft::Configuration& configuration);

}  // namespace hedgerow::storage
