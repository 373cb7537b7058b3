// SPDX-License-Identifier: Apache-2.0
//
// For daemons that neither take LISTEN_FDS nor set SO_REUSEPORT: runs one with the sockets that were handed over in
// place of those that it binds itself. A seccomp filter stops bind(2); a small process beside the daemon, the monitor,
// puts the socket of that address at the descriptor's number (seccomp_unotify(2)) and lets bind succeed. Nothing is
// loaded into the daemon, so it works for programs of any language, also statically linked ones. Called by `hedgerow
// steer bind`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hedgerow::steer {

// Becomes `command`, with this process's pid and environment but for LISTEN_FDS and its kind. Returns only where that
// fails: FailedPrecondition without sockets, NotFound where there is no such program.
absl::Status RunWithSockets(const std::vector<std::string>& command);

}  // namespace hedgerow::steer
