// SPDX-License-Identifier: Apache-2.0
//
// The metrics server; see the header. The families are in metrics_families.cc.

#include "cluster/node/metrics.h"

#include <utility>

namespace hedgerow::node {

absl::StatusOr<std::unique_ptr<operate::MetricsPage>> ServeMetrics(const std::string& listen,
                                                                   NodeControl& control, NodeFacts facts) {
  using Families = operate::MetricsPage::Families;
  if (listen.empty()) return nullptr;
  return operate::MetricsPage::Start(listen, "metrics_listen",
                                     [&control, facts = std::move(facts)]() -> absl::StatusOr<Families> {
                                       const absl::StatusOr<NodeStatus> status = control.Status();
                                       if (!status.ok()) return status.status();
                                       return BuildFamilies(*status, facts);
                                     });
}

}  // namespace hedgerow::node
