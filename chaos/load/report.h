// SPDX-License-Identifier: Apache-2.0
//
// The counters of a load as JSON, the same for every system under test; chaos/run.py reads them.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace hedgerow::chaos {

struct LoadCounters {
  uint64_t opens = 0;  // datagrams that opened sessions, before the first operation
  uint64_t sent = 0;   // operations
  uint64_t ok = 0;
  uint64_t timed_out = 0;
  std::map<std::string, uint64_t> errors{};  // by what the answer said
  uint64_t hedges = 0;                       // copies that the client sent by time
  uint64_t followed = 0;                     // copies that it sent because a server named the leader
  uint64_t retries = 0;                      // reads that it sent again after an error
  uint64_t duplicates = 0;                   // second answers to a request
  uint64_t losers = 0;                       // second answers that the client's own copies explain
  uint64_t late = 0;                         // answers after the time-out
  uint64_t stray = 0;                        // anything else
  uint64_t send_failed = 0;                  // not taken by the kernel
  uint64_t send_lag_max_ns = 0;              // how far the load itself was behind
};

absl::Status WriteReport(const std::string& path, const std::string& mode, const LoadCounters& counters);

}  // namespace hedgerow::chaos
