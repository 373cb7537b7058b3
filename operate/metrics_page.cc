// SPDX-License-Identifier: Apache-2.0
//
// Families as the text that Prometheus reads; see the header.

#include "operate/metrics_page.h"

#include <utility>

#include <prometheus/text_serializer.h>

namespace hedgerow::operate {
namespace {

HttpResponse Scrape(const MetricsPage::Collect& collect) {
  const absl::StatusOr<MetricsPage::Families> families = collect();
  // An empty page is what Prometheus can be told: its `up` stays 1, and the alert on absent series fires.
  return {.status = 200,
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = families.ok() ? prometheus::TextSerializer().Serialize(*families) : ""};
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Start(const std::string& listen,
                                                                const std::string& setting, Collect collect,
                                                                std::vector<HttpRoute> others) {
  std::vector<HttpRoute> routes = std::move(others);
  routes.push_back({.path = "/metrics",
                    .answer = [collect = std::move(collect)](const HttpRequest&) { return Scrape(collect); },
                    .may_wait = true});
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(listen, setting, std::move(routes));
  if (!server.ok()) return server.status();
  return std::unique_ptr<MetricsPage>(new MetricsPage(*std::move(server)));
}

}  // namespace hedgerow::operate
