// SPDX-License-Identifier: Apache-2.0
//
// Waits for the BPF programs that run. Called by all that change a map that programs read, before it relies on the
// change.
#pragma once

#include "absl/status/status.h"

namespace hedgerow::net {

// Returns when every run of a BPF program that was under way has ended: an RCU grace period (6 to 22 ms measured).
absl::Status WaitForPrograms();

}  // namespace hedgerow::net
