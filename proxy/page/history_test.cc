// SPDX-License-Identifier: Apache-2.0
//
// What is kept of each second, for how long, and what a page that asks again is told.

#include "proxy/page/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;

class HistoryTest : public testing::Test {
 protected:
  // A second later.
  void Second() {
    fake_.snapshot.taken_ns += 1'000'000'000;
    now_ += absl::Seconds(1);
    history_.Record(config_, facts_, fake_.snapshot, now_);
  }
  v1::PageData Since(uint64_t after) { return history_.Since(after, now_); }
  ServiceSnapshot& dns() { return fake_.snapshot.services[0]; }
  void Answered(uint64_t duration_ns, uint64_t times) {
    hedgerow::Record(dns().latency, duration_ns, times);
    hedgerow::Record(dns().backends[0].answer_times, duration_ns, times);
    dns().stats.counters[HR_REQUESTS] += times;
    dns().backends[0].sends += times;
    dns().backends[0].wins += times;
  }

  const v1::Config config_ = FakeConfig();
  DaemonFacts facts_;
  FakeDataPlane fake_;
  absl::Time now_ = absl::FromUnixMillis(1'700'000'000'000);
  History history_{5, "boot"};
};

TEST_F(HistoryTest, BeforeTheFirstSnapshotThereIsNoStatus) {
  const v1::PageData data = Since(0);
  EXPECT_EQ(data.version(), 1u);
  EXPECT_EQ(data.boot(), "boot");
  EXPECT_FALSE(data.has_status());
  EXPECT_EQ(data.services_size(), 0);
}

TEST_F(HistoryTest, WhatHappenedBeforeTheDaemonIsNoSecond) {
  Second();
  const v1::PageData data = Since(0);
  EXPECT_EQ(data.at_ms_size(), 0);
  EXPECT_EQ(data.status().services(0).requests(), 1000u);
  ASSERT_EQ(data.events_size(), 1);
  EXPECT_EQ(data.events(0).kind(), "start");
}

TEST_F(HistoryTest, ASecondIsWhatItAdded) {
  Second();
  Answered(2'000'000, 990);
  Answered(40'000'000, 10);
  dns().stats.counters[HR_HEDGES] += 12;
  dns().stats.counters[HR_WON_BY_HEDGE] += 7;
  dns().stats.reasons[HR_REASON_NO_BUDGET] += 3;
  dns().backends[1].sends += 12;
  Second();
  const v1::PageData data = Since(0);
  EXPECT_THAT(data.at_ms(), ElementsAre(1'700'000'002'000));
  EXPECT_THAT(data.interval_ns(), ElementsAre(1'000'000'000));
  ASSERT_EQ(data.services_size(), 2);
  const v1::PageService& service = data.services(0);
  EXPECT_EQ(service.name(), "dns");
  EXPECT_EQ(service.budget_ppm(), 50'000u);
  EXPECT_THAT(service.requests(), ElementsAre(1000));
  EXPECT_THAT(service.hedges(), ElementsAre(12));
  EXPECT_THAT(service.won_by_hedge(), ElementsAre(7));
  EXPECT_THAT(service.unanswered(), ElementsAre(0));
  EXPECT_NEAR(static_cast<double>(service.p50_ns(0)), 2e6, 0.15e6);
  EXPECT_NEAR(static_cast<double>(service.p99_ns(0)), 2e6, 0.15e6);
  EXPECT_NEAR(static_cast<double>(service.p999_ns(0)), 40e6, 3e6);
  EXPECT_THAT(service.delay_ns(), ElementsAre(10'000'000));
  EXPECT_EQ(service.minute().count(), 1000u);
  EXPECT_NEAR(static_cast<double>(service.minute().p999_ns()), 40e6, 3e6);
  EXPECT_THAT(service.backends(0).sent(), ElementsAre(1000));
  EXPECT_THAT(service.backends(1).sent(), ElementsAre(12));
  EXPECT_EQ(service.backends(0).minute().count(), 1000u);
  ASSERT_EQ(service.reasons_size(), 2);
  EXPECT_EQ(service.reasons(0).name(), "retransmission");
  EXPECT_EQ(service.reasons(0).minute(), 0u);
  EXPECT_EQ(service.reasons(0).total(), 4u);
  EXPECT_EQ(service.reasons(1).name(), "no_budget");
  EXPECT_EQ(service.reasons(1).minute(), 3u);
  // Nobody asked it anything.
  EXPECT_THAT(data.services(1).p50_ns(), ElementsAre(-1));
  EXPECT_EQ(data.services(1).minute().p99_ns(), -1);
}

TEST_F(HistoryTest, WhoAsksAgainIsToldWhatIsNew) {
  Second();
  Second();
  Second();
  EXPECT_EQ(Since(0).at_ms_size(), 2);
  const uint64_t next = Since(0).next();
  EXPECT_EQ(next, 2u);
  EXPECT_EQ(Since(next).at_ms_size(), 0);
  EXPECT_EQ(Since(next).events_size(), 0);
  dns().leader.leader = 1;
  Second();
  const v1::PageData data = Since(next);
  EXPECT_THAT(data.at_ms(), ElementsAre(1'700'000'004'000));
  EXPECT_THAT(data.services(0).requests(), ElementsAre(0));
  ASSERT_EQ(data.events_size(), 1);
  EXPECT_EQ(data.events(0).kind(), "leader");
  EXPECT_EQ(data.events(0).sample(), 3u);
  EXPECT_EQ(data.status().services(0).leader(), "b");
  // A number of another daemon's life: nothing, and the page sees by `boot` that it must begin anew.
  EXPECT_EQ(Since(1000).at_ms_size(), 0);
}

TEST_F(HistoryTest, OnlySoManySecondsAreKept) {
  for (int i = 0; i < 20; ++i) {
    Answered(1'000'000, 1);
    Second();
  }
  const v1::PageData data = Since(0);
  EXPECT_EQ(data.at_ms_size(), 5);
  EXPECT_EQ(data.at_ms(4), absl::ToUnixMillis(now_));
  EXPECT_EQ(data.services(0).requests_size(), 5);
  EXPECT_EQ(data.services(0).backends(1).sent_size(), 5);
  EXPECT_EQ(data.next(), 19u);
}

TEST_F(HistoryTest, EventsAreBounded) {
  Second();
  for (size_t i = 0; i < 2 * History::kMaxEvents; ++i) {
    dns().bypass = !dns().bypass;
    Second();
  }
  EXPECT_EQ(static_cast<size_t>(Since(0).events_size()), History::kMaxEvents);
}

TEST_F(HistoryTest, AKernelPartThatCountsFromZeroIsNoHugeNumber) {
  Second();
  dns().stats = hr_stats{};
  dns().stats.counters[HR_REQUESTS] = 6;
  dns().backends[0].sends = 6;
  Second();
  EXPECT_THAT(Since(0).services(0).requests(), ElementsAre(6));
  EXPECT_THAT(Since(0).services(0).backends(0).sent(), ElementsAre(6));
}

TEST_F(HistoryTest, AServiceMayComeAndGo) {
  Second();
  const ServiceSnapshot kept = dns();
  v1::Config less = config_;
  less.mutable_services()->DeleteSubrange(0, 1);
  fake_.snapshot.services.erase(fake_.snapshot.services.begin());
  fake_.snapshot.taken_ns += 1'000'000'000;
  history_.Record(less, facts_, fake_.snapshot, now_ += absl::Seconds(1));
  EXPECT_EQ(Since(0).services_size(), 1);
  fake_.snapshot.services.insert(fake_.snapshot.services.begin(), kept);
  Second();
  const v1::PageData data = Since(0);
  ASSERT_EQ(data.services_size(), 2);
  EXPECT_THAT(data.services(0).requests(), ElementsAre(0, 0));
}

TEST_F(HistoryTest, AfterAReloadABackendHasItsOwnPast) {
  Second();
  Answered(2'000'000, 10);
  Second();
  std::swap(dns().backends[0], dns().backends[1]);
  BackendSnapshot added;
  added.name = "new";
  dns().backends.push_back(added);
  Second();
  const v1::PageData data = Since(0);
  const v1::PageService& service = data.services(0);
  ASSERT_EQ(service.backends_size(), 3);
  EXPECT_EQ(service.backends(1).name(), "a");
  EXPECT_THAT(service.backends(0).sent(), ElementsAre(0, 0));
  EXPECT_THAT(service.backends(1).sent(), ElementsAre(10, 0));
  EXPECT_THAT(service.backends(2).sent(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace hedgerow
