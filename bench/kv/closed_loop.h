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

#include "absl/functional/function_ref.h"
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

// The clients of one store, as the loop knows them, whatever they speak. Times are operate::Monotonic_ns'.
class Callers {
 public:
  enum class Ending : uint8_t { kAnswered, kFailed, kLost };
  struct Ended {
    size_t caller;
    Ending ending;
    uint64_t sent_ns;
    uint64_t ended_ns;
  };

  virtual ~Callers() = default;
  // The operation of the options; the caller has nothing under way.
  virtual absl::Status Send(size_t caller, std::string key) = 0;
  // Waits for the first request that ends, at most until then; may return earlier. `on_ended` may send.
  virtual absl::Status Wait(uint64_t until_ns, absl::FunctionRef<absl::Status(const Ended&)> on_ended) = 0;
};

// `on_phase` is called when the measured part begins and when it has ended.
absl::StatusOr<ClosedLoopReport> RunLoop(const ClosedLoopOptions& options, Callers& callers,
                                         void (*on_phase)(const char* phase));
// Of our own store.
absl::StatusOr<ClosedLoopReport> RunClosedLoop(const ClosedLoopOptions& options, void (*on_phase)(const char* phase));

}  // namespace hedgerow::bench
