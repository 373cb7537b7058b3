// SPDX-License-Identifier: Apache-2.0
//
// Serves a node's status as Prometheus metrics, http://LISTEN/metrics. Each scrape asks the loop anew through
// NodeControl, on a thread of the HTTP server. docs/metrics.md lists the families.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/status/statusor.h"
#include "cluster/node/status/status.h"
#include "cluster/node/status/status_message.h"
#include "operate/metrics_page.h"

namespace hedgerow::node {

// `listen` as in the configuration. Empty: null, and nothing listens. Errors are those of
// operate::ServeMetricsPage; while the loop does not answer, the page is empty. `control` must outlive the
// page.
absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access,
                                                                  NodeControl& control, NodeFacts facts);

// Pure: what a scrape shows. Counters and histograms of the loop become families named after them.
std::vector<prometheus::MetricFamily> BuildFamilies(const NodeStatus& status, const NodeFacts& facts);

}  // namespace hedgerow::node
