// SPDX-License-Identifier: Apache-2.0
//
// A key in a file of its own, as `openssl rand -hex 16` writes it: 32 hexadecimal digits and a line feed. A key
// that others can read, or change, is none, so such a file is refused. Called by config.cc.

#ifndef HEDGEROW_CLUSTER_NODE_KEY_FILE_H_
#define HEDGEROW_CLUSTER_NODE_KEY_FILE_H_

#include <optional>
#include <string>

#include <sys/stat.h>

#include "absl/status/statusor.h"
#include "cluster/wire/key.h"

namespace hedgerow::node {

// 32 hexadecimal digits. Nothing for any other text, and for a key of zeros, which somebody forgot to fill in.
std::optional<wire::Key> ParseSecret(const std::string& digits);

// The error says what is wrong with the file and begins without its name; it repeats nothing of its content.
absl::StatusOr<wire::Key> ReadKeyFile(const std::string& path);

// Why a file with this mode may hold no secret ("can be read by everybody (mode 0644), expected mode 0600 or
// 0640"), or empty. The group may read, so that a service's user need not own the file.
std::string WhyNotSecret(mode_t mode);

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_KEY_FILE_H_
