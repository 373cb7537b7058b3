// SPDX-License-Identifier: Apache-2.0
//
// Which snapshot a log goes on from: the newest whole one that is a part of it. One that was received and not
// installed is not; one that is damaged is passed over while the log reaches back to an older one, or to its
// very beginning. Called by LogStorage when it opens.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/snapshot_folder.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// Makes of a snapshot what its user wants. Called anew for an older one if it fails; DataLoss: the contents are
// no good.
using LoadSnapshot = std::function<absl::Status(SnapshotReader& snapshot)>;

// Looks at its checksums, and no more.
absl::Status ReadThrough(SnapshotReader& snapshot);

// Sets `restored.snapshot` and removes all others. The text, if there is one, is what a node should tell: some
// were damaged. DataLoss: there is none that would do.
absl::StatusOr<std::string> ChooseSnapshot(const SnapshotFolder& folder, const std::string& log_path,
                                           const StoredIdentity& identity, const LoadSnapshot& load,
                                           raft::RestoredState& restored, LoadProgress* progress = nullptr);

}  // namespace hedgerow::storage
