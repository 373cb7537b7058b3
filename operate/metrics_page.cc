// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server of prometheus-cpp; see the header.

#include "operate/metrics_page.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hedgerow::operate {
namespace {

constexpr size_t kHttpThreads = 2;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;  // 0: the text is no address with a port
};

SocketAddress ParseAddress(absl::string_view text) {
  SocketAddress result;
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return result;
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (bracketed != (host.find(':') != absl::string_view::npos)) return result;
  const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  const std::string port(text.substr(colon + 1));
  // No host would be taken for this one.
  if (host.empty() || port.empty()) return result;
  if (getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found) != 0) return result;
  memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(MetricsPage::Collect collect) : collect_(std::move(collect)) {}

  MetricsPage::Families Collect() const override {
    absl::StatusOr<MetricsPage::Families> families = collect_();
    // An empty page is what Prometheus can be told: its `up` stays 1, and the alert on absent series fires.
    return families.ok() ? *std::move(families) : MetricsPage::Families();
  }

 private:
  const MetricsPage::Collect collect_;
};

class RunningPage final : public MetricsPage {
 public:
  RunningPage(std::unique_ptr<prometheus::Exposer> exposer, std::shared_ptr<Collector> collector,
              std::string address)
      : collector_(std::move(collector)), exposer_(std::move(exposer)), address_(std::move(address)) {}
  ~RunningPage() override {
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
    const SocketAddress address = ParseAddress(address_);
    const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    // Refused when the server is faster than we are, which is as good.
    [[maybe_unused]] const int result =
        connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes);
    close(fd);
  }

  std::shared_ptr<Collector> collector_;  // the exposer knows it by a weak pointer
  std::unique_ptr<prometheus::Exposer> exposer_;
  const std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Start(const std::string& listen,
                                                                const std::string& setting, Collect collect) {
  if (ParseAddress(listen).bytes == 0) return absl::InvalidArgumentError(absl::StrCat(setting, ": ", listen));
  auto collector = std::make_shared<Collector>(std::move(collect));
  // prometheus-cpp reports by exception; it ends here.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(listen, kHttpThreads);
    exposer->RegisterCollectable(collector, "/metrics");
    const std::vector<int> ports = exposer->GetListeningPorts();
    const std::string address =
        ports.empty() ? listen : absl::StrCat(listen.substr(0, listen.rfind(':')), ":", ports.front());
    return std::make_unique<RunningPage>(std::move(exposer), std::move(collector), address);
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", listen, ": ", e.what(),
                                               " (is the port taken? ", setting, " in the configuration)"));
  }
}

}  // namespace hedgerow::operate
