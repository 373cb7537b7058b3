// SPDX-License-Identifier: Apache-2.0
//
// Scrapes the real HTTP endpoint and reads the page as Prometheus would.

#include "proxy/metrics/exporter.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "operate/scrape_test.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using operate::HttpGet;
using operate::ParsePage;

class ExporterTest : public testing::Test {
 protected:
  ExporterTest() : runner_([this] { loop_->Run(); }) { controller_.Serve(fake_, fake_); }
  ~ExporterTest() override {
    loop_->Stop();
    runner_.join();
  }
  const v1::Config config_ = FakeConfig();
  DaemonFacts facts_;
  FakeDataPlane fake_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  Controller controller_{config_, facts_, nullptr};
  std::thread runner_;
};

TEST_F(ExporterTest, AScrapeShowsTheSnapshot) {
  const auto exporter = ServeMetrics("127.0.0.1:0", {}, *loop_, controller_);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  const std::string answer = HttpGet((*exporter)->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  auto samples = ParsePage(answer);
  EXPECT_EQ(samples["hedgerow_requests_total{service=\"dns\"}"], 1000);
  EXPECT_EQ(samples["hedgerow_hedges_total{service=\"dns\"}"], 21);
  EXPECT_EQ(samples["hedgerow_reasons_total{reason=\"retransmission\",service=\"dns\"}"], 4);
  EXPECT_EQ(samples["hedgerow_reasons_total{reason=\"malformed\"}"], 2);
  EXPECT_EQ(samples["hedgerow_leader{backend=\"a\",service=\"dns\"}"], 1);
  EXPECT_EQ(samples["hedgerow_leader{backend=\"b\",service=\"dns\"}"], 0);
  EXPECT_EQ(samples["hedgerow_budget_ratio{service=\"dns\"}"], 0.05);
  EXPECT_EQ(samples["hedgerow_in_flight{service=\"dns\"}"], 5);
  EXPECT_EQ(samples["hedgerow_fire_error_seconds_count{service=\"dns\"}"], 21);
  EXPECT_NEAR(samples["hedgerow_fire_error_seconds_sum{service=\"dns\"}"], 20 * 80e-6 + 240e-6, 1e-9);
  EXPECT_EQ(samples["hedgerow_answer_seconds_bucket{backend=\"a\",service=\"dns\",le=\"+Inf\"}"], 970);
  EXPECT_EQ(samples["hedgerow_clock_laps_total"], 4321);
  EXPECT_EQ(samples["hedgerow_map_used_entries{map=\"requests\"}"], 5);
  EXPECT_FALSE(samples.contains("hedgerow_map_used_entries{map=\"flows\"}"));
}

TEST_F(ExporterTest, EveryScrapeReadsAnew) {
  const auto exporter = ServeMetrics("127.0.0.1:0", {}, *loop_, controller_);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  HttpGet((*exporter)->address(), "/metrics");
  ASSERT_TRUE(loop_
                  ->Call<int>(absl::Seconds(5),
                              [this]() -> absl::StatusOr<int> {
                                fake_.snapshot.services[0].stats.counters[HR_REQUESTS] = 1001;
                                return 0;
                              })
                  .ok());
  EXPECT_EQ(ParsePage(HttpGet((*exporter)->address(), "/metrics"))["hedgerow_requests_total{service=\"dns\"}"], 1001);
}

TEST_F(ExporterTest, ATakenPortIsAClearError) {
  const auto first = ServeMetrics("127.0.0.1:0", {}, *loop_, controller_);
  ASSERT_TRUE(first.ok());
  const auto second = ServeMetrics((*first)->address(), {}, *loop_, controller_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              testing::EndsWith("names the process that has the port; or another metrics.listen)"));
}

}  // namespace
}  // namespace hedgerow
