// SPDX-License-Identifier: Apache-2.0
//
// Clients of the store, each with a socket and a session of its own and one request under way: in a closed
// loop, or paced, when requests fall due at a fixed rate whatever becomes of those before, and whichever client
// is free takes the next. A paced request's latency counts from when it fell due, so one that waits for a free
// client hides nothing. Used by hr-kv-load for `./dev bench kv` and `./dev bench offload`; one thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/load/histogram.h"
#include "cluster/client/hkv_client.h"

namespace hedgerow::bench {

enum class KvOperation : uint8_t { kPut, kGet };

struct ClosedLoopOptions {
  std::string server;
  size_t clients = 1;
  KvOperation operation = KvOperation::kPut;
  size_t keys = 1000;  // of each client
  size_t value_bytes = 64;
  absl::Duration warm_up = absl::Seconds(1);
  absl::Duration measured = absl::Seconds(5);
  absl::Duration timeout = absl::Seconds(1);
  double rate_per_s = 0;                             // of all clients together; 0: a closed loop
  std::optional<client::Credentials> credentials{};  // which all clients prove
};

struct ClosedLoopReport {
  Histogram latency_ns;
  // Of the requests that left (paced: fell due) in the measured part, whenever they ended: a stall in its last
  // moments is not cut off.
  uint64_t answered = 0;  // with success
  uint64_t failed = 0;    // answered with an error
  uint64_t lost = 0;      // not answered within the timeout
  uint64_t behind = 0;    // paced: had fallen due and not left when the measured part ended
  double seconds = 0;     // how long the measured part was
};

// `on_phase` is called when the measured part begins and when it has ended.
absl::StatusOr<ClosedLoopReport> RunClosedLoop(const ClosedLoopOptions& options, void (*on_phase)(const char* phase));

}  // namespace hedgerow::bench
