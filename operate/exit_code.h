// SPDX-License-Identifier: Apache-2.0
//
// The exit codes of every program (docs/cli.md), and which of them belongs to an error. Scripts rely on the
// numbers: they are never changed.

#pragma once

#include "absl/status/status.h"

namespace hedgerow::operate {

enum ExitCode {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,       // also: the configuration has errors
  kExitNotRunning = 3,  // no process listens on the socket
  kExitNotAllowed = 4,  // a capability is missing, or the socket may not be opened by this user
};

// Pure.
inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return kExitOk;
    case absl::StatusCode::kInvalidArgument: return kExitUsage;
    case absl::StatusCode::kUnavailable: return kExitNotRunning;
    case absl::StatusCode::kPermissionDenied: return kExitNotAllowed;
    default: return kExitFailure;
  }
}

}  // namespace hedgerow::operate
