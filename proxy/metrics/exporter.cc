// SPDX-License-Identifier: Apache-2.0
//
// The metrics server; see the header.

#include "proxy/metrics/exporter.h"

#include "absl/time/time.h"
#include "proxy/metrics/families.h"

namespace hedgerow {

absl::StatusOr<std::unique_ptr<operate::MetricsPage>> ServeMetrics(const std::string& listen, EventLoop& loop,
                                                                   Controller& controller) {
  using Families = operate::MetricsPage::Families;
  return operate::MetricsPage::Start(listen, "metrics.listen", [&loop, &controller] {
    return loop.Call<Families>(absl::Seconds(5), [&controller]() -> absl::StatusOr<Families> {
      const absl::StatusOr<Snapshot> snapshot = controller.Read();
      if (!snapshot.ok()) return snapshot.status();
      return BuildFamilies(controller.config(), controller.facts(), *snapshot);
    });
  });
}

}  // namespace hedgerow
