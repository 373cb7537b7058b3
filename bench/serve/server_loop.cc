// SPDX-License-Identifier: Apache-2.0
//
// Stopping and readiness of the bench servers.
#include "bench/serve/server_loop.h"

#include <csignal>
#include <cstdio>

#include "bench/load/udp_socket.h"

namespace hedgerow::bench {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void RequestStop(int) { stop_requested = 1; }

}  // namespace

void StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

bool MustStop(int64_t end_ns) { return StopRequested() || MonotonicNs() >= end_ns; }

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

}  // namespace hedgerow::bench
