// SPDX-License-Identifier: Apache-2.0
//
// SIGTERM and SIGINT end a load early and in order: it stops sending, waits for what is outstanding and writes
// down what it saw. And the one line that says to the runner that the load has begun. Used by the mains of the
// loads.

#pragma once

#include <atomic>
#include <csignal>
#include <cstdio>

namespace hedgerow::chaos {

inline std::atomic<bool> stop_asked = false;

inline void StopWhenAsked() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_asked = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

inline void ReportReady() {
  std::printf("ready\n");
  std::fflush(stdout);
}

}  // namespace hedgerow::chaos
