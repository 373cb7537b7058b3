// SPDX-License-Identifier: Apache-2.0
//
// Scrapes the real HTTP endpoint: what it shows, where it listens, and that it ends.

#include "operate/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "operate/scrape_test.h"

namespace hedgerow::operate {
namespace {

// One gauge.
MetricFamilies Answer(double value) {
  prometheus::MetricFamily family;
  family.name = "answer";
  family.help = "To everything.";
  family.type = prometheus::MetricType::Gauge;
  family.metric.emplace_back();
  family.metric.back().gauge.value = value;
  return {family};
}

std::unique_ptr<HttpServer> Serve(const std::string& listen, CollectMetrics collect) {
  auto page = ServeMetricsPage(listen, "metrics.listen", std::move(collect));
  EXPECT_TRUE(page.ok()) << page.status();
  return *std::move(page);
}

TEST(MetricsPage, EveryScrapeCollectsAnew) {
  double value = 41;
  const auto page = Serve("127.0.0.1:0", [&value] { return Answer(++value); });
  const std::string answer = HttpGet(page->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  EXPECT_EQ(ParsePage(answer)["answer"], 42);
  EXPECT_EQ(ParsePage(HttpGet(page->address(), "/metrics"))["answer"], 43);
}

TEST(MetricsPage, AnIpv6AddressIsServedOrRefusedInWords) {
  const auto page = ServeMetricsPage("[::1]:0", "metrics.listen", [] { return Answer(1); });
  if (page.ok()) {
    EXPECT_EQ(ParsePage(HttpGet((*page)->address(), "/metrics"))["answer"], 1);
  } else {
    EXPECT_THAT(std::string(page.status().message()), testing::StartsWith("cannot listen on [::1]:0: "));
  }
}

TEST(MetricsPage, IsEmptyWhenCollectingFails) {
  const auto page = Serve("127.0.0.1:0", [] { return absl::DeadlineExceededError("the loop does not answer"); });
  const std::string answer = HttpGet(page->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  EXPECT_FALSE(ParsePage(answer).contains("answer"));
}

TEST(MetricsPage, ATakenPortIsAnErrorThatNamesTheSetting) {
  const auto first = Serve("127.0.0.1:0", [] { return Answer(1); });
  const auto second = ServeMetricsPage(first->address(), "metrics.listen", [] { return Answer(2); });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  const std::string message(second.status().message());
  EXPECT_THAT(message, testing::StartsWith(absl::StrCat("cannot listen on ", first->address(), ": ")));
  EXPECT_THAT(message, testing::HasSubstr("`ss -ltnp 'sport = :"));
}

TEST(MetricsPage, AnAddressThatNoInterfaceHasIsCalledThat) {
  const auto page = ServeMetricsPage("192.0.2.1:9464", "metrics.listen", [] { return Answer(1); });
  EXPECT_THAT(std::string(page.status().message()),
              testing::EndsWith("(the address is none of this host's; or another metrics.listen)"));
}

TEST(MetricsPage, RefusesWhatIsNoAddressWithPort) {
  for (const char* listen : {"", ":", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:1x", "::1:9464",
                             "[::1:9464", "[127.0.0.1]:9464", "localhost:9464"}) {
    const auto page = ServeMetricsPage(listen, "metrics_listen", [] { return Answer(1); });
    EXPECT_EQ(page.status().code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_EQ(page.status().message(),
              absl::StrCat("metrics_listen: got \"", listen, "\", expected ADDRESS:PORT or unix:/PATH"));
  }
}

TEST(MetricsPage, EndsAtOnceAndNothingListensAfterwards) {
  auto page = Serve("127.0.0.1:0", [] { return Answer(1); });
  const std::string address = page->address();
  const absl::Time before = absl::Now();
  page.reset();
  EXPECT_LT(absl::Now() - before, absl::Seconds(HttpServer::kIdleSeconds / 2)) << "it waits for no time-out";
  EXPECT_EQ(HttpGet(address, "/metrics"), "");
}

}  // namespace
}  // namespace hedgerow::operate
