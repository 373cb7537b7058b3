// SPDX-License-Identifier: Apache-2.0
//
// Sources that come once: a new socket, one message, its answer, the end. All at once (a burst of connects after a
// restart of the network), or so many at a time. Used by hr-steer-load.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "bench/load/histogram.h"
#include "bench/load/udp_socket.h"

namespace hedgerow::bench {

struct VisitOptions {
  Address target;
  Address first_source;
  uint32_t sources = 512;
  bool tcp = true;
  uint32_t visits = 512;                // the n-th is of source n % sources
  uint32_t at_once = 0;                 // 0: all
  int64_t timeout_ns = 10'000'000'000;  // of each, from its beginning
  uint16_t bytes = 256;
};

struct VisitResult {
  uint64_t answered = 0, refused = 0, reset = 0, timed_out = 0, not_sent = 0;
  uint64_t failed() const { return refused + reset + timed_out + not_sent; }
  Histogram connect_ns, answer_ns;  // from the beginning of the visit
  int64_t took_ns = 0;              // all of them
};

absl::StatusOr<VisitResult> Visit(const VisitOptions& options, const std::function<bool()>& stop);

}  // namespace hedgerow::bench
