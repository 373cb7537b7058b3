// SPDX-License-Identifier: Apache-2.0
//
// Keys that stand in files of their own, so that the configuration can be
// shown around. Read by the daemon when it starts, and by `hedgerow plan` to
// see whether it could; `validate` touches nothing but the configuration.

#ifndef HEDGEROW_PROXY_CONFIG_KEY_FILE_H_
#define HEDGEROW_PROXY_CONFIG_KEY_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/api/config.pb.h"
#include "proxy/config/decode.h"
#include "config/diagnostics.h"

namespace hedgerow::config {

// The file's 32 hexadecimal digits, in lower case; white space around them is
// ignored. InvalidArgument says what is wrong with the file and never what is
// in it: missing, not a regular file, open to every user, something else
// inside.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path);

// Reads each service's key_file into its key. What cannot be read is an error
// at its place.
void ReadKeyFiles(v1::Config& config, const Locations& locations, Diagnostics& errors);

}  // namespace hedgerow::config

#endif  // HEDGEROW_PROXY_CONFIG_KEY_FILE_H_
