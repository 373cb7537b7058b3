// SPDX-License-Identifier: Apache-2.0
//
// Scrapes the real HTTP endpoint and reads the page as Prometheus would; every family is documented.

#include "cluster/node/status/metrics.h"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <prometheus/check_names.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "cluster/node/testing/fake_node_control.h"
#include "operate/scrape_test.h"

namespace hedgerow::node {
namespace {

using operate::HttpGet;
using operate::ParsePage;

std::unique_ptr<operate::HttpServer> Serve(NodeControl& control) {
  auto server = ServeMetrics("127.0.0.1:0", {}, control, FakeFacts());
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(NodeMetrics, AScrapeShowsTheStatus) {
  FakeNodeControl control;
  const auto server = Serve(control);
  const std::string answer = HttpGet(server->address(), "/metrics");
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
  EXPECT_EQ(samples["hedgerow_node_peer_incarnation_known{peer=\"3\"}"], 0);
  EXPECT_FALSE(samples.contains("hedgerow_node_peer_last_heard_seconds{peer=\"3\"}"));
  EXPECT_EQ(samples["hedgerow_node_peer_match_index{peer=\"2\"}"], 1040);
  EXPECT_EQ(samples["hedgerow_node_hkv_requests_total"], 1234);
  EXPECT_EQ(samples["hedgerow_node_peer_dropped_total{reason=\"replayed\"}"], 5);
  EXPECT_EQ(samples["hedgerow_node_peer_dropped_total{reason=\"tag\"}"], 0);
  EXPECT_EQ(samples["hedgerow_node_peer_sent_total{peer=\"2\"}"], 77);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_bucket{le=\"0.001048575\"}"], 2);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_bucket{le=\"0.002097151\"}"], 3);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_bucket{le=\"+Inf\"}"], 4);
  EXPECT_EQ(samples["hedgerow_node_storage_sync_seconds_count"], 4);
  EXPECT_NEAR(samples["hedgerow_node_storage_sync_seconds_sum"], 20.004, 1e-9);
}

TEST(NodeMetrics, EveryScrapeAsksAnew) {
  FakeNodeControl control;
  const auto server = Serve(control);
  HttpGet(server->address(), "/metrics");
  NodeStatus status = FakeStatus();
  status.term = raft::Term(5);
  control.Set(status);
  EXPECT_EQ(ParsePage(HttpGet(server->address(), "/metrics"))["hedgerow_node_term"], 5);
}

TEST(NodeMetrics, ALoopThatDoesNotAnswerLeavesThePageEmpty) {
  FakeNodeControl control;
  control.Set(absl::DeadlineExceededError("the loop does not answer"));
  const auto server = Serve(control);
  const std::string answer = HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer.substr(0, 200);
  EXPECT_FALSE(absl::StrContains(answer, "hedgerow_node_term"));
}

TEST(NodeMetrics, AnEmptyAddressServesNothing) {
  FakeNodeControl control;
  const auto server = ServeMetrics("", {}, control, FakeFacts());
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(*server, nullptr);
}

TEST(NodeMetrics, ATakenPortIsAClearError) {
  FakeNodeControl control;
  const auto first = Serve(control);
  const auto second = ServeMetrics(first->address(), {}, control, FakeFacts());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              testing::EndsWith("names the process that has the port; or another metrics_listen)"));
}

TEST(NodeMetrics, TheMemcachedFrontEndIsShownWhereThereIsOne) {
  NodeStatus status = FakeStatus();
  FakeNodeControl control;
  const auto server = Serve(control);
  EXPECT_FALSE(ParsePage(HttpGet(server->address(), "/metrics")).contains("hedgerow_node_memcached_items"));
  v1::Memcached& memcached = status.memcached.emplace();
  memcached.set_items(7);
  memcached.set_item_bytes(900);
  memcached.set_window_requests(3);
  control.Set(status);
  auto samples = ParsePage(HttpGet(server->address(), "/metrics"));
  EXPECT_EQ(samples["hedgerow_node_memcached_items"], 7);
  EXPECT_EQ(samples["hedgerow_node_memcached_item_bytes"], 900);
  EXPECT_EQ(samples["hedgerow_node_memcached_window_requests"], 3);
}

// Counters and histograms of the loop are documented by whoever adds them; these are the status's own.
TEST(NodeMetrics, AnOffloadThatIsOffSaysWhyInOneLine) {
  NodeStatus status = FakeStatus();
  AddOffload(status, "vote", false, "the kernel refused it\n0: (b7) r0 = 1");
  AddOffload(status, "quorum", true, "native XDP on eth0");
  size_t found = 0;
  for (const prometheus::MetricFamily& family : BuildFamilies(status, FakeFacts())) {
    if (family.name != "hedgerow_node_offload_off_info") continue;
    ASSERT_EQ(family.metric.size(), 1u);
    ASSERT_EQ(family.metric[0].label.size(), 2u);
    EXPECT_EQ(family.metric[0].label[0].value, "vote");
    EXPECT_EQ(family.metric[0].label[1].value, "the kernel refused it");
    ++found;
  }
  EXPECT_EQ(found, 1u);
}

TEST(NodeMetrics, EveryFamilyHasAGoodNameAndIsDocumented) {
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/metrics.md");
  std::stringstream docs;
  docs << file.rdbuf();
  NodeStatus status = FakeStatus();
  status.counters.clear();
  status.histograms.Clear();
  status.memcached.emplace();
  status.memory.set_limit_bytes(100);
  status.memory.set_resident_bytes(1);
  status.memory.set_available_bytes(1);
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
