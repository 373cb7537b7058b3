// SPDX-License-Identifier: Apache-2.0
//
// Scrapes the real HTTP endpoint and reads the page as Prometheus would.

#include "proxy/metrics/exporter.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proxy/admin/fake_data_plane.h"
#include "proxy/config/address.h"

namespace hedgerow {
namespace {

// A plain HTTP/1.0 GET; the whole answer, or "" when nobody listens.
std::string Get(const std::string& listen, const std::string& path) {
  const auto endpoint = config::ParseEndpoint(listen);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint->port);
  inet_pton(AF_INET, endpoint->address.ToString().c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[65536];
    for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, got);
  }
  close(fd);
  return answer;
}

// "name{labels}" -> value. A line that is neither comment nor sample fails the test.
std::map<std::string, double> ParsePage(const std::string& answer) {
  std::map<std::string, double> samples;
  const size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return samples;
  for (const absl::string_view line : absl::StrSplit(answer.substr(body + 4), '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "# HELP ") || absl::StartsWith(line, "# TYPE ")) continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    const bool parsed = space != absl::string_view::npos && absl::SimpleAtod(line.substr(space + 1), &value);
    EXPECT_TRUE(parsed) << line;
    if (!parsed) continue;
    EXPECT_TRUE(samples.emplace(std::string(line.substr(0, space)), value).second) << "twice: " << line;
  }
  return samples;
}

class ExporterTest : public testing::Test {
 protected:
  ExporterTest() : runner_([this] { loop_->Run(); }) { controller_.Serve(fake_); }
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
  const auto exporter = MetricsExporter::Start("127.0.0.1:0", *loop_, controller_);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  const std::string answer = Get((*exporter)->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  auto samples = ParsePage(answer);
  EXPECT_EQ(samples["hedgerow_requests_total{service=\"dns\"}"], 1000);
  EXPECT_EQ(samples["hedgerow_hedges_total{service=\"dns\"}"], 21);
  EXPECT_EQ(samples["hedgerow_reasons_total{reason=\"retransmission\",service=\"dns\"}"], 4);
  EXPECT_EQ(samples["hedgerow_reasons_total{reason=\"malformed\"}"], 2);
  EXPECT_EQ(samples["hedgerow_leader{backend=\"a\",service=\"dns\"}"], 1);
  EXPECT_EQ(samples["hedgerow_leader{backend=\"b\",service=\"dns\"}"], 0);
  EXPECT_EQ(samples["hedgerow_in_flight{service=\"dns\"}"], 5);
  EXPECT_EQ(samples["hedgerow_fire_error_seconds_count{service=\"dns\"}"], 21);
  EXPECT_NEAR(samples["hedgerow_fire_error_seconds_sum{service=\"dns\"}"], 20 * 80e-6 + 240e-6, 1e-9);
  EXPECT_EQ(samples["hedgerow_answer_seconds_bucket{backend=\"a\",service=\"dns\",le=\"+Inf\"}"], 970);
  EXPECT_EQ(samples["hedgerow_clock_laps_total"], 4321);
  EXPECT_EQ(samples["hedgerow_map_used_entries{map=\"requests\"}"], 5);
  EXPECT_FALSE(samples.contains("hedgerow_map_used_entries{map=\"flows\"}"));
}

TEST_F(ExporterTest, EveryScrapeReadsAnew) {
  const auto exporter = MetricsExporter::Start("127.0.0.1:0", *loop_, controller_);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  Get((*exporter)->address(), "/metrics");
  ASSERT_TRUE(loop_
                  ->Call<int>(absl::Seconds(5),
                              [this]() -> absl::StatusOr<int> {
                                fake_.snapshot.services[0].stats.counters[HR_REQUESTS] = 1001;
                                return 0;
                              })
                  .ok());
  EXPECT_EQ(ParsePage(Get((*exporter)->address(), "/metrics"))["hedgerow_requests_total{service=\"dns\"}"],
            1001);
}

TEST_F(ExporterTest, ATakenPortIsAClearError) {
  const auto first = MetricsExporter::Start("127.0.0.1:0", *loop_, controller_);
  ASSERT_TRUE(first.ok());
  const auto second = MetricsExporter::Start((*first)->address(), *loop_, controller_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(second.status().message(), (*first)->address())) << second.status();
}

TEST_F(ExporterTest, NothingListensAfterItsEnd) {
  std::string address;
  {
    const auto exporter = MetricsExporter::Start("127.0.0.1:0", *loop_, controller_);
    ASSERT_TRUE(exporter.ok());
    address = (*exporter)->address();
  }
  EXPECT_EQ(Get(address, "/metrics"), "");
}

}  // namespace
}  // namespace hedgerow
