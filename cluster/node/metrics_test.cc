// SPDX-License-Identifier: Apache-2.0
//
// Scrapes the real HTTP endpoint and reads the page as Prometheus would; every family is documented.

#include "cluster/node/metrics.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <prometheus/check_names.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/node/fake_node_control.h"

namespace hedgerow::node {
namespace {

// A plain HTTP/1.0 GET; the whole answer, or "" when nobody listens.
std::string Get(const std::string& listen, const std::string& path) {
  sockaddr_storage storage;
  const socklen_t bytes = NetAddress::Parse(listen)->ToSockaddr(storage);
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&storage), bytes) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[65536];
    for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;)
      answer.append(buffer, static_cast<size_t>(got));
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

std::unique_ptr<MetricsServer> Serve(NodeControl& control) {
  auto server = MetricsServer::Start("127.0.0.1:0", control, FakeFacts());
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(NodeMetrics, AScrapeShowsTheStatus) {
  FakeNodeControl control;
  const auto server = Serve(control);
  const std::string answer = Get(server->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  auto samples = ParsePage(answer);
  EXPECT_EQ(samples["hedgerow_node_role{role=\"leader\"}"], 1);
  EXPECT_EQ(samples["hedgerow_node_role{role=\"follower\"}"], 0);
  EXPECT_EQ(samples["hedgerow_node_ready"], 1);
  EXPECT_EQ(samples["hedgerow_node_term"], 4);
  EXPECT_EQ(samples["hedgerow_node_leader_id"], 1);
  EXPECT_EQ(samples["hedgerow_node_commit_index"], 1042);
  EXPECT_EQ(samples["hedgerow_node_last_index"], 1043);
  EXPECT_EQ(samples["hedgerow_node_storage_ok"], 1);
  EXPECT_EQ(samples["hedgerow_node_uptime_seconds"], 3720);
  EXPECT_NEAR(samples["hedgerow_node_election_timeout_seconds"], 0.02, 1e-12);
  EXPECT_NEAR(samples["hedgerow_node_peer_last_heard_seconds{peer=\"2\"}"], 0.0031, 1e-12);
  EXPECT_EQ(samples["hedgerow_node_peer_life_known{peer=\"3\"}"], 0);
  EXPECT_FALSE(samples.contains("hedgerow_node_peer_last_heard_seconds{peer=\"3\"}"));
  EXPECT_EQ(samples["hedgerow_node_peer_match_index{peer=\"2\"}"], 1040);
  EXPECT_EQ(samples["hedgerow_node_hkv_requests_total"], 1234);
  EXPECT_EQ(samples["hedgerow_node_peer_dropped_total{reason=\"replayed\"}"], 5);
  EXPECT_EQ(samples["hedgerow_node_peer_dropped_total{reason=\"tag\"}"], 0);
  EXPECT_EQ(samples["hedgerow_node_peer_sent_total{peer=\"2\"}"], 77);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_bucket{le=\"0.001\"}"], 10);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_bucket{le=\"0.002\"}"], 15);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_bucket{le=\"+Inf\"}"], 16);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_count"], 16);
  EXPECT_NEAR(samples["hedgerow_node_storage_sync_seconds_sum"], 0.03, 1e-12);
}

TEST(NodeMetrics, EveryScrapeAsksAnew) {
  FakeNodeControl control;
  const auto server = Serve(control);
  Get(server->address(), "/metrics");
  NodeStatus status = FakeStatus();
  status.term = raft::Term(5);
  control.Set(status);
  EXPECT_EQ(ParsePage(Get(server->address(), "/metrics"))["hedgerow_node_term"], 5);
}

TEST(NodeMetrics, ALoopThatDoesNotAnswerLeavesThePageEmpty) {
  FakeNodeControl control;
  control.Set(absl::DeadlineExceededError("the loop does not answer"));
  const auto server = Serve(control);
  const std::string answer = Get(server->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  EXPECT_FALSE(absl::StrContains(answer, "hedgerow_node_term"));
}

TEST(NodeMetrics, AnEmptyAddressServesNothing) {
  FakeNodeControl control;
  const auto server = MetricsServer::Start("", control, FakeFacts());
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(*server, nullptr);
}

TEST(NodeMetrics, ATakenPortIsAClearError) {
  FakeNodeControl control;
  const auto first = Serve(control);
  const auto second = MetricsServer::Start(first->address(), control, FakeFacts());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(second.status().message(), first->address())) << second.status();
}

TEST(NodeMetrics, NothingListensAfterItsEnd) {
  FakeNodeControl control;
  std::string address;
  {
    const auto server = Serve(control);
    address = server->address();
  }
  EXPECT_EQ(Get(address, "/metrics"), "");
}

// Counters and histograms of the loop are documented by whoever adds them; these are the status's own.
TEST(NodeMetrics, EveryFamilyHasAGoodNameAndIsDocumented) {
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/metrics.md");
  std::stringstream docs;
  docs << file.rdbuf();
  NodeStatus status = FakeStatus();
  status.counters.clear();
  status.histograms.clear();
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : BuildFamilies(status, FakeFacts())) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_TRUE(prometheus::CheckMetricName(family.name)) << family.name;
    EXPECT_TRUE(absl::StartsWith(family.name, "hedgerow_node_")) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_TRUE(absl::StrContains(docs.str(), absl::StrCat("| `", family.name, "` |"))) << family.name;
  }
  EXPECT_GT(names.size(), 15u);
}

}  // namespace
}  // namespace hedgerow::node
