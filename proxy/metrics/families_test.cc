// SPDX-License-Identifier: Apache-2.0
//
// Names, labels and histograms of the metrics.

#include "proxy/metrics/families.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

std::vector<prometheus::MetricFamily> Families() {
  FakeDataPlane fake;
  return BuildFamilies(FakeConfig(), DaemonFacts(), fake.snapshot);
}

TEST(BuildFamilies, FollowsTheNamingRules) {
  std::set<std::string> names;
  for (const auto& family : Families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_TRUE(absl::StartsWith(family.name, "hedgerow_")) << family.name;
    EXPECT_EQ(family.type == prometheus::MetricType::Counter, absl::EndsWith(family.name, "_total")) << family.name;
    EXPECT_EQ(family.type == prometheus::MetricType::Histogram,
              absl::EndsWith(family.name, "_seconds") && family.name != "hedgerow_uptime_seconds" &&
                  family.name != "hedgerow_hedge_delay_seconds" &&
                  family.name != "hedgerow_config_last_reload_success_timestamp_seconds")
        << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
  }
}

TEST(BuildFamilies, NoSeriesIsGivenTwice) {
  for (const auto& family : Families()) {
    std::set<std::vector<prometheus::ClientMetric::Label>> series;
    for (const auto& metric : family.metric) {
      auto labels = metric.label;
      std::sort(labels.begin(), labels.end());
      EXPECT_TRUE(series.insert(labels).second) << family.name;
    }
  }
}

TEST(BuildFamilies, AnnouncementsAreCountedByResult) {
  FakeDataPlane fake;
  fake.snapshot.services[0].stats.reasons[HR_REASON_ANNOUNCE_ACCEPTED] = 12;
  fake.snapshot.host.reasons[HR_REASON_ANNOUNCE_TAG] = 3;
  std::map<std::string, double> found;
  for (const auto& family : BuildFamilies(FakeConfig(), DaemonFacts(), fake.snapshot)) {
    if (family.name != "hedgerow_announcements_total") continue;
    for (const auto& metric : family.metric) {
      if (metric.counter.value == 0) continue;
      std::string labels;
      for (const auto& label : metric.label) absl::StrAppend(&labels, label.name, "=", label.value, " ");
      found[labels] = metric.counter.value;
    }
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre(testing::Pair("result=accepted service=dns ", 12),
                                                   testing::Pair("result=tag ", 3)));
}

TEST(BuildFamilies, RequestsGoToBackendsByTheirShares) {
  FakeDataPlane fake;
  v1::Config config = FakeConfig();
  config.mutable_services(0)->set_prefer(v1::PREFER_SOURCE);
  config.mutable_services(0)->mutable_backends(1)->set_weight(3);
  std::map<std::string, double> found;
  for (const auto& family : BuildFamilies(config, DaemonFacts(), fake.snapshot))
    for (const auto& metric : family.metric)
      if (family.name == "hedgerow_requests_to") found[metric.label.at(0).value] = metric.gauge.value;
  EXPECT_THAT(found, testing::UnorderedElementsAre(testing::Pair("a", 0.25), testing::Pair("b", 0.75),
                                                   testing::Pair("only", 1)));
}

// One list of problems: `status` and the alert see the same.
TEST(BuildFamilies, ProblemsAreThoseOfStatus) {
  FakeDataPlane fake;
  DaemonFacts facts;
  facts.problems = {{ProblemCode::kUplinkDown, "uplink eth1 is down"}};
  fake.snapshot.services[0].backends[1].health = HR_SUSPECT;
  std::map<std::string, double> found;
  for (const auto& family : BuildFamilies(FakeConfig(), facts, fake.snapshot)) {
    for (const auto& metric : family.metric) {
      if (family.name == "hedgerow_problems") found["all"] = metric.gauge.value;
      if (family.name == "hedgerow_problem_active") found[metric.label.at(0).value] = metric.gauge.value;
    }
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre(testing::Pair("all", 2), testing::Pair("uplink_down", 1),
                                                   testing::Pair("backend_suspect", 1)));
}

TEST(BuildFamilies, AReloadThatDidNotComeIntoForceShows) {
  const auto successful = [](ReloadResult last) {
    FakeDataPlane fake;
    DaemonFacts facts;
    facts.reload.last = last;
    for (const auto& family : BuildFamilies(FakeConfig(), facts, fake.snapshot)) {
      if (family.name == "hedgerow_config_last_reload_successful") return family.metric.at(0).gauge.value;
    }
    return -1.0;
  };
  for (const ReloadResult good : {ReloadResult::kNone, ReloadResult::kApplied, ReloadResult::kUnchanged})
    EXPECT_EQ(successful(good), 1) << ReloadWord(good);
  for (const ReloadResult bad : {ReloadResult::kInvalid, ReloadResult::kRefused, ReloadResult::kFailed})
    EXPECT_EQ(successful(bad), 0) << ReloadWord(bad);
}

TEST(ToPrometheus, CountsEverySampleOnceAndInItsPlace) {
  Histogram histogram;
  uint64_t recorded = 0;
  for (uint64_t ns = 100; ns < 100'000'000'000; ns = ns * 5 / 4) {
    Record(histogram, ns, 1);
    ++recorded;
  }
  const auto out = ToPrometheus(histogram);
  EXPECT_EQ(out.sample_count, recorded);
  EXPECT_EQ(out.bucket.back().cumulative_count, recorded);
  double last_bound = 0;
  uint64_t last_count = 0;
  for (const auto& bucket : out.bucket) {
    EXPECT_GT(bucket.upper_bound, last_bound);
    EXPECT_GE(bucket.cumulative_count, last_count);
    last_bound = bucket.upper_bound;
    last_count = bucket.cumulative_count;
    uint64_t below = 0;
    for (uint64_t ns = 100; ns < 100'000'000'000; ns = ns * 5 / 4) {
      if (static_cast<double>(ns) / 1e9 < bucket.upper_bound) ++below;
    }
    EXPECT_EQ(bucket.cumulative_count, below) << bucket.upper_bound;
  }
  EXPECT_LT(out.bucket.size(), 50u);
}

TEST(ToPrometheus, AnEmptyHistogramIsAllZeros) {
  const auto out = ToPrometheus(Histogram());
  EXPECT_EQ(out.sample_count, 0u);
  EXPECT_EQ(out.sample_sum, 0);
  for (const auto& bucket : out.bucket) EXPECT_EQ(bucket.cumulative_count, 0u);
}

}  // namespace
}  // namespace hedgerow
