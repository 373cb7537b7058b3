// SPDX-License-Identifier: Apache-2.0
//
// The metrics server; see the header.

#include "proxy/metrics/exporter.h"

#include <exception>
#include <utility>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include "absl/strings/str_cat.h"
#include "proxy/config/address.h"
#include "proxy/metrics/families.h"

namespace hedgerow {
namespace {

class Collector final : public prometheus::Collectable {
 public:
  Collector(EventLoop& loop, Controller& controller) : loop_(loop), controller_(controller) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    using Families = std::vector<prometheus::MetricFamily>;
    absl::StatusOr<Families> families =
        loop_.Call<Families>(absl::Seconds(5), [this]() -> absl::StatusOr<Families> {
          absl::StatusOr<Snapshot> snapshot = controller_.Read();
          if (!snapshot.ok()) return snapshot.status();
          return BuildFamilies(controller_.config(), controller_.facts(), *snapshot);
        });
    // An empty page is what Prometheus can be told: its `up` stays 1, and the alert on absent series fires.
    return families.ok() ? *std::move(families) : Families();
  }

 private:
  EventLoop& loop_;
  Controller& controller_;
};

class RunningExporter final : public MetricsExporter {
 public:
  RunningExporter(std::unique_ptr<prometheus::Exposer> exposer, std::shared_ptr<Collector> collector,
                  std::string address)
      : collector_(std::move(collector)), exposer_(std::move(exposer)), address_(std::move(address)) {}
  std::string address() const override { return address_; }

 private:
  std::shared_ptr<Collector> collector_;
  std::unique_ptr<prometheus::Exposer> exposer_;  // destroyed first: it stops the threads that collect
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const std::string& listen,
                                                                        EventLoop& loop,
                                                                        Controller& controller) {
  const auto endpoint = config::ParseEndpoint(listen);
  if (!endpoint.has_value()) return absl::InvalidArgumentError(absl::StrCat("metrics.listen: ", listen));
  auto collector = std::make_shared<Collector>(loop, controller);
  // prometheus-cpp reports by exception; it ends here.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(listen, /*num_threads=*/2);
    exposer->RegisterCollectable(collector, "/metrics");
    const std::vector<int> ports = exposer->GetListeningPorts();
    const int port = ports.empty() ? endpoint->port : ports.front();
    return std::make_unique<RunningExporter>(
        std::move(exposer), std::move(collector),
        config::FormatEndpoint(endpoint->address, static_cast<uint32_t>(port)));
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", listen, ": ", e.what(),
                                               " (is the port taken? metrics.listen in the configuration)"));
  }
}

}  // namespace hedgerow
