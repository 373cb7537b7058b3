// SPDX-License-Identifier: Apache-2.0
//
// What status says about a snapshot.

#include "proxy/admin/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/algorithm/container.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

DaemonFacts Facts() {
  DaemonFacts facts;
  facts.started_ns = 10'000'000'000;
  facts.kernel = "6.1.0";
  return facts;
}

TEST(BuildStatus, CarriesEveryTermOfTheAccountingIdentity) {
  FakeDataPlane fake;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  const v1::ServiceStatus& dns = status.services(0);
  EXPECT_EQ(dns.requests(), 1000u);
  EXPECT_EQ(dns.requests(), dns.won_by_first() + dns.won_by_hedge() + dns.won_by_failover() + dns.nacked() +
                                dns.unanswered() + dns.superseded() + dns.evicted() + dns.passed_through() +
                                dns.unrouted() + dns.in_flight());
  for (const std::string& outcome : status.accounting().outcomes())
    EXPECT_NE(v1::ServiceStatus::descriptor()->FindFieldByName(outcome), nullptr)
        << outcome << " is no field of `status --json`";
  EXPECT_TRUE(dns.identity_ok());
  EXPECT_TRUE(status.identity_ok());
}

TEST(BuildStatus, NamesTheTermsByWhichAReaderChecksTheBooks) {
  FakeDataPlane fake;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  const v1::ServiceStatus& dns = status.services(0);
  uint64_t accounted = dns.in_flight(), forwarded = 0;
  for (const std::string& outcome : status.accounting().outcomes()) accounted += dns.counters().at(outcome);
  for (const auto& [reason, count] : dns.reasons()) {
    if (absl::c_linear_search(status.accounting().forwarded_reasons(), reason)) forwarded += count;
  }
  EXPECT_EQ(accounted, dns.requests());
  EXPECT_EQ(forwarded, dns.passed_through());
}

TEST(BuildStatus, SaysWhenTheIdentityIsBroken) {
  FakeDataPlane fake;
  fake.snapshot.services[0].in_flight = 4;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_FALSE(status.services(0).identity_ok());
  EXPECT_TRUE(status.services(1).identity_ok());
  EXPECT_FALSE(status.identity_ok());
}

TEST(BuildStatus, SharesAndTotals) {
  FakeDataPlane fake;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.hedges(), 21u);
  EXPECT_DOUBLE_EQ(status.extra_load(), 0.021);
  EXPECT_DOUBLE_EQ(status.services(1).extra_load(), 0.0);  // no requests, no division
  EXPECT_EQ(status.fire_error_ns().count(), 21u);
  EXPECT_EQ(status.fire_error_ns().max(), 240'000);
  EXPECT_EQ(status.uptime_ns(), 50'000'000'000);
  EXPECT_EQ(status.maps().at("requests").used(), 5u);
  EXPECT_EQ(status.maps().at("requests").size(), 131072u);
}

TEST(BuildStatus, NamesOnlyReasonsThatHappened) {
  FakeDataPlane fake;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).reasons().size(), 1u);
  EXPECT_EQ(status.services(0).reasons().at("retransmission"), 4u);
  EXPECT_EQ(status.reasons().at("malformed"), 2u);
  EXPECT_EQ(status.services(0).counters().at("hedges"), 21u);
  EXPECT_TRUE(status.services(0).counters().contains("nacks_swallowed"));
}

TEST(BuildStatus, StateIsTheLeadersHealth) {
  FakeDataPlane fake;
  fake.snapshot.services[0].backends[1].health = HR_DOWN;
  EXPECT_EQ(BuildStatus(FakeConfig(), Facts(), fake.snapshot).services(0).state(), "healthy");
  fake.snapshot.services[0].leader.leader = 1;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).leader(), "b");
  EXPECT_EQ(status.services(0).state(), "down");
  EXPECT_EQ(status.services(0).backends(0).role(), "standby");
  EXPECT_EQ(status.services(0).backends(1).role(), "leader");
}

TEST(BuildStatus, SuspectAfterIsThreeTimesP95WithinItsBounds) {
  FakeDataPlane fake;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).backends(0).suspect_after_ns(), 9'000'000);
  EXPECT_EQ(status.services(0).backends(1).suspect_after_ns(), 30'000'000)
      << "three times the fixed delay, as long as nothing is known of it";
  fake.snapshot.services[0].backends[1].p95_ns = 1'000'000;
  EXPECT_EQ(BuildStatus(FakeConfig(), Facts(), fake.snapshot).services(0).backends(1).suspect_after_ns(), 5'000'000);
  fake.snapshot.services[0].backends[1].p95_ns = 400'000'000;
  EXPECT_EQ(BuildStatus(FakeConfig(), Facts(), fake.snapshot).services(0).backends(1).suspect_after_ns(),
            1'000'000'000);
}

TEST(BuildDrained, SaysWhereDrainingHasNoEffect) {
  FakeDataPlane fake;
  ServiceSnapshot& dns = fake.snapshot.services[0];
  dns.backends[0].drained = true;
  EXPECT_FALSE(BuildDrained(FakeConfig().services(0), dns, "a").without_effect());
  dns.backends[1].drained = true;
  EXPECT_TRUE(BuildDrained(FakeConfig().services(0), dns, "b").without_effect())
      << "requests go to a, which is drained too";
}

TEST(RequestsTo, IsWhoeverTheKernelProgramsWouldChoose) {
  FakeDataPlane fake;
  ServiceSnapshot& dns = fake.snapshot.services[0];
  dns.backends.push_back(dns.backends[1]);
  dns.backends[0].answer_ewma_ns = 1;
  dns.backends[1].answer_ewma_ns = 3;
  dns.backends[2].answer_ewma_ns = 2;
  EXPECT_EQ(RequestsTo(dns), 0u);
  dns.preferred = 2;
  EXPECT_EQ(RequestsTo(dns), 1u);
  dns.backends[1].drained = true;
  EXPECT_EQ(RequestsTo(dns), 0u) << "the best of all";
  dns.backends[0].drained = true;
  EXPECT_EQ(RequestsTo(dns), 2u);
  dns.backends[2].health = HR_DOWN;
  EXPECT_EQ(RequestsTo(dns), 0u) << "silence is worse than being drained";
  dns.preferred = 0;
  dns.backends[0].drained = false;
  dns.backends[0].health = HR_DOWN;
  EXPECT_EQ(RequestsTo(dns), 1u) << "around a leader that is down";
  dns.dry_run = true;
  EXPECT_EQ(RequestsTo(dns), 0u) << "a dry run steers around no silence";
  dns.backends[0].drained = true;
  EXPECT_EQ(RequestsTo(dns), 1u) << "a dry run steers around a drained backend";
  dns.backends[0].drained = dns.dry_run = false;
  dns.backends[0].health = HR_SUSPECT;
  EXPECT_EQ(RequestsTo(dns), 0u) << "a suspect leader is asked still, beside a standby";
}

TEST(RequestShares, AreByWeightAmongBackendsThatCanTakeRequests) {
  using testing::ElementsAre;
  FakeDataPlane fake;
  v1::Config config = FakeConfig();
  v1::Service& service = *config.mutable_services(0);
  ServiceSnapshot& dns = fake.snapshot.services[0];
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(1, 0));
  service.set_prefer(v1::PREFER_EACH);
  service.mutable_backends(0)->set_weight(3);
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(0.75, 0.25));
  EXPECT_EQ(BuildStatus(config, Facts(), fake.snapshot).services(0).requests_to(), "each, by weight: a 75%, b 25%");
  dns.backends[0].health = HR_DOWN;
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(0, 1));
  dns.dry_run = true;
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(0.75, 0.25)) << "a dry run steers around no silence";
  dns.dry_run = false;
  dns.backends[0].health = HR_HEALTHY;
  dns.backends[1].drained = true;
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(1, 0));
  dns.backends[0].unrouted = true;
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(0, 1)) << "drained is better than out of reach";
  dns.backends[0].unrouted = dns.backends[1].drained = false;
  dns.leader.leader = dns.leader.pinned = 1;
  EXPECT_THAT(RequestShares(service, dns), ElementsAre(0, 1));
  const v1::Status status = BuildStatus(config, Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).requests_to(), "b");
  dns.backends[1].drained = true;
  EXPECT_EQ(BuildStatus(config, Facts(), fake.snapshot).services(0).requests_to(), "each, by weight: a 100%, b 0%")
      << "a pinned backend that is gone around leaves the shares to the others";
}

TEST(BuildStatus, SaysWhatPolicyIsInForce) {
  FakeDataPlane fake;
  ServiceSnapshot& dns = fake.snapshot.services[0];
  dns.delay_ns = 3'500'000;
  dns.dry_run = dns.pushed_back = true;
  dns.stats.counters[HR_WOULD_HEDGE] = 9;
  dns.stats.counters[HR_WOULD_FAIL_OVER] = 4;
  dns.backends[1].unanswered = 6;
  v1::Config config = FakeConfig();
  config.mutable_services(0)->mutable_adaptive()->set_cap_ns(1);
  const v1::Status status = BuildStatus(config, Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).delay_ns(), 3'500'000);
  EXPECT_TRUE(status.services(0).adaptive());
  EXPECT_TRUE(status.services(0).dry_run());
  EXPECT_TRUE(status.services(0).pushed_back());
  EXPECT_EQ(status.services(0).would_hedge(), 9u);
  EXPECT_EQ(status.services(0).would_fail_over(), 4u);
  EXPECT_EQ(status.services(0).backends(1).unanswered(), 6u);
  EXPECT_FALSE(status.services(1).adaptive());
}

TEST(BuildDrained, SaysThatAClustersLeaderIsMoreThanItsRequests) {
  FakeDataPlane fake;
  v1::Config config = FakeConfig();
  config.mutable_services(0)->mutable_cluster()->set_id(7);
  ServiceSnapshot& dns = fake.snapshot.services[0];
  dns.backends[0].drained = true;
  EXPECT_TRUE(BuildDrained(config.services(0), dns, "a").leads());
  EXPECT_FALSE(BuildDrained(config.services(0), dns, "b").leads());
  dns.leader.published = 1;
  EXPECT_FALSE(BuildDrained(config.services(0), dns, "a").leads());
}

TEST(BuildLeader, SaysWhereItsWordIsFrom) {
  FakeDataPlane fake;
  const v1::Config config = FakeConfig();
  ServiceSnapshot& service = fake.snapshot.services[0];
  const uint64_t now_ns = 100'000'000'000;
  v1::Leader leader = BuildLeader(config.services(0), service, now_ns);
  EXPECT_EQ(leader.source(), "configured");
  EXPECT_EQ(leader.announced(), "");
  service.leader = {.cluster_epoch = 1,
                    .term = 5,
                    .sequence = 812,
                    .updated_ns = now_ns - 1000,
                    .announced_ns = now_ns - 43'000'000,
                    .since_ns = 7,
                    .leader = 1,
                    .published = 1,
                    .pinned = 0,
                    .resigning = 1,
                    .holds_ms = 0};
  leader = BuildLeader(config.services(0), service, now_ns);
  EXPECT_EQ(leader.source(), "announced");
  EXPECT_EQ(leader.leader(), "b");
  EXPECT_EQ(leader.announced(), "b");
  EXPECT_EQ(leader.cluster_epoch(), 1u);
  EXPECT_EQ(leader.term(), 5u);
  EXPECT_EQ(leader.sequence(), 812u);
  EXPECT_EQ(leader.age_ns(), 1000);
  EXPECT_EQ(leader.announced_age_ns(), 43'000'000);
  EXPECT_TRUE(leader.resigning());
  service.leader.pinned = 1;
  service.leader.leader = 0;
  leader = BuildLeader(config.services(0), service, now_ns);
  EXPECT_EQ(leader.source(), "pinned");
  EXPECT_EQ(leader.leader(), "a");
  EXPECT_EQ(leader.announced(), "b") << "what the cluster says is shown all the same";
}

TEST(BuildStatus, AProblemDegradesIt) {
  FakeDataPlane fake;
  DaemonFacts facts = Facts();
  EXPECT_EQ(BuildStatus(FakeConfig(), facts, fake.snapshot).state(), "running");
  facts.problems = {{ProblemCode::kUplinkDown, "uplink eth1 is gone"}};
  EXPECT_EQ(BuildStatus(FakeConfig(), facts, fake.snapshot).state(), "degraded");
}

TEST(BuildStatus, WhatIsNotHealthyIsNotCalledRunning) {
  FakeDataPlane fake;
  auto& backends = fake.snapshot.services[0].backends;
  backends[0].health = HR_DOWN;
  backends[0].last_receive_ns = fake.snapshot.taken_ns - 12'000'000'000;
  v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.state(), "degraded");
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0), "backend_down: dns: leader a down, silent for 12.0s; requests go to a standby");
  backends[1].health = HR_DOWN;
  status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.state(), "down");
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0), "service_down: dns: every backend is down");
  backends[0].health = HR_HEALTHY;
  backends[1].health = HR_SUSPECT;
  status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.state(), "degraded");
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_THAT(status.problems(0),
              testing::HasSubstr("dns: standby b suspect and was never heard (`hedgerow check dns` says why"));
  backends[1].last_receive_ns = fake.snapshot.taken_ns - 1'000'000'000;
  EXPECT_THAT(BuildStatus(FakeConfig(), Facts(), fake.snapshot).problems(0),
              testing::HasSubstr("backend_suspect: dns: standby b suspect, silent for 1.00s"));
}

TEST(BuildStatus, WhatOneClientAloneMissesIsShownAndIsNoProblem) {
  FakeDataPlane fake;
  BackendSnapshot& leader = fake.snapshot.services[0].backends[0];
  EXPECT_EQ(BuildStatus(FakeConfig(), Facts(), fake.snapshot).services(0).backends(0).one_client_health(), "");
  leader.one_client_health = HR_SUSPECT;
  leader.one_client_waits_ns = 812'000'000;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).backends(0).health(), "healthy");
  EXPECT_EQ(status.services(0).backends(0).one_client_health(), "suspect");
  EXPECT_EQ(status.services(0).backends(0).one_client_waits_ns(), 812'000'000);
  EXPECT_EQ(status.state(), "running");
}

TEST(BuildStatus, ASuspectLeaderIsPassedByWhereItsCopiesAreSpent) {
  FakeDataPlane fake;
  fake.snapshot.services[0].backends[0].health = HR_SUSPECT;
  EXPECT_EQ(BuildStatus(FakeConfig(), Facts(), fake.snapshot).services(0).requests_to(), "a");
  fake.snapshot.services[0].failovers_spent = true;
  EXPECT_EQ(BuildStatus(FakeConfig(), Facts(), fake.snapshot).services(0).requests_to(), "b");
}

TEST(BuildStatus, CountsDatagramsBeyondTheFirst) {
  FakeDataPlane fake;
  fake.snapshot.services[0].stats.counters[HR_EXTRA_SENDS] = 500;
  const v1::Status status = BuildStatus(FakeConfig(), Facts(), fake.snapshot);
  EXPECT_EQ(status.services(0).extra_sends(), 500u);
  EXPECT_DOUBLE_EQ(status.services(0).extra_sends_share(), 0.5);
}

}  // namespace
}  // namespace hedgerow
