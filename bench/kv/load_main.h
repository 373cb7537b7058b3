// SPDX-License-Identifier: Apache-2.0
//
// What hr-kv-load and hr-etcd-load share: the flags, the phases as JSON lines on stderr, and the report as JSON
// on stdout, so that bench/kv.py runs and reads both alike.

#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bench/kv/closed_loop.h"

namespace hedgerow::bench {

// Reads the command line, calls `loop`, prints; the exit status of the program.
int LoadMain(
    const char* program, int argc, char** argv,
    absl::FunctionRef<absl::StatusOr<ClosedLoopReport>(const ClosedLoopOptions&, void (*)(const char*))> loop);

}  // namespace hedgerow::bench
