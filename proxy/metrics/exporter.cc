// SPDX-License-Identifier: Apache-2.0
#include "proxy/metrics/exporter.h"

#include <utility>

#include "absl/time/time.h"
#include "proxy/metrics/families.h"

namespace hedgerow {

absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access, EventLoop& loop,
                                                                  Controller& controller,
                                                                  std::vector<operate::HttpRoute> others) {
  using Families = operate::MetricFamilies;
  const auto collect = [&loop, &controller] {
    return loop.Call<Families>(absl::Seconds(5), [&loop, &controller]() -> absl::StatusOr<Families> {
      const absl::StatusOr<Snapshot> snapshot = controller.Read();
      if (!snapshot.ok()) return snapshot.status();
      DaemonFacts facts = controller.facts();
      facts.loop_turns = loop.turns();
      return BuildFamilies(controller.config(), facts, *snapshot);
    });
  };
  return operate::ServeMetricsPage(listen, "metrics.listen", collect, std::move(others), access);
}

}  // namespace hedgerow
