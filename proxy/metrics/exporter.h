// SPDX-License-Identifier: Apache-2.0
//
// Serves /metrics over HTTP on a loopback address. Each scrape reads the data
// plane on the event loop's thread, so that the numbers are of one moment.

#ifndef HEDGEROW_PROXY_METRICS_EXPORTER_H_
#define HEDGEROW_PROXY_METRICS_EXPORTER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proxy/admin/controller.h"
#include "proxy/daemon/event_loop.h"

namespace hedgerow {

class MetricsExporter {
 public:
  // `listen` as in the configuration, not empty. `loop` and `controller` must outlive the exporter.
  static absl::StatusOr<std::unique_ptr<MetricsExporter>> Start(const std::string& listen, EventLoop& loop,
                                                                Controller& controller);
  virtual ~MetricsExporter() = default;
  // Where it really listens: with port 0 the one that was free.
  virtual std::string address() const = 0;
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_METRICS_EXPORTER_H_
