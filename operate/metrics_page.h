// SPDX-License-Identifier: Apache-2.0
//
// A page for Prometheus, http://LISTEN/metrics, around whatever a program measures: proxy/metrics serves the
// data plane's counters with it, cluster/node a node's status.

#ifndef HEDGEROW_OPERATE_METRICS_PAGE_H_
#define HEDGEROW_OPERATE_METRICS_PAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/status/statusor.h"

namespace hedgerow::operate {

class MetricsPage {
 public:
  using Families = std::vector<prometheus::MetricFamily>;
  // What a scrape shows. Called anew for each, on threads of the HTTP server, perhaps on two at once.
  using Collect = std::function<absl::StatusOr<Families>()>;

  // `listen` as in a configuration: "127.0.0.1:9464" or "[::1]:9464", port 0 takes a free one. `setting` is the
  // name of its key there, for the errors: InvalidArgument when it is no such text, Unavailable when the port
  // is taken, and for IPv6 where the HTTP server (civetweb) is built without it, as on Debian 12. `collect` is
  // not called after the page's end; when it fails, the page is empty.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Start(const std::string& listen,
                                                            const std::string& setting, Collect collect);
  // Waits for scrapes under way. Takes some 20 ms.
  virtual ~MetricsPage() = default;
  // Where it really listens.
  virtual std::string address() const = 0;
};

}  // namespace hedgerow::operate

#endif  // HEDGEROW_OPERATE_METRICS_PAGE_H_
