// SPDX-License-Identifier: Apache-2.0
//
// Everything the daemon must be allowed to do, asked before anything is made,
// so that a user without it hears of all that is missing at once. Measured on
// a 6.18 kernel by starting the daemon with ever smaller sets: without
// CAP_PERFMON the verifier refuses the splitter; CAP_NET_RAW times the clock.

#ifndef HEDGEROW_PROXY_DAEMON_PRIVILEGES_H_
#define HEDGEROW_PROXY_DAEMON_PRIVILEGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow {

// "CAP_BPF (maps, loading programs)", one for each missing capability.
absl::StatusOr<std::vector<std::string>> MissingPrivileges();

// PermissionDenied that names each.
absl::Status RequirePrivileges();

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_PRIVILEGES_H_
