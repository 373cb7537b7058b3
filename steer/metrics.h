// SPDX-License-Identifier: Apache-2.0
//
// The metrics of a group, hedgerow_steer_*, by slot, as /metrics of `--metrics`; docs/metrics.md has the same list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "operate/metrics_page.h"
#include "steer/api/steer.pb.h"
#include "steer/control.h"

namespace hedgerow::steer {

// Errors are those of operate::ServeMetricsPage. `loop` and `control` must outlive it.
absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access, EventLoop& loop,
                                                                  Control& control);

// Pure.
operate::MetricFamilies FamiliesOf(const v1::Group& group, const LoopTurns& turns);

}  // namespace hedgerow::steer
