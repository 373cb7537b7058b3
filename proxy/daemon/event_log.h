// SPDX-License-Identifier: Apache-2.0
//
// What the daemon's log says of a running proxy: leaders and pins, suspicion and failover, bypass, dry runs and
// drained backends, as the page lists them (proxy/page/events.h). What is wrong with the machine is logged where it is
// found. The daemon calls it once a second.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proxy/admin/status.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class EventLog {
 public:
  // Suspicions that end within a second are counted, and told at most so often.
  static constexpr uint64_t kMomentsNs = 10'000'000'000;

  struct Line {
    bool warning = false;
    std::string text;
  };
  // What has happened since the call before; nothing at the first one.
  std::vector<Line> Lines(const Snapshot& now, const DaemonFacts& facts, int64_t wall_ms);

 private:
  struct Moments {
    uint64_t told_ns = 0;
    uint64_t suspected = 0;  // as of then
  };

  std::optional<Snapshot> last_;
  std::map<std::string, Moments> moments_;  // by service
};

}  // namespace hedgerow
