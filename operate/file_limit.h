// SPDX-License-Identifier: Apache-2.0
//
// How many files, sockets and BPF objects a daemon may have open (RLIMIT_NOFILE). Called before it opens any: some
// libraries end the process without a word when they find no descriptor.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hedgerow::operate {

// Raises the soft limit to `needed` where the hard one allows that, and no further: commands that the daemon starts
// inherit it. FailedPrecondition, with what to do, where it is lower.
absl::Status EnsureFileLimit(uint64_t needed);

}  // namespace hedgerow::operate
