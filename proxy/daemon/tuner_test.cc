// SPDX-License-Identifier: Apache-2.0
//
// What the policy makes of counters: the windows, the delay, who is preferred. Time is a number here.

#include "proxy/daemon/tuner.h"

#include <gtest/gtest.h>

#include "bpf/proxy/load.h"
#include "proxy/admin/fake_data_plane.h"
#include "proxy/instance/answer_history.h"

namespace hedgerow {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kS = 1'000 * kMs;

double Ms(uint64_t ns) { return static_cast<double>(ns) / static_cast<double>(kMs); }

// ---- Windows ----

TEST(AnswerWindows, HoldsTwentyToThirtySeconds) {
  AnswerWindows windows;
  Histogram total;
  uint64_t now_ns = kS;
  Record(total, 50 * kMs, 100);  // a slow start
  EXPECT_EQ(windows.Recent(now_ns, total).Count(), 100u);
  for (int second = 1; second <= 45; ++second) {
    now_ns += kS;
    Record(total, kMs, 10);
    const Histogram recent = windows.Recent(now_ns, total);
    if (second < 20) {
      EXPECT_GT(Ms(recent.QuantileNs(0.99)), 40) << second;
    }
    if (second >= 30) {
      EXPECT_LT(Ms(recent.QuantileNs(0.99)), 2) << second;
      EXPECT_GE(recent.Count(), 200u) << second;
    }
  }
}

TEST(OrdinarySecond, KnowsNothingBeforeTwentySamples) {
  OrdinarySecond ordinary;
  Histogram total;
  EXPECT_EQ(ordinary.P95Ns(kS, total), 0u);
  Record(total, kMs, 19);
  EXPECT_EQ(ordinary.P95Ns(3 * kS, total), 0u);
  Record(total, kMs, 1);
  EXPECT_NEAR(Ms(ordinary.P95Ns(4 * kS, total)), 1, 0.07);
}

TEST(OrdinarySecond, ForgetsAfterThirtySecondsOfNothing) {
  OrdinarySecond ordinary;
  Histogram total;
  ordinary.P95Ns(kS, total);
  Record(total, kMs, 100);
  EXPECT_GT(ordinary.P95Ns(2 * kS, total), 0u);
  EXPECT_GT(ordinary.P95Ns(31 * kS, total), 0u);
  EXPECT_EQ(ordinary.P95Ns(34 * kS, total), 0u);
}

// The fault that this class mends: the leader stands still for half of every second. 300 requests/s: 150 are
// answered at once, and the pause is one sample, whatever it held back.
TEST(OrdinarySecond, AnOutageInEverySecondIsNotLearned) {
  OrdinarySecond ordinary;
  Histogram total;
  for (uint64_t second = 1; second < 60; ++second) {
    Record(total, kMs / 2, 150);
    Record(total, 500 * kMs, 1);
    EXPECT_LT(Ms(ordinary.P95Ns(second * kS, total)), 1) << second;
  }
}

// 5 requests/s: 20 samples take four seconds.
TEST(OrdinarySecond, NorIsOnePauseInTwentySamplesOfAQuietService) {
  OrdinarySecond ordinary;
  Histogram total;
  for (uint64_t second = 1; second < 120; ++second) {
    Record(total, kMs, second % 4 == 0 ? 4 : 5);
    if (second % 4 == 0) Record(total, 500 * kMs, 1);
    EXPECT_LT(Ms(ordinary.P95Ns(second * kS, total)), 2) << second;
  }
}

TEST(OrdinarySecond, ABackendWhoseAnswersAreAllPausesIsSlow) {
  OrdinarySecond ordinary;
  Histogram total;
  uint64_t p95_ns = 0;
  for (uint64_t second = 1; second < 20; ++second) {
    Record(total, 150 * kMs, 5);
    p95_ns = ordinary.P95Ns(second * kS, total);
  }
  EXPECT_GE(Ms(p95_ns), 150);
}

TEST(OrdinarySecond, SlownessThatIsAlwaysThereStays) {
  OrdinarySecond ordinary;
  Histogram total;
  uint64_t p95_ns = 0;
  for (uint64_t second = 1; second < 20; ++second) {
    Record(total, 2 * kMs, 940);
    Record(total, 400 * kMs, 60);
    p95_ns = ordinary.P95Ns(second * kS, total);
  }
  EXPECT_GT(Ms(p95_ns), 390);
}

TEST(OrdinarySecond, ABackendThatBecomesSlowIsBelievedAfterThreeSeconds) {
  OrdinarySecond ordinary;
  Histogram total;
  for (uint64_t second = 1; second <= 30; ++second) {
    Record(total, kMs, 100);
    ordinary.P95Ns(second * kS, total);
  }
  for (uint64_t second = 31; second <= 34; ++second) {
    Record(total, 40 * kMs, 100);
    EXPECT_EQ(Ms(ordinary.P95Ns(second * kS, total)) > 35, second >= 33) << second;
  }
}

TEST(OrdinarySecond, TakesSeveralSecondsOfAQuietService) {
  OrdinarySecond ordinary;
  Histogram total;
  uint64_t p95_ns = 0;
  for (uint64_t second = 1; second < 40; ++second) {
    Record(total, 3 * kMs, 2);
    p95_ns = ordinary.P95Ns(second * kS, total);
    EXPECT_EQ(p95_ns > 0, second > 10) << second;
  }
  EXPECT_NEAR(Ms(p95_ns), 3, 0.2);
}

// ---- The delay ----

v1::Service Adaptive(uint32_t budget_ppm) {
  v1::Service service;
  service.set_delay_ns(10 * kMs);
  service.set_deadline_ns(2 * kS);
  service.set_budget_ppm(budget_ppm);
  service.mutable_adaptive()->set_floor_ns(kMs);
  service.mutable_adaptive()->set_cap_ns(100 * kMs);
  return service;
}

Histogram OneToHundredMs() {
  Histogram histogram;
  for (uint64_t ms = 1; ms <= 100; ++ms) Record(histogram, ms * kMs, 10);
  return histogram;
}

TEST(AdaptiveDelay, LeavesAsMuchToHedgeAsTheBudgetAllows) {
  EXPECT_NEAR(Ms(AdaptiveDelayNs(Adaptive(50'000), OneToHundredMs())), 95, 6);
  EXPECT_NEAR(Ms(AdaptiveDelayNs(Adaptive(200'000), OneToHundredMs())), 80, 5);
}

TEST(AdaptiveDelay, StaysBetweenFloorAndCap) {
  EXPECT_EQ(AdaptiveDelayNs(Adaptive(0), OneToHundredMs()), 100 * kMs);
  Histogram fast;
  Record(fast, kMs / 10, 1000);
  EXPECT_EQ(AdaptiveDelayNs(Adaptive(50'000), fast), kMs);
  EXPECT_EQ(AdaptiveDelayNs(Adaptive(1'000'000), OneToHundredMs()), 1'015'808u) << "the least there was";
}

TEST(AdaptiveDelay, IsTheFixedOneBeforeTwentySamplesAndWithoutTheBlock) {
  Histogram few;
  Record(few, 50 * kMs, 19);
  EXPECT_EQ(AdaptiveDelayNs(Adaptive(50'000), few), 10 * kMs);
  Record(few, 50 * kMs, 1);
  EXPECT_NEAR(Ms(AdaptiveDelayNs(Adaptive(50'000), few)), 50, 3);
  v1::Service fixed = Adaptive(50'000);
  fixed.clear_adaptive();
  EXPECT_EQ(AdaptiveDelayNs(fixed, OneToHundredMs()), 10 * kMs);
}

class TunerTest : public testing::Test {
 protected:
  TunerTest() {
    v1::Service& dns = *config_.mutable_services(0);
    dns.mutable_adaptive()->set_floor_ns(kMs);
    dns.mutable_adaptive()->set_cap_ns(100 * kMs);
    for (ServiceSnapshot& service : fake_.snapshot.services)
      for (BackendSnapshot& backend : service.backends) backend.answer_times = backend.ordinary_times = Histogram();
  }
  BackendSnapshot& Backend(size_t i) { return fake_.snapshot.services[0].backends[i]; }
  uint64_t TuneOneSecond() {
    fake_.snapshot.taken_ns += kS;
    EXPECT_TRUE(tuner().Tune(fake_.snapshot, fake_).ok());
    return fake_.snapshot.services[0].delay_ns;
  }
  Tuner& tuner() {
    if (!tuner_.has_value()) tuner_.emplace(config_);
    return *tuner_;
  }

  v1::Config config_ = FakeConfig();
  FakeDataPlane fake_;
  std::optional<Tuner> tuner_;
};

TEST_F(TunerTest, WritesTheDelayOfAdaptiveServicesOnly) {
  fake_.snapshot.services[1].delay_ns = 77;
  Record(Backend(0).answer_times, 3 * kMs, 100);
  Record(fake_.snapshot.services[1].backends[0].answer_times, 3 * kMs, 100);
  EXPECT_NEAR(Ms(TuneOneSecond()), 3, 0.2);
  EXPECT_EQ(fake_.snapshot.services[1].delay_ns, 77u);
}

TEST_F(TunerTest, TellsWhoIsNotHealthyAndWhoIsAgain) {
  Backend(1).health = HR_DOWN;
  TuneOneSecond();
  EXPECT_EQ(fake_.unhealthy.at("dns"), std::vector<size_t>{1});
  Backend(1).health = HR_HEALTHY;
  TuneOneSecond();
  EXPECT_TRUE(fake_.unhealthy.at("dns").empty());
}

TEST_F(TunerTest, TellsWhichBackendsWereNeverHeard) {
  Backend(0).last_receive_ns = 1;
  for (int look = 0; look < Tuner::kLooksBeforeTests; ++look) {
    TuneOneSecond();
    EXPECT_TRUE(fake_.unhealthy.at("dns").empty()) << "requests may still come to it by themselves";
  }
  TuneOneSecond();
  EXPECT_EQ(fake_.unhealthy.at("dns"), std::vector<size_t>{1});
  Backend(1).last_receive_ns = 1;
  TuneOneSecond();
  EXPECT_TRUE(fake_.unhealthy.at("dns").empty());
}

TEST_F(TunerTest, WhatAnEarlierDaemonSawIsPlayedBackToTheNextOne) {
  AnswerHistory::Memory memory{};
  Record(Backend(0).answer_times, 50 * kMs, 1000);  // long ago
  for (int second = 0; second < 75; ++second) {
    Record(Backend(0).answer_times, 3 * kMs, 100);
    Record(Backend(0).ordinary_times, 3 * kMs, 100);
    Backend(0).unanswered = 1;
    EXPECT_GT(TuneOneSecond(), 0u);
    AnswerHistory::Note(memory, fake_.snapshot.taken_ns, Backend(0));
  }
  const auto past = AnswerHistory::Past(memory);
  ASSERT_EQ(past.size(), AnswerHistory::kMoments);
  Tuner next(config_);
  for (const AnswerHistory::Moment& moment : past) {
    Snapshot seen = fake_.snapshot;
    seen.taken_ns = moment.at_ns;
    seen.services[0].backends[0].answer_times = moment.answer_times;
    seen.services[0].backends[0].ordinary_times = moment.ordinary_times;
    seen.services[0].backends[0].unanswered = moment.unanswered;
    next.Recall(seen);
  }
  fake_.snapshot.taken_ns += kS;
  Record(Backend(0).answer_times, 3 * kMs, 100);
  ASSERT_TRUE(next.Tune(fake_.snapshot, fake_).ok());
  EXPECT_NEAR(Ms(fake_.snapshot.services[0].delay_ns), 3, 0.2);
  EXPECT_NEAR(Ms(Backend(0).p95_ns), 3, 0.2);
  Tuner forgetful(config_);
  ASSERT_TRUE(forgetful.Tune(fake_.snapshot, fake_).ok());
  EXPECT_GT(Ms(fake_.snapshot.services[0].delay_ns), 40) << "without it all is remembered";
}

TEST_F(TunerTest, UnansweredRequestsCountAsTheDeadlineForTheDelayAndNotForSilence) {
  config_.mutable_services(0)->mutable_adaptive()->set_cap_ns(10 * kS);
  for (int second = 0; second < 5; ++second) {
    Record(Backend(0).answer_times, 3 * kMs, 90);
    Record(Backend(0).ordinary_times, 3 * kMs, 90);
    Backend(0).unanswered += 10;
    TuneOneSecond();
  }
  EXPECT_EQ(fake_.snapshot.services[0].delay_ns, 2 * kS);
  EXPECT_NEAR(Ms(Backend(0).p95_ns), 3, 0.2);
}

TEST_F(TunerTest, FollowsARiseWithinSecondsAndAFallWithinThirty) {
  for (int second = 0; second < 40; ++second) {
    Record(Backend(0).answer_times, 2 * kMs, 1000);
    TuneOneSecond();
  }
  EXPECT_NEAR(Ms(fake_.snapshot.services[0].delay_ns), 2, 0.2);
  for (int second = 0; second < 3; ++second) {
    Record(Backend(0).answer_times, 40 * kMs, 1000);
    TuneOneSecond();
  }
  EXPECT_NEAR(Ms(fake_.snapshot.services[0].delay_ns), 40, 3);
  for (int second = 0; second < 30; ++second) {
    Record(Backend(0).answer_times, 2 * kMs, 1000);
    TuneOneSecond();
  }
  EXPECT_NEAR(Ms(fake_.snapshot.services[0].delay_ns), 2, 0.2);
}

TEST_F(TunerTest, TheDelayIsOfTheBackendThatGetsTheRequests) {
  for (int second = 0; second < 5; ++second) {
    Record(Backend(0).answer_times, 40 * kMs, 1000);
    TuneOneSecond();
  }
  EXPECT_NEAR(Ms(fake_.snapshot.services[0].delay_ns), 40, 3);
  Record(Backend(1).answer_times, 2 * kMs, 1000);  // b leads now, and a has answered its last ones
  Record(Backend(0).answer_times, 40 * kMs, 10);
  EXPECT_NEAR(Ms(TuneOneSecond()), 2, 0.2);
  EXPECT_NEAR(Ms(TuneOneSecond()), 2, 0.2) << "nobody asks, nothing changes";
}

// ---- Who is preferred ----

class FastestTest : public testing::Test {
 protected:
  FastestTest() {
    service_.backends.resize(2);
    Times(kMs, kMs);
  }
  void Times(uint64_t a_ns, uint64_t b_ns) {
    service_.backends[0].answer_ewma_ns = a_ns;
    service_.backends[1].answer_ewma_ns = b_ns;
  }
  std::optional<size_t> Look(int looks) {
    std::optional<size_t> choice;
    for (int i = 0; i < looks; ++i) choice = fastest_.Look(service_);
    return choice;
  }

  ServiceSnapshot service_;  // the leader is backend 0
  FastestChoice fastest_;
};

TEST_F(FastestTest, ALeaderThatIsTwiceAsSlowForThreeLooksLosesTheRequests) {
  EXPECT_EQ(Look(10), std::nullopt);
  Times(19 * kMs / 10, kMs);
  EXPECT_EQ(Look(10), std::nullopt);
  Times(20 * kMs, kMs);
  EXPECT_EQ(Look(2), std::nullopt);
  EXPECT_EQ(Look(1), 1u);
}

TEST_F(FastestTest, AFewSlowAnswersMoveNothing) {
  Times(20 * kMs, kMs);
  Look(2);
  Times(kMs, kMs);
  Look(1);
  Times(20 * kMs, kMs);
  EXPECT_EQ(Look(2), std::nullopt);
}

TEST_F(FastestTest, TheLeaderGetsThemBackWhenItIsNearlyAsFast) {
  Times(20 * kMs, kMs);
  Look(3);
  Times(15 * kMs / 10, kMs);
  EXPECT_EQ(Look(10), 1u);
  Times(12 * kMs / 10, kMs);
  EXPECT_EQ(Look(2), 1u);
  EXPECT_EQ(Look(1), std::nullopt);
}

TEST_F(FastestTest, AnEarlierDaemonsChoiceHoldsUntilThereIsAReasonAgainstIt) {
  service_.preferred = 2;
  Times(20 * kMs, kMs);
  EXPECT_EQ(Look(1), 1u);
  Times(kMs, kMs);
  EXPECT_EQ(Look(2), 1u);
  EXPECT_EQ(Look(1), std::nullopt);
}

TEST_F(FastestTest, APinnedLeaderHasThemHoweverSlowItIs) {
  Times(20 * kMs, kMs);
  EXPECT_EQ(Look(3), 1u);
  service_.leader.pinned = 1;
  EXPECT_EQ(Look(1), std::nullopt);
  EXPECT_EQ(Look(10), std::nullopt);
  service_.leader.pinned = 0;
  EXPECT_EQ(Look(3), 1u);
}

TEST_F(FastestTest, WhenBothAreSlowTheLeaderHasThem) {
  Times(20 * kMs, kMs);
  Look(3);
  Times(20 * kMs, 20 * kMs);
  EXPECT_EQ(Look(3), std::nullopt);
}

TEST_F(FastestTest, WhoIsSilentDrainedOrUnknownIsNotPreferred) {
  Times(20 * kMs, 0);
  EXPECT_EQ(Look(5), std::nullopt) << "nothing is known of b";
  Times(20 * kMs, kMs);
  service_.backends[1].drained = true;
  EXPECT_EQ(Look(5), std::nullopt);
  service_.backends[1].drained = false;
  service_.backends[1].health = HR_DOWN;
  EXPECT_EQ(Look(5), std::nullopt);
  service_.backends[1].health = HR_HEALTHY;
  EXPECT_EQ(Look(3), 1u);
  service_.backends[1].health = HR_SUSPECT;
  EXPECT_EQ(Look(3), std::nullopt) << "and loses them again";
}

// What a load is a share of: the daemon tells the programs from how many requests in flight each backend is full. The
// first one's answers are slow from the fifth level on; nothing has loaded the second.
class FullAtTest : public ::testing::Test {
 protected:
  FullAtTest() {
    config_.add_services()->set_name("dns");
    for (const char* name : {"a", "b"}) config_.mutable_services(0)->add_backends()->set_name(name);
    plane_.snapshot.services.resize(1);
    plane_.snapshot.services[0].name = "dns";
    plane_.snapshot.services[0].backends.resize(2);
    hr_backend_load& a = plane_.snapshot.services[0].backends[0].load_state;
    for (uint32_t level = 0; level < 6; ++level) {
      a.samples[level] = 1000;
      a.median[level] = level < 4 ? 100 : 300;
    }
  }
  std::pair<uint32_t, uint32_t> FullAt(uint32_t max_in_flight) {
    config_.mutable_services(0)->set_max_in_flight(max_in_flight);
    Tuner tuner(config_);
    EXPECT_TRUE(tuner.Tune(plane_.snapshot, plane_).ok());
    const auto& backends = plane_.snapshot.services[0].backends;
    return {backends[0].learned.slow_at, backends[1].learned.slow_at};
  }

  v1::Config config_;
  FakeDataPlane plane_;
};

TEST_F(FullAtTest, ABackendIsFullWhereItsAnswersAreSlow) {
  EXPECT_EQ(FullAt(0), std::pair(5u, 0u)) << "the fifth level is 5 in flight";
}

// As HAProxy's fullconn: an operator knows a server that nothing has loaded yet.
TEST_F(FullAtTest, TheOperatorsNumberHoldsWhereItIsTheLowerOne) {
  EXPECT_EQ(FullAt(3), std::pair(3u, 3u));
  EXPECT_EQ(FullAt(8), std::pair(5u, 8u)) << "answers are slow before that";
}

}  // namespace
}  // namespace hedgerow
