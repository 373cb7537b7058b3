// SPDX-License-Identifier: Apache-2.0
//
// A node's last snapshot as it is handed out: a backup's header, and the file behind it. The file stays
// readable though the node replaces it meanwhile. Made by the node's loop, read by the administration's
// threads.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cluster/node/status/status.h"
#include "cluster/storage/backup_file.h"

namespace hedgerow::node {

// Fills in what begins with it, and when it was made. FailedPrecondition: `header.last` is nothing.
absl::StatusOr<BackupPieces> ReadBackup(storage::BackupHeader header, const std::string& snapshot_path);

}  // namespace hedgerow::node
