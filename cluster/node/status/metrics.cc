// SPDX-License-Identifier: Apache-2.0
//
// The metrics server; see the header. The families are in metrics_families.cc.

#include "cluster/node/status/metrics.h"

#include <utility>

namespace hedgerow::node {

absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access,
                                                                  NodeControl& control, NodeFacts facts) {
  using Families = operate::MetricFamilies;
  if (listen.empty()) return nullptr;
  return operate::ServeMetricsPage(
      listen, "metrics_listen",
      [&control, facts = std::move(facts)]() -> absl::StatusOr<Families> {
        const absl::StatusOr<NodeStatus> status = control.Status();
        if (!status.ok()) return status.status();
        return BuildFamilies(*status, facts);
      },
      {}, access);
}

}  // namespace hedgerow::node
