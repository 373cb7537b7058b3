// SPDX-License-Identifier: Apache-2.0
//
// Runs a function inside a fresh, empty network namespace that vanishes afterwards. The kernel probe tries
// features there, and the folder's tests do everything there, so that the host's own interfaces are never
// touched.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::net {

// Runs `body` on a thread of its own in a new network namespace with `lo` up, and waits for it. The caller's
// thread never leaves its namespace. Needs CAP_SYS_ADMIN; PermissionDenied without.
absl::Status RunInNewNetworkNamespace(const std::function<absl::Status()>& body);

// Makes a new network namespace and returns a handle on it; closing the last handle ends the namespace.
absl::StatusOr<UniqueFd> NewNetworkNamespace();
// Runs `body` on a thread of its own in the namespace `handle` refers to.
absl::Status RunInNetworkNamespace(int handle, const std::function<absl::Status()>& body);

}  // namespace hedgerow::net
