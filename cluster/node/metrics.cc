// SPDX-License-Identifier: Apache-2.0
//
// The metrics server; see the header. The families are in metrics_families.cc.

#include "cluster/node/metrics.h"

#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hedgerow::node {
namespace {

constexpr size_t kHttpThreads = 2;

class Collector final : public prometheus::Collectable {
 public:
  Collector(NodeControl& control, NodeFacts facts) : control_(control), facts_(std::move(facts)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const absl::StatusOr<NodeStatus> status = control_.Status();
    // An empty page is what Prometheus can be told: its `up` stays 1, and the alert on absent series fires.
    if (!status.ok()) return {};
    return BuildFamilies(*status, facts_);
  }

 private:
  NodeControl& control_;
  const NodeFacts facts_;
};

class RunningServer final : public MetricsServer {
 public:
  RunningServer(std::unique_ptr<prometheus::Exposer> exposer, std::shared_ptr<Collector> collector,
                std::string address)
      : collector_(std::move(collector)), exposer_(std::move(exposer)), address_(std::move(address)) {}
  ~RunningServer() override {
    // civetweb's accepting thread looks for its end once in two
    // seconds, or at the next connection: give it one.
    std::thread stopper([this] { exposer_.reset(); });
    absl::SleepFor(absl::Milliseconds(20));
    Knock();
    stopper.join();
  }
  std::string address() const override { return address_; }

 private:
  void Knock() const {
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(address_);
    if (!address.ok()) return;
    sockaddr_storage storage;
    const socklen_t bytes = address->ToSockaddr(storage);
    const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    // Refused when the server is faster than we are, which is as good.
    [[maybe_unused]] const int result = connect(fd, reinterpret_cast<const sockaddr*>(&storage), bytes);
    close(fd);
  }

  std::shared_ptr<Collector> collector_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    NodeControl& control, NodeFacts facts) {
  if (listen.empty()) return nullptr;
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("metrics_listen: ", listen));
  auto collector = std::make_shared<Collector>(control, std::move(facts));
  // prometheus-cpp reports by exception; it ends here.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(listen, kHttpThreads);
    exposer->RegisterCollectable(collector, "/metrics");
    const std::vector<int> ports = exposer->GetListeningPorts();
    const std::string address =
        ports.empty() ? listen : absl::StrCat(listen.substr(0, colon), ":", ports.front());
    return std::make_unique<RunningServer>(std::move(exposer), std::move(collector), address);
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", listen, ": ", e.what(),
                                               " (is the port taken? metrics_listen in the configuration)"));
  }
}

}  // namespace hedgerow::node
