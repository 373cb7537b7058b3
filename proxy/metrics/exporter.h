// SPDX-License-Identifier: Apache-2.0
//
// Serves /metrics over HTTP. Each scrape reads the data
// plane on the event loop's thread, so that the numbers are of one moment.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operate/metrics_page.h"
#include "proxy/admin/controller.h"
#include "operate/event_loop.h"

namespace hedgerow {

// `listen` as in the configuration, not empty. Errors are those of operate::ServeMetricsPage; while the loop
// or the data plane does not answer (5 s), the page is empty. `loop` and `controller` must outlive it. `others` are
// served beside it.
absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access, EventLoop& loop,
                                                                  Controller& controller,
                                                                  std::vector<operate::HttpRoute> others = {});

}  // namespace hedgerow
