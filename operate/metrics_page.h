// SPDX-License-Identifier: Apache-2.0
//
// A page for Prometheus, http://LISTEN/metrics, around whatever a program measures: proxy/metrics serves the
// data plane's counters with it, cluster/node a node's status. Other pages of the program may stand beside it.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/status/statusor.h"
#include "operate/http_server.h"

namespace hedgerow::operate {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
// What a scrape shows. Called anew for each, on a thread of the HTTP server.
using CollectMetrics = std::function<absl::StatusOr<MetricFamilies>()>;

// `listen`, `setting`, `access` and errors are those of HttpServer::Start. `collect` is not called after the server's
// end; when it fails, the page is empty. `others` are served beside /metrics, which tells what the server's bounds have
// cost as well.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetricsPage(const std::string& listen, const std::string& setting,
                                                             CollectMetrics collect, std::vector<HttpRoute> others = {},
                                                             const HttpAccess& access = {});

}  // namespace hedgerow::operate
