// SPDX-License-Identifier: Apache-2.0
//
// The metrics server; see the header.

#include "proxy/metrics/exporter.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proxy/config/address.h"
#include "proxy/metrics/families.h"
#include "net/unique_fd.h"

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
  ~RunningExporter() override {
    // civetweb's accepting thread looks for its end once in two seconds, or at the next connection: give it
    // one.
    std::thread stopper([this] { exposer_.reset(); });
    absl::SleepFor(absl::Milliseconds(20));
    Knock();
    stopper.join();
  }
  std::string address() const override { return address_; }

 private:
  void Knock() const {
    const auto endpoint = config::ParseEndpoint(address_);
    if (!endpoint.has_value()) return;
    sockaddr_storage storage{};
    socklen_t bytes = 0;
    const auto wire = endpoint->address.wire();
    if (endpoint->address.is_v4()) {
      auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
      v4->sin_family = AF_INET;
      v4->sin_port = htons(endpoint->port);
      memcpy(&v4->sin_addr, wire.data(), wire.size());
      bytes = sizeof(*v4);
    } else {
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(endpoint->port);
      memcpy(&v6->sin6_addr, wire.data(), wire.size());
      bytes = sizeof(*v6);
    }
    const net::UniqueFd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Refused when the server is faster than we are, which is as good.
    [[maybe_unused]] const int result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), bytes);
  }

  std::shared_ptr<Collector> collector_;
  std::unique_ptr<prometheus::Exposer> exposer_;
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
