// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow top`: rates are those of the interval, percentiles those of its answers, and the screen fits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proxy/admin/counts.h"
#include "proxy/admin/fake_data_plane.h"
#include "proxy/cli/top_report.h"
#include "proxy/cli/top_screen.h"

namespace hedgerow::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class TopTest : public testing::Test {
 protected:
  v1::Counts Counts() { return BuildCounts(FakeConfig(), {}, fake_.snapshot, programs_); }

  // What happens in the two seconds between `Before` and the report.
  v1::TopReport AfterTwoSeconds() {
    const v1::Counts before = Counts();
    fake_.snapshot.taken_ns += 2'000'000'000;
    ServiceSnapshot& dns = fake_.snapshot.services[0];
    dns.stats.counters[HR_REQUESTS] += 2000;
    dns.stats.counters[HR_WON_BY_HEDGE] += 40;
    dns.stats.counters[HR_HEDGES] += 160;
    dns.stats.counters[HR_LOSERS_DROPPED] += 30;
    dns.stats.reasons[HR_REASON_NO_BUDGET] += 4;
    Record(dns.latency, 300'000, 1980);
    Record(dns.latency, 11'000'000, 20);
    dns.backends[0].sends += 2000;
    Record(dns.backends[0].answer_times, 250'000, 1000);
    programs_[0].run_count += 4000;
    programs_[0].run_time_ns += 4'000'000;
    return BuildTopReport(before, Counts(), only_);
  }

  std::string Text(const v1::TopReport& report, int width, bool colour = false) {
    std::vector<std::string> lines;
    for (const Line& line : LayOutTop(report, width)) lines.push_back(Render(line, width, colour));
    return absl::StrJoin(lines, "\n");
  }

  FakeDataPlane fake_;
  std::vector<ProgramInfo> programs_ = {{.name = "hr_splitter"}, {.name = "hr_reply"}};
  std::vector<std::string> only_;
};

TEST_F(TopTest, RatesAreOfTheIntervalAlone) {
  const v1::TopReport report = AfterTwoSeconds();
  ASSERT_EQ(report.services_size(), 2);
  const v1::TopService& dns = report.services(0);
  EXPECT_EQ(report.interval_ns(), 2'000'000'000);
  EXPECT_DOUBLE_EQ(dns.requests_per_s(), 1000);
  EXPECT_DOUBLE_EQ(dns.hedges_per_s(), 80);
  EXPECT_DOUBLE_EQ(dns.hedge_share(), 0.08);
  EXPECT_DOUBLE_EQ(dns.budget(), 0.05);
  EXPECT_DOUBLE_EQ(dns.hedges_won_per_s(), 20);
  EXPECT_DOUBLE_EQ(dns.losers_dropped_per_s(), 15);
  EXPECT_DOUBLE_EQ(dns.reasons_per_s().at("no_budget"), 2);
  EXPECT_EQ(dns.reasons_per_s().count("retransmission"), 0u) << "that was before";
  EXPECT_DOUBLE_EQ(dns.backends(0).sent_per_s(), 1000);
  EXPECT_DOUBLE_EQ(dns.backends(1).sent_per_s(), 0);
}

TEST_F(TopTest, PercentilesAreOfTheIntervalsAnswersAlone) {
  const v1::TopReport report = AfterTwoSeconds();
  const v1::TopService& dns = report.services(0);
  EXPECT_NEAR(static_cast<double>(dns.p50_ns()), 300'000, 20'000) << "2 ms was the median before";
  EXPECT_NEAR(static_cast<double>(dns.p99_ns()), 300'000, 20'000);
  EXPECT_NEAR(static_cast<double>(dns.backends(0).p99_ns()), 250'000, 20'000);
  EXPECT_EQ(dns.backends(1).p99_ns(), 0) << "no answer in this interval";
}

TEST_F(TopTest, ProgramsAreTimedPerRun) {
  const v1::TopReport report = AfterTwoSeconds();
  EXPECT_DOUBLE_EQ(report.programs(0).runs_per_s(), 2000);
  EXPECT_DOUBLE_EQ(report.programs(0).ns_per_run(), 1000);
  EXPECT_DOUBLE_EQ(report.programs(0).cpu_share(), 0.002);
  EXPECT_DOUBLE_EQ(report.programs(1).ns_per_run(), 0);
}

TEST_F(TopTest, ADaemonThatWasStartedAnewCountsFromZero) {
  const v1::Counts before = Counts();
  FakeDataPlane fresh;
  fresh.snapshot.taken_ns += 1'000'000'000;
  ServiceSnapshot& dns = fresh.snapshot.services[0];
  dns.stats.counters[HR_REQUESTS] = 10;
  dns.latency = Histogram();
  Record(dns.latency, 1'000'000, 3);
  const v1::TopReport report = BuildTopReport(before, BuildCounts(FakeConfig(), {}, fresh.snapshot, programs_), {});
  EXPECT_DOUBLE_EQ(report.services(0).requests_per_s(), 10);
  EXPECT_NEAR(static_cast<double>(report.services(0).p50_ns()), 1'000'000, 70'000);
}

TEST_F(TopTest, ServicesThatWereNotNamedAreLeftOut) {
  only_ = {"echo"};
  const v1::TopReport report = AfterTwoSeconds();
  ASSERT_EQ(report.services_size(), 1);
  EXPECT_EQ(report.services(0).name(), "echo");
}

TEST_F(TopTest, HistogramsCrossTheSocketWhole) {
  const Histogram& latency = fake_.snapshot.services[0].latency;
  const Histogram back = FromDurations(ToDurations(latency));
  EXPECT_EQ(back.buckets, latency.buckets);
  EXPECT_EQ(back.sum_ns, latency.sum_ns);
  EXPECT_EQ(back.max_ns, latency.max_ns);
  v1::Durations lie;
  lie.add_buckets(1'000'000);
  lie.add_counts(1);
  EXPECT_EQ(FromDurations(lie).Count(), 0u) << "a bucket that does not exist";
}

TEST_F(TopTest, ThePageSaysItAllWithin80Columns) {
  const std::string text = Text(AfterTwoSeconds(), 80);
  for (const char* word : {"hedgerow test  running", "dns  10.99.0.53:53  leader a, healthy", "1000/s", "80/s", "8.00%",
                           "of 5.00% allowed", "hedged", "losers dropped 15/s", "no_budget 2.0/s", "splitter", "1000",
                           "0.20%", "in flight 5"})
    EXPECT_THAT(text, HasSubstr(word));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST_F(TopTest, NamesABackendThatOneClientAloneMisses) {
  EXPECT_THAT(Text(AfterTwoSeconds(), 80), Not(HasSubstr("one client")));
  fake_.snapshot.services[0].backends[0].one_client_health = HR_DOWN;
  EXPECT_EQ(AfterTwoSeconds().services(0).backends(0).one_client_health(), "down");
  EXPECT_THAT(Text(AfterTwoSeconds(), 80),
              HasSubstr("\n                   down to one client, which waits there in vain\n"));
}

TEST_F(TopTest, OnAWideScreenTheProgramsStandBeside) {
  const std::string narrow = Text(AfterTwoSeconds(), 80), wide = Text(AfterTwoSeconds(), 130);
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_LT(lines(wide), lines(narrow));
  for (const absl::string_view line : absl::StrSplit(wide, '\n')) {
    EXPECT_LE(line.size(), 130u);
    if (absl::StrContains(line, "ns/run")) {
      EXPECT_EQ(line.find("program"), 82u);
    }
  }
}

TEST_F(TopTest, WhatIsWrongIsMarkedAndSaidInWords) {
  v1::TopReport report = AfterTwoSeconds();
  report.add_problems("uplink eth1 is gone");
  report.mutable_services(0)->set_state("suspect");
  report.mutable_services(0)->set_unanswered_per_s(3);
  report.mutable_services(0)->set_bypass(true);
  report.set_programs_unknown("not counted: needs CAP_SYS_ADMIN");
  const std::string plain = Text(report, 80), coloured = Text(report, 80, true);
  for (const char* word : {"PROBLEM: uplink eth1 is gone", "SUSPECT", "3.0/s unanswered", "BYPASSED", "CAP_SYS_ADMIN"})
    EXPECT_THAT(plain, HasSubstr(word)) << "colours are no word";
  EXPECT_THAT(coloured, HasSubstr("\033[1;31mPROBLEM"));
}

TEST_F(TopTest, ALineIsCutAtTheScreensEdgeAndNotWithinASequence) {
  const Line line = {{"title", Mark::kTitle}, {" and a long rest"}};
  EXPECT_EQ(Render(line, 8, false), "title an");
  EXPECT_EQ(Render(line, 8, true), "\033[1mtitle\033[0m an");
  EXPECT_EQ(Render(line, 3, true), "\033[1mtit\033[0m");
}

TEST_F(TopTest, ManyReasonsTakeAsManyLinesAsTheyNeed) {
  v1::TopReport report = AfterTwoSeconds();
  for (int i = 0; i < 12; ++i)
    (*report.mutable_services(0)->mutable_reasons_per_s())[absl::StrCat("some_reason_", i)] = 1;
  const std::string text = Text(report, 80);
  for (int i = 0; i < 12; ++i) EXPECT_THAT(text, HasSubstr(absl::StrCat("some_reason_", i, " 1.0/s")));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(TopTest, RatesAreReadAtAGlance) {
  EXPECT_EQ(RateText(0), "0");
  EXPECT_EQ(RateText(0.52), "0.5");
  EXPECT_EQ(RateText(12.4), "12");
  EXPECT_EQ(RateText(99'999), "99999");
  EXPECT_EQ(RateText(123'456), "123k");
  EXPECT_EQ(RateText(1'234'567), "1.23M");
}

}  // namespace
}  // namespace hedgerow::cli
