// SPDX-License-Identifier: Apache-2.0
//
// Serves a node's status as Prometheus metrics, http://LISTEN/metrics. Each scrape asks the loop anew through
// NodeControl, on a thread of the HTTP server. docs/metrics.md lists the families.

#ifndef HEDGEROW_CLUSTER_NODE_METRICS_H_
#define HEDGEROW_CLUSTER_NODE_METRICS_H_

#include <memory>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/status/statusor.h"
#include "cluster/node/status.h"
#include "cluster/node/status_message.h"

namespace hedgerow::node {

class MetricsServer {
 public:
  // `listen` as in the configuration; port 0 takes a free one. Empty: null, and nothing listens. Unavailable
  // when the port is taken. `control` must outlive the server.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen, NodeControl& control,
                                                              NodeFacts facts);
  virtual ~MetricsServer() = default;
  // Where it really listens.
  virtual std::string address() const = 0;
};

// Pure: what a scrape shows. Counters and histograms of the loop become families named after them.
std::vector<prometheus::MetricFamily> BuildFamilies(const NodeStatus& status, const NodeFacts& facts);

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_METRICS_H_
