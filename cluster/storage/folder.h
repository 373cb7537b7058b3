// SPDX-License-Identifier: Apache-2.0
//
// Folders whose names survive a power cut: a sync of what is in a folder leaves its name out, which is
// lost with all that is under it unless its parent was synced, too. For everything that cluster/storage makes.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow::storage {

// Is it part of a log, in the folder of a node? What else is in there, but for `identity`, is no log: a filesystem's
// `lost+found`, or what an operator keeps beside it (a socket, a configuration file, backups).
bool IsPartOfLog(std::string_view name);

// Its name is durable when this returns, also when an earlier life made it and was killed before it could sync
// it.
absl::Status MakeFolder(const std::string& path);
// The names in it.
absl::Status SyncFolder(const std::string& path);
// The folder that `path` stands in.
absl::Status SyncParent(const std::string& path);
absl::Status WriteAll(int file, const std::string& path, std::string_view text);
// A small file, readable by its owner: bytes and name are durable when this returns. Cut short, it may hold
// less.
absl::Status WriteSynced(const std::string& path, const std::string& text);
// The same with the old file or the new one at `path`, whatever happens in between.
absl::Status ReplaceSynced(const std::string& path, const std::string& text);
// The same with no file or the new one. AlreadyExists: there is one.
absl::Status CreateSynced(const std::string& path, const std::string& text);
// Of a file that may not exist: nothing, if it does not. One that cannot be read is an error, and never taken for none.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path);

}  // namespace hedgerow::storage
