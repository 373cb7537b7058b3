// SPDX-License-Identifier: Apache-2.0
#include "operate/metrics_page.h"

#include <utility>

#include <prometheus/text_serializer.h>

#include "operate/log.h"
#include "operate/metric_family.h"

namespace hedgerow::operate {
namespace {

void AddServer(MetricFamilies& families, const HttpCounters& counters) {
  families.push_back(MakeFamily("hedgerow_http_connections_closed_total",
                                "Connections to this page that were closed to make room for newer ones.",
                                prometheus::MetricType::Counter));
  AddCounter(families.back(), {}, counters.connections_closed);
  families.push_back(MakeFamily("hedgerow_http_requests_turned_away_total",
                                "Requests to this page that were answered 503 because too many waited already.",
                                prometheus::MetricType::Counter));
  AddCounter(families.back(), {}, counters.requests_turned_away);
  families.push_back(MakeFamily("hedgerow_http_requests_unauthorized_total",
                                "Requests to this page that were answered 401: without the token, or with a wrong one.",
                                prometheus::MetricType::Counter));
  AddCounter(families.back(), {}, counters.requests_unauthorized);
  families.push_back(MakeFamily("hedgerow_log_lines_lost_total",
                                "Lines of this program's log that were lost: stderr was full, or could not be written.",
                                prometheus::MetricType::Counter));
  AddCounter(families.back(), {}, LostLogLines());
  if (counters.certificate_ends_s == 0) return;
  families.push_back(MakeFamily("hedgerow_http_certificate_ends_timestamp_seconds",
                                "When the certificate of this page ends, in Unix time; absent without TLS.",
                                prometheus::MetricType::Gauge));
  AddGauge(families.back(), {}, static_cast<double>(counters.certificate_ends_s));
}

HttpResponse Scrape(const CollectMetrics& collect, const HttpCounters& counters) {
  absl::StatusOr<MetricFamilies> families = collect();
  if (families.ok()) AddServer(*families, counters);
  // An empty page is what Prometheus can be told: its `up` stays 1, and the alert on absent series fires.
  return {.status = 200,
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = families.ok() ? prometheus::TextSerializer().Serialize(*families) : ""};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetricsPage(const std::string& listen, const std::string& setting,
                                                             CollectMetrics collect, std::vector<HttpRoute> others,
                                                             const HttpAccess& access) {
  const auto counters = std::make_shared<HttpCounters>();
  others.push_back(
      {.path = "/metrics",
       .answer = [collect = std::move(collect), counters](const HttpRequest&) { return Scrape(collect, *counters); },
       .may_wait = true});
  return HttpServer::Start(listen, setting, std::move(others), counters, access);
}

}  // namespace hedgerow::operate
