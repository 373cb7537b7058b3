// SPDX-License-Identifier: Apache-2.0
//
// The closed loop of closed_loop.h on etcd, over its own protocol (gRPC), to compare our store with: the same
// keys, values, phases and report. One thread sends and collects, as in our loop. Used by hr-kv-load for
// `./dev bench kv`.

#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "bench/kv/closed_loop.h"

namespace hedgerow::bench {

// `connections`: of all clients together, which take turns on them, as the callers of one etcd client share
// one; 0: one for each client, as separate applications have. `options.server` is address:port of IPv4. A get
// that finds nothing counts as answered, as in our loop.
absl::StatusOr<ClosedLoopReport> RunEtcdClosedLoop(const ClosedLoopOptions& options, size_t connections,
                                                   void (*on_phase)(const char* phase));

}  // namespace hedgerow::bench
