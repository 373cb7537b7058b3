// SPDX-License-Identifier: Apache-2.0
//
// A configuration file to a checked v1::Config: the only way the CLI and the
// daemon obtain one. Pure but for reading files; attaches nothing.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/diagnostics.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::config {

// kRead is for the daemon, which does as the file says: the key files that it names are read as well, and the owners
// of all these files are checked (operate/file_rights.h).
enum class KeyFiles { kLeave, kRead };

// InvalidArgument with one line for each error, every one starting with
// FILE:LINE:COLUMN.
absl::StatusOr<v1::Config> LoadFile(const std::string& path, KeyFiles key_files = KeyFiles::kLeave);
absl::StatusOr<v1::Config> LoadText(absl::string_view text, absl::string_view file_name);

// The same with the errors as data, for `validate --json`. The config is
// complete only where `errors` stays empty. `notes`: what a sound file has that can have no effect.
v1::Config LoadFile(const std::string& path, Diagnostics& errors, KeyFiles key_files = KeyFiles::kLeave,
                    std::vector<std::string>* notes = nullptr);
v1::Config LoadText(absl::string_view text, Diagnostics& errors, KeyFiles key_files = KeyFiles::kLeave);

// The files of keys, tokens and certificates that it names.
std::vector<std::string> FilesOf(const v1::Config& config);

}  // namespace hedgerow::config
