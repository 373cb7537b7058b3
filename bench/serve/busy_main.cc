// SPDX-License-Identifier: Apache-2.0
//
// hr-busy: an ordinary process that computes without pause, for runs under stress. Bounded: it stops by itself
// after --seconds (or on SIGTERM).
#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/server_loop.h"

ABSL_FLAG(double, seconds, 60, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

// About a millisecond of arithmetic that the compiler cannot drop.
uint64_t Compute(uint64_t x) {
  for (int i = 0; i < 300'000; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  return x;
}

void Run(int64_t end_ns) {
  uint64_t value = 1;
  while (!MustStop(end_ns)) value = Compute(value);
  asm volatile("" : : "r"(value));
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Keeps one CPU busy for a bounded time.");
  absl::ParseCommandLine(argc, argv);
  hedgerow::bench::StopOnSignals();
  hedgerow::bench::SayReady();
  hedgerow::bench::Run(hedgerow::bench::MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9));
  return 0;
}
