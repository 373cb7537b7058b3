// SPDX-License-Identifier: Apache-2.0
//
// A page for Prometheus, http://LISTEN/metrics, around whatever a program measures: proxy/metrics serves the
// data plane's counters with it, cluster/node a node's status. Other pages of the program may stand beside it.

#ifndef HEDGEROW_OPERATE_METRICS_PAGE_H_
#define HEDGEROW_OPERATE_METRICS_PAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/status/statusor.h"
#include "operate/http_server.h"

namespace hedgerow::operate {

class MetricsPage {
 public:
  using Families = std::vector<prometheus::MetricFamily>;
  // What a scrape shows. Called anew for each, on a thread of the HTTP server.
  using Collect = std::function<absl::StatusOr<Families>()>;

  // `listen` as in a configuration: "127.0.0.1:9464" or "[::1]:9464", port 0 takes a free one. `setting` is the
  // name of its key there, for the errors: InvalidArgument when it is no such text, Unavailable when the port
  // is taken. `collect` is not called after the page's end; when it fails, the page is empty. `others` are
  // served beside /metrics, which tells what the server's bounds have cost as well.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Start(const std::string& listen,
                                                            const std::string& setting, Collect collect,
                                                            std::vector<HttpRoute> others = {});

  // Where it really listens.
  std::string address() const { return server_->address(); }

 private:
  explicit MetricsPage(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

  const std::unique_ptr<HttpServer> server_;
};

}  // namespace hedgerow::operate

#endif  // HEDGEROW_OPERATE_METRICS_PAGE_H_
