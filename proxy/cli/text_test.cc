// SPDX-License-Identifier: Apache-2.0
//
// What people read: status and plan.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proxy/admin/fake_data_plane.h"
#include "proxy/admin/status.h"
#include "proxy/cli/make_plan.h"
#include "proxy/cli/status_text.h"

namespace hedgerow::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Status Sample() {
  FakeDataPlane fake;
  DaemonFacts facts;
  facts.started_ns = 10'000'000'000;
  facts.clock_kind = "htb";
  v1::Uplink& uplink = facts.uplinks.emplace_back();
  uplink.set_name("eth0");
  uplink.set_up(true);
  uplink.set_attach("tcx");
  return BuildStatus(FakeConfig(), facts, fake.snapshot);
}

TEST(StatusText, SaysWhoLeadsHowItGoesAndWhatItCosts) {
  const std::string text = StatusText(Sample());
  EXPECT_THAT(text, HasSubstr("instance test  running"));
  EXPECT_THAT(text, HasSubstr("up 50s"));
  EXPECT_THAT(text, HasSubstr("dns  10.99.0.53:53  dns  leader a, healthy"));
  EXPECT_THAT(text, HasSubstr("echo  [fd99::1]:7  raw  leader only, healthy"));
  EXPECT_THAT(text, HasSubstr("1000: first 970, hedge 19, unanswered 2, passed through 4, in flight 5"));
  EXPECT_THAT(text, HasSubstr("21, 2.10% extra load, 12.5 tokens left"));
  EXPECT_THAT(text, HasSubstr("retransmission 4"));
  EXPECT_THAT(text, HasSubstr("eth0 (tcx)"));
}

TEST(StatusText, LeavesOutWhatDidNotHappen) {
  const std::string text = StatusText(Sample());
  EXPECT_THAT(text, Not(HasSubstr("superseded")));
  EXPECT_THAT(text, Not(HasSubstr("PROBLEM")));
  EXPECT_THAT(text, Not(HasSubstr("restored")));
  EXPECT_THAT(text, Not(HasSubstr("BYPASSED")));
}

TEST(StatusText, SaysWhatIsWrong) {
  v1::Status status = Sample();
  status.set_state("degraded");
  status.add_problems("uplink eth1 is gone");
  status.mutable_services(0)->set_state("suspect");
  status.mutable_services(0)->set_bypass(true);
  status.mutable_services(0)->set_pinned(true);
  status.mutable_services(0)->set_identity_ok(false);
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("PROBLEM: uplink eth1 is gone"));
  EXPECT_THAT(text, HasSubstr("leader a (pinned), SUSPECT (silent; requests go to both), BYPASSED"));
  EXPECT_THAT(text, HasSubstr("not all accounted for"));
}

TEST(StatusText, SaysThatItWasTakenOverAndWhatCameOfTheAbsence) {
  v1::Status status = Sample();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("kernel part")));
  v1::Adoption& adoption = *status.mutable_adoption();
  adoption.set_how("upgraded");
  adoption.set_adoptions(2);
  adoption.set_kernel_uptime_ns(120'000'000'000);
  EXPECT_THAT(StatusText(status), HasSubstr("upgraded, at work for 2m"));
  EXPECT_THAT(StatusText(status), Not(HasSubstr("hedging was stopped")));
  adoption.set_unattended_ns(90'000'000'000);
  adoption.set_hedging_stopped_ns(30'000'000'000);
  EXPECT_THAT(StatusText(status), HasSubstr("hedging was stopped for 30s"));
}

TEST(StatusText, SaysWhatCameOfTheLastReload) {
  v1::Status status = Sample();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("reload")));
  status.mutable_reloads()->set_last_result("refused");
  status.mutable_reloads()->set_last_age_ns(120'000'000'000);
  status.mutable_reloads()->add_last_problems("interface: fixed while the proxy runs");
  EXPECT_THAT(StatusText(status), HasSubstr("last reload  refused 2m"));
  EXPECT_THAT(StatusText(status), HasSubstr("\n    interface: fixed while the proxy runs\n"));
}

TEST(StatusText, NamesABackendThatOneClientAloneMisses) {
  v1::Status status = Sample();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("one client")));
  v1::BackendStatus& backend = *status.mutable_services(0)->mutable_backends(0);
  backend.set_name("a");
  backend.set_health("healthy");
  backend.set_one_client_health("suspect");
  backend.set_one_client_waits_ns(812'000'000);
  EXPECT_THAT(
      StatusText(status),
      HasSubstr("  one client   a is suspect to one client, which waits there for 812ms; healthy to all others\n"));
  backend.set_health("down");
  backend.set_one_client_health("down");
  EXPECT_THAT(StatusText(status),
              HasSubstr("a is down to one client, which waits there for 812ms; suspect to all others\n"));
}

TEST(ReloadText, ReadsAsADiffAndSaysWhatBecameOfIt) {
  v1::ReloadReply reply;
  reply.set_file("a.yaml");
  EXPECT_EQ(ReloadText(reply, false), "a.yaml: nothing to change\n");
  v1::ConfigChange& delay = *reply.add_changes();
  delay.set_kind("changed");
  delay.set_path("services[dns].delay");
  delay.set_from("10ms");
  v1::ConfigChange& added = *reply.add_changes();
  added.set_kind("added");
  added.set_path("services[new]");
  added.set_to("vip 10.99.0.9");
  const std::string changes = "  services[dns].delay: 10ms -> \"\"\n+ services[new]: vip 10.99.0.9\n";
  EXPECT_EQ(ReloadText(reply, true), changes + "a reload would apply all of this\n");
  reply.set_applied(true);
  EXPECT_EQ(ReloadText(reply, false), changes + "a.yaml is in force\n");
  reply.set_applied(false);
  reply.add_problems("interface: fixed");
  EXPECT_EQ(ReloadText(reply, false),
            changes + "refused as a whole; nothing of a.yaml was applied. Because:\n  interface: fixed\n");
}

TEST(StatusText, ALeaderThatIsDownIsCalledSo) {
  v1::Status status = Sample();
  status.mutable_services(0)->set_state("down");
  status.mutable_services(0)->mutable_backends(0)->set_health("down");
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("leader a, DOWN (requests go to a standby)"));
  EXPECT_THAT(text, testing::ContainsRegex("10.77.0.11:53 +leader +down"));
}

TEST(StatusText, SaysWhatIsSentBeyondTheFirstAndWhenABackendIsSuspect) {
  v1::Status status = Sample();
  v1::ServiceStatus& dns = *status.mutable_services(0);
  EXPECT_THAT(StatusText(status), Not(HasSubstr("  extra  ")));
  dns.set_extra_sends(500);
  dns.set_extra_sends_share(0.5);
  dns.set_suspect_min_ns(5'000'000);
  dns.set_suspect_max_ns(1'000'000'000);
  dns.mutable_backends(0)->set_suspect_after_ns(9'000'000);
  EXPECT_THAT(StatusText(status), HasSubstr("500 datagrams beyond the first of each request, 50.00%"));
  EXPECT_THAT(StatusText(status), HasSubstr("  suspicion    a after 9.00ms"));
  EXPECT_THAT(StatusText(status), HasSubstr(" of silence (5.00ms to 1.00s)"));
}

TEST(StatusText, SaysThatTheLeaderIsItsClustersWord) {
  v1::Status status = Sample();
  status.mutable_services(0)->set_leader_source("announced");
  EXPECT_THAT(StatusText(status), HasSubstr("leader a (announced), healthy"));
}

TEST(StatusText, SaysWhatPolicyIsInForce) {
  v1::Status status = Sample();
  EXPECT_THAT(StatusText(status), HasSubstr("  delay        10.0ms\n"));
  v1::ServiceStatus& dns = *status.mutable_services(0);
  dns.set_adaptive(true);
  dns.set_dry_run(true);
  dns.set_would_hedge(7);
  dns.set_would_fail_over(2);
  dns.set_would_copy(3);
  dns.set_idle_share(0.3);
  dns.set_idle_copies(5);
  dns.mutable_backends(0)->set_load(0.125);
  dns.mutable_backends(0)->set_in_flight(4);
  dns.mutable_backends(0)->set_slow_at(32);
  dns.set_pushed_back(true);
  dns.set_requests_to("b");
  dns.mutable_backends(0)->set_uplink("eth0");
  std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("leader a, healthy, DRY RUN"));
  EXPECT_THAT(text, HasSubstr("requests to  b, which answers faster"));
  EXPECT_THAT(text, HasSubstr("would have hedged 7, failed over 2, sent two copies at once of 3"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "  copies       5, two at once up to a load of 30%: a 12% (4 in flight, slow from 32), b 0% (0 in flight)"));
  EXPECT_THAT(text, HasSubstr("10.0ms, adaptive; A BACKEND ASKS for later hedges, or none"));
  dns.mutable_backends(0)->set_drained(true);
  text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("requests to  b, while the leader is drained"));
  EXPECT_THAT(text, testing::ContainsRegex("10.77.0.11:53 +leader +drained"));
}

TEST(StatusText, SaysWhyAnotherThanTheLeaderGetsTheRequests) {
  v1::Status status = Sample();
  v1::ServiceStatus& dns = *status.mutable_services(0);
  dns.set_requests_to("b");
  dns.mutable_backends(0)->set_uplink("eth0");
  for (const std::string health : {"down", "suspect"}) {
    dns.set_state(health);
    dns.mutable_backends(0)->set_health(health);
    EXPECT_THAT(StatusText(status), HasSubstr(absl::StrCat("requests to  b, while the leader is ", health, "\n")));
  }
  dns.mutable_backends(0)->clear_uplink();
  EXPECT_THAT(StatusText(status), HasSubstr("requests to  b, while this host has no route to the leader\n"));
}

TEST(StatusText, SendsNoRequestToAStandbyInADryRun) {
  v1::Status status = Sample();
  v1::ServiceStatus& dns = *status.mutable_services(0);
  dns.set_dry_run(true);
  dns.set_state("down");
  EXPECT_THAT(StatusText(status), HasSubstr("leader a, DOWN (silent), DRY RUN: nothing is sent twice"));
  dns.set_state("suspect");
  EXPECT_THAT(StatusText(status), HasSubstr("leader a, SUSPECT (silent), DRY RUN: nothing is sent twice"));
}

TEST(DrainText, SaysWhoGetsTheRequestsAndWhatElseToDo) {
  v1::DrainReply reply;
  v1::Drained& dns = *reply.add_backends();
  dns.set_service("dns");
  dns.set_backend("a");
  dns.set_drained(true);
  dns.set_requests_to("b");
  EXPECT_EQ(DrainText(reply), "dns: a is drained; requests go to b\n");
  dns.set_without_effect(true);
  EXPECT_EQ(
      DrainText(reply),
      "dns: a is drained; requests go to b, which is drained too: no other backend is available, so draining has no effect\n");
  dns.set_requests_to("a");
  EXPECT_EQ(DrainText(reply),
            "dns: a is drained; requests go to a: no other backend is available, so draining has no effect\n");
  dns.set_without_effect(false);
  dns.set_requests_to("b");
  dns.set_leads(true);
  EXPECT_THAT(DrainText(reply), HasSubstr("`hedgerow-node transfer`"));
  dns.set_drained(false);
  EXPECT_EQ(DrainText(reply), "dns: a serves again; requests go to b\n");
}

v1::Leader Announced() {
  v1::Leader leader;
  leader.set_service("kv");
  leader.set_leader("b");
  leader.set_state("healthy");
  leader.set_source("announced");
  leader.set_announced("b");
  leader.set_cluster_epoch(1);
  leader.set_term(5);
  leader.set_sequence(812);
  leader.set_announced_age_ns(43'000'000);
  return leader;
}

TEST(LeaderText, SaysWhatTheClusterAnnounced) {
  EXPECT_EQ(LeaderText(Announced()),
            "kv               b            healthy  announced: cluster epoch 1, term 5, sequence 812, 43.0ms ago\n");
  v1::Leader resigning = Announced();
  resigning.set_resigning(true);
  EXPECT_THAT(LeaderText(resigning), HasSubstr("ago, RESIGNING"));
}

TEST(LeaderText, SaysWhoIsAnnouncedBesideAPin) {
  v1::Leader leader = Announced();
  leader.set_leader("a");
  leader.set_source("pinned");
  EXPECT_THAT(LeaderText(leader), HasSubstr("a            healthy  pinned; announced is b: cluster epoch 1, term 5"));
}

TEST(LeaderText, AConfiguredPrimaryHasNoTerm) {
  v1::Leader leader;
  leader.set_service("dns");
  leader.set_leader("a");
  leader.set_state("healthy");
  leader.set_source("configured");
  EXPECT_EQ(LeaderText(leader), "dns              a            healthy  configured\n");
}

// Of FakeConfig(): two backends and one, all reached by one interface; 0: by none.
std::vector<Topology::ServicePath> ServicesBy(int uplink, std::optional<net::IpAddress> first,
                                              std::optional<net::IpAddress> second) {
  const auto backend = [uplink](const char* name) { return BackendPath{.name = name, .uplink = uplink}; };
  return {{.name = "dns", .backends = {backend("a"), backend("b")}, .source = first},
          {.name = "echo", .backends = {backend("only")}, .source = second}};
}

TEST(MakePlan, ListsEverythingThatUpWouldMake) {
  Topology topology;
  net::LinkInfo eth0;
  eth0.name = "eth0";
  topology.uplinks[2] = eth0;
  topology.services = ServicesBy(2, *net::IpAddress::Parse("10.77.0.1"), *net::IpAddress::Parse("fd77::1"));
  const v1::Plan plan = MakePlan(FakeConfig(), "f.yaml", topology, 2);
  EXPECT_EQ(plan.links_size(), 2);
  EXPECT_EQ(plan.routes_size(), 4);        // by the proxy interface, and by the uplink for clients that are bound to it
  EXPECT_EQ(plan.attachments_size(), 11);  // two of them on each other interface
  EXPECT_EQ(plan.services_size(), 2);
  uint64_t bytes = 0;
  for (const v1::PlannedMap& map : plan.maps()) bytes += map.bytes();
  EXPECT_EQ(plan.map_bytes(), bytes);
  const auto scoreboard = std::find_if(plan.maps().begin(), plan.maps().end(),
                                       [](const v1::PlannedMap& map) { return map.name() == "scoreboard"; });
  ASSERT_NE(scoreboard, plan.maps().end());
  EXPECT_GE(scoreboard->bytes(), 4u * 8u * FakeConfig().limits().requests()) << "four places of 8 bytes a request";
  const std::string text = PlanText(plan);
  EXPECT_THAT(text, HasSubstr("10.99.0.53 dev hr0 src 10.77.0.1"));
  EXPECT_THAT(text, HasSubstr("splitter on hr0 egress"));
  EXPECT_THAT(text, HasSubstr("reply on eth0 ingress"));
  EXPECT_THAT(text, HasSubstr("    # of dns\n    profile: raw\n    raw:\n      request_length: 2\n")) << "to copy";
  EXPECT_THAT(text, HasSubstr("      echo_dns_question: true\n"));
  EXPECT_THAT(text, Not(HasSubstr("would fail")));
}

TEST(MakePlan, ShowsAClusterAndNotItsKey) {
  v1::Config config = FakeConfig();
  v1::ClusterConfig& cluster = *config.mutable_services(0)->mutable_cluster();
  cluster.set_id(7);
  cluster.set_key("00112233445566778899aabbccddeeff");
  cluster.set_announce_port(4803);
  Topology topology;
  topology.services = ServicesBy(0, std::nullopt, std::nullopt);
  const v1::Plan plan = MakePlan(config, "f.yaml", topology, 2);
  EXPECT_THAT(PlanText(plan), HasSubstr("cluster 7 announces its leader on port 4803"));
  EXPECT_THAT(plan.config(), HasSubstr("key: \"(hidden)\""));
  EXPECT_THAT(plan.DebugString(), Not(HasSubstr("2233445566")));
}

TEST(MakePlan, SaysWhatThePolicyIs) {
  v1::Config config = FakeConfig();
  v1::Service& dns = *config.mutable_services(0);
  dns.mutable_adaptive()->set_floor_ns(1'000'000);
  dns.mutable_adaptive()->set_cap_ns(100'000'000);
  dns.set_prefer(v1::PREFER_FASTEST);
  dns.set_dry_run(v1::SWITCH_ON);
  Topology topology;
  topology.services = ServicesBy(0, std::nullopt, std::nullopt);
  EXPECT_THAT(
      PlanText(MakePlan(config, "f.yaml", topology, 2)),
      HasSubstr("hedge after 10ms at first, then adaptive between 1ms and 100ms, deadline 2s, 2 attempts, budget 5%, "
                "suspect after 5ms to 1s of silence, the fastest is asked first, DRY RUN"));
}

TEST(MakePlan, SaysWhatAReloadWouldChangeOfWhatRuns) {
  Topology topology;
  topology.services = ServicesBy(0, std::nullopt, std::nullopt);
  v1::Plan plan = MakePlan(FakeConfig(), "f.yaml", topology, 2);
  EXPECT_THAT(PlanText(plan), Not(HasSubstr("reload")));
  v1::ConfigChange& change = *plan.mutable_reload()->add_changes();
  change.set_kind("changed");
  change.set_path("services[dns].delay");
  change.set_from("10ms");
  change.set_to("5ms");
  EXPECT_THAT(PlanText(plan), HasSubstr("reload, since its daemon runs\n  services[dns].delay: 10ms -> 5ms\n"
                                        "a reload would apply all of this\n"));
}

TEST(MakePlan, SaysWhatWouldMakeUpFail) {
  Topology topology;
  topology.services = ServicesBy(0, std::nullopt, std::nullopt);
  topology.problems = {{ProblemCode::kNoRoute, "service dns: no route to backend a (10.77.0.11): no route"}};
  EXPECT_THAT(PlanText(MakePlan(FakeConfig(), "f.yaml", topology, 2)),
              HasSubstr("refuses no `up`):\n  no_route: service"));
}

}  // namespace
}  // namespace hedgerow::cli
