// SPDX-License-Identifier: Apache-2.0
//
// What the bench servers have in common: flags that bound a run, SIGTERM and SIGINT as a request to stop, and
// the line on standard output that tells the runner that the socket is open. Used by the servers' main files
// only.
#pragma once

#include <cstdint>

namespace hedgerow::bench {

// Installs the handlers; StopRequested() turns true on SIGTERM or SIGINT.
void StopOnSignals();
bool StopRequested();

// True when `end_ns` has passed or a signal asked to stop.
bool MustStop(int64_t end_ns);

// Prints "ready" and flushes: runners wait for it instead of sleeping.
void SayReady();

}  // namespace hedgerow::bench
