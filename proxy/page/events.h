// SPDX-License-Identifier: Apache-2.0
//
// What happened between two snapshots that a person should know of: another leader, a silent backend, a problem.
// The page marks these on its charts and lists them. Pure; History calls it once a second.

#pragma once

#include <cstdint>
#include <vector>

#include "proxy/admin/status.h"
#include "proxy/api/page.pb.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

// A moment as the daemon saw it, and its wall clock's time for it.
struct Moment {
  const Snapshot& snapshot;
  const DaemonFacts& facts;
  int64_t wall_ms;
};

// Without `sample`, which is the caller's to number. Services are paired by name: a new service has no past.
std::vector<v1::PageEvent> EventsBetween(const Moment& earlier, const Moment& later);

}  // namespace hedgerow
