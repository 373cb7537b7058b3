// SPDX-License-Identifier: Apache-2.0
//
// A service's `check`: the daemon asks each backend itself, from the service's own source. A backend that fails counts
// as impaired, unless all do (docs/adr/0062). On the event loop's thread.
#pragma once

#include <string>
#include <vector>

#include "net/unique_fd.h"
#include "proxy/admin/status.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class HealthChecks {
 public:
  explicit HealthChecks(const v1::Config& config)
      : config_(config), backends_(static_cast<size_t>(config.services_size())) {}
  // Once a second: judges the questions of a second before, and asks anew where it is time. `snapshot` may be null; the
  // first one has the verdicts of the daemon, or of the configuration, before.
  absl::Status Look(DaemonFacts& facts, LivePolicy& policy, const Snapshot* snapshot, int64_t now_ns);

 private:
  struct Backend {
    net::UniqueFd socket{};  // of the question that waits
    std::string question{};
    int64_t asked_ns = 0;
    uint32_t streak = 0;  // results in a row that speak against `failing`
    bool failing = false;
  };
  void Begin(DaemonFacts& facts, const Snapshot* snapshot);

  const v1::Config& config_;
  std::vector<std::vector<Backend>> backends_;  // by service
  int64_t seconds_ = 0;
};

}  // namespace hedgerow
