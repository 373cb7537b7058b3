// SPDX-License-Identifier: Apache-2.0
//
// What the bench servers have in common: flags that bound a run, SIGTERM and SIGINT as a request to stop, and
// the line on standard output that tells the runner that the socket is open. Used by the servers' main files
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/udp_socket.h"

namespace hedgerow::bench {

// Installs the handlers; StopRequested() turns true on SIGTERM or SIGINT.
void StopOnSignals();
bool StopRequested();

// True when `end_ns` has passed or a signal asked to stop.
bool MustStop(int64_t end_ns);

// A socket for each of the addresses, which have commas between them; at most 8.
absl::StatusOr<std::vector<UdpSocket>> ListenOnAll(const std::string& addresses);

// Prints "ready" and flushes: runners wait for it instead of sleeping.
void SayReady();

}  // namespace hedgerow::bench
