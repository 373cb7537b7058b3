// SPDX-License-Identifier: Apache-2.0
//
// What is pure about a start: locks, undoing, the start's report, the data
// plane's specification.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proxy/admin/fake_data_plane.h"
#include "operate/instance_lock.h"
#include "proxy/start/readiness.h"
#include "proxy/start/spec.h"
#include "proxy/instance/undo_stack.h"

namespace hedgerow {
namespace {

Topology::ServicePath ReachedBy(const std::vector<int>& uplinks) {
  Topology::ServicePath path;
  for (const int uplink : uplinks) path.backends.push_back({.name = "", .uplink = uplink});
  return path;
}

using testing::ElementsAre;
using testing::HasSubstr;

class InstanceLockTest : public testing::Test {
 protected:
  InstanceLockTest() {
    char pattern[] = "/tmp/hedgerow-lock-test.XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~InstanceLockTest() override { EXPECT_EQ(rmdir(folder_.c_str()), 0) << "a lock file was left"; }
  std::string folder_;
};

TEST_F(InstanceLockTest, ASecondOwnerIsRefusedWithTheFirstOnesPid) {
  const auto first = InstanceLock::Acquire(folder_, "one");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = InstanceLock::Acquire(folder_, "one");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("instance \"one\" is already running as pid ", getpid())));
  EXPECT_TRUE(InstanceLock::Acquire(folder_, "two").ok());
}

TEST_F(InstanceLockTest, ADeadOwnersLockIsTakenOver) {
  const pid_t child = fork();
  if (child == 0) {
    auto* leaked = new absl::StatusOr<InstanceLock>(InstanceLock::Acquire(folder_, "one"));
    _exit(leaked->ok() ? 0 : 1);  // without any destructor, as a killed daemon
  }
  int state = 0;
  waitpid(child, &state, 0);
  ASSERT_EQ(state, 0);
  struct stat info {};
  ASSERT_EQ(stat((folder_ + "/one.lock").c_str(), &info), 0);
  EXPECT_TRUE(InstanceLock::Acquire(folder_, "one").ok());
}

TEST_F(InstanceLockTest, AnotherOwnersFileIsNotRemoved) {
  std::optional<absl::StatusOr<InstanceLock>> first(InstanceLock::Acquire(folder_, "one"));
  ASSERT_EQ(unlink((folder_ + "/one.lock").c_str()), 0);  // by hand
  const auto second = InstanceLock::Acquire(folder_, "one");
  ASSERT_TRUE(second.ok()) << second.status();
  first.reset();
  EXPECT_EQ(InstanceLock::Acquire(folder_, "one").status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(InstanceLockTest, OnlyOneOfManyRacersHoldsIt) {
  // Owners come and go, each removing the file; at no time may two hold it.
  std::atomic<int> holders = 0;
  std::atomic<int> acquired = 0;
  std::vector<std::thread> racers;
  for (int i = 0; i < 4; ++i) {
    racers.emplace_back([&] {
      for (int turn = 0; turn < 300; ++turn) {
        const auto lock = InstanceLock::Acquire(folder_, "one");
        if (!lock.ok()) continue;
        EXPECT_EQ(++holders, 1);
        ++acquired;
        --holders;
      }
    });
  }
  for (std::thread& racer : racers) racer.join();
  EXPECT_GT(acquired, 0);
}

TEST(UndoStack, UndoesInReverseAndGoesOnAfterAFailure) {
  std::vector<std::string> order;
  UndoStack undo;
  undo.Push("link", [&] {
    order.push_back("link");
    return absl::OkStatus();
  });
  undo.Push("route", [&] {
    order.push_back("route");
    return absl::InternalError("busy");
  });
  undo.Push("program", [&] {
    order.push_back("program");
    return absl::OkStatus();
  });
  EXPECT_THAT(undo.Unwind(), ElementsAre("route: busy"));
  EXPECT_THAT(order, ElementsAre("program", "route", "route", "link")) << "what fails is tried twice";
  EXPECT_THAT(undo.Unwind(), ElementsAre());
  EXPECT_EQ(order.size(), 4u);
}

TEST(UndoStack, WhatIsForgottenStays) {
  bool undone = false;
  {
    UndoStack undo;
    undo.Push("link", [&] {
      undone = true;
      return absl::OkStatus();
    });
    undo.Forget();
  }
  EXPECT_FALSE(undone);
}

TEST(UndoStack, TheDestructorUndoesToo) {
  int undone = 0;
  {
    UndoStack undo;
    undo.Push("x", [&] {
      ++undone;
      return absl::OkStatus();
    });
  }
  EXPECT_EQ(undone, 1);
}

StartReport Report(const std::function<void(Readiness&)>& daemon) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    Readiness readiness(ends[1]);
    daemon(readiness);
  }
  const StartReport report = ReadStartReport(ends[0]);
  close(ends[0]);
  return report;
}

TEST(Readiness, CarriesSuccessErrorAndSilence) {
  EXPECT_TRUE(Report([](Readiness& r) { r.Ready(); }).ready);
  EXPECT_EQ(Report([](Readiness& r) { r.Ready("no_route: b"); }).text, "no_route: b");
  const StartReport failed = Report([](Readiness& r) { r.Failed(kExitNotAllowed, "line one\nline two"); });
  EXPECT_FALSE(failed.ready);
  EXPECT_EQ(failed.exit_code, 4);
  EXPECT_EQ(failed.text, "line one\nline two");
  const StartReport silent = Report([](Readiness&) {});
  EXPECT_FALSE(silent.ready);
  EXPECT_EQ(silent.exit_code, kExitFailure);
  EXPECT_EQ(silent.text, kDiedSilently);
}

TEST(MakeSpec, CarriesEveryValueOfTheConfiguration) {
  const v1::Config config = *config::LoadText(R"(
limits: {requests: 64, parked: 32, flows: 128, fragments: 16}
services:
  - name: one
    vip: 10.99.0.1
    port: 7
    profile: raw
    raw: {request_offset: 1, request_length: 2, reply_offset: 3, reply_length: 2}
    delay: 1ms
    deadline: 3s
    retention: 4s
    attempts: 5
    budget: 6%
    budget_burst: 7
    clients: [10.78.0.0/24, 192.0.2.7]
    election_timeout: 8ms
    suspect_min: 9ms
    primary: b
    backends: [{name: a, address: 10.77.0.11, port: 70}, {name: b, address: 10.77.0.12, port: 71}]
  - name: two
    vip: 10.99.0.2
    port: 4801
    profile: hkv
    cluster: {id: 7, key: 000102030405060708090a0b0c0d0e0f, epoch: 3, announce_port: 4900}
    backends: [{name: a, address: 10.77.0.11, port: 4801, node: 5}, {name: b, address: 10.77.0.12, port: 4801}]
  - name: three
    vip: 10.99.0.3
    port: 4801
    profile: hkv
    cluster: {id: 8, key_file: /never/read}
    backends: [{name: a, address: 10.77.0.13, port: 4801}]
)",
                                              "spec.yaml");
  Topology topology;
  topology.services = {ReachedBy({4, 5}), ReachedBy({4, 5}), ReachedBy({4})};
  OwnLinks links;
  links.proxy.link.ifindex = 10;
  links.proxy.link.mac = {1, 2, 3, 4, 5, 6};
  links.clock.link.ifindex = 12;
  links.clock.peer.ifindex = 13;
  const DataPlaneSpec spec = MakeSpec(config, topology, links);
  EXPECT_EQ(spec.max_requests, 64u);
  EXPECT_EQ(spec.max_parked, 32u);
  EXPECT_EQ(spec.max_flows, 128u);
  EXPECT_EQ(spec.max_fragments, 16u);
  EXPECT_EQ(spec.proxy_ifindex, 10u);
  EXPECT_EQ(spec.proxy_mac[5], 6);
  EXPECT_EQ(spec.clock_out_ifindex, 12u);
  EXPECT_EQ(spec.clock_in_ifindex, 13u);
  ASSERT_EQ(spec.services.size(), 3u);
  const ServiceSpec& service = spec.services[0];
  EXPECT_EQ(service.vip, "10.99.0.1");
  EXPECT_EQ(service.port, 7);
  EXPECT_EQ(service.config.profile.request_correlation.offset, 1);
  EXPECT_EQ(service.config.profile.reply_correlation.offset, 3);
  EXPECT_EQ(service.config.profile.reply_correlation.length, 2);
  EXPECT_EQ(service.config.delay_ns, 1'000'000u);
  EXPECT_EQ(service.config.deadline_ns, 3'000'000'000u);
  EXPECT_EQ(service.config.retention_ns, 4'000'000'000u);
  EXPECT_EQ(service.config.attempts, 5u);
  EXPECT_EQ(service.config.budget_ppm, 60'000u);
  EXPECT_EQ(service.config.budget_burst, 7u);
  ASSERT_EQ(service.config.client_networks, 2u);
  EXPECT_EQ(
      memcmp(&service.config.clients[0].mask, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0", 16), 0);
  EXPECT_EQ(memcmp(&service.config.clients[1].address, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x07", 16), 0);
  EXPECT_EQ(service.config.election_timeout_ns, 8'000'000u);
  EXPECT_EQ(service.config.suspect_min_ns, 9'000'000u);
  EXPECT_EQ(service.primary, 1u);
  ASSERT_EQ(service.backends.size(), 2u);
  EXPECT_EQ(service.backends[1].port, 71);
  EXPECT_EQ(service.backends[1].uplink_ifindex, 5u);
  EXPECT_EQ(service.backends[1].node, 0u);
  EXPECT_FALSE(service.cluster.has_value());

  const ServiceSpec& hkv = spec.services[1];
  EXPECT_EQ(hkv.config.profile.hint_bytes, 4);
  EXPECT_EQ(hkv.backends[0].node, 5u);
  ASSERT_TRUE(hkv.cluster.has_value());
  EXPECT_EQ(hkv.cluster->id, 7u);
  EXPECT_EQ(hkv.cluster->keys.at(0).k0, 0x0706050403020100u) << "little-endian";
  EXPECT_EQ(hkv.cluster->keys.at(0).k1, 0x0f0e0d0c0b0a0908u);
  EXPECT_EQ(hkv.cluster->epoch, 3u);
  EXPECT_EQ(hkv.cluster->announce_port, 4900);
  ASSERT_TRUE(spec.services[2].cluster.has_value());
  EXPECT_TRUE(spec.services[2].cluster->keys.empty())
      << "a key that was not read is none, which the data plane refuses";
}

// What a reload has given ids to keeps them, and the class of its delay in a line that was made before.
TEST(MakeSpec, IdsAreTheRosters) {
  const auto config = config::LoadText(R"(
services:
  - {name: one, vip: 10.99.0.1, port: 53, profile: dns, delay: 2ms,
     backends: [{name: a, address: 10.77.0.11, port: 53}, {name: b, address: 10.77.0.12, port: 53}]}
  - {name: two, vip: 10.99.0.2, port: 53, profile: dns, delay: 5ms, adaptive: {floor: 1ms, cap: 50ms}, prefer: fastest,
     backends: [{name: a, address: 10.77.0.11, port: 54}]}
)",
                                       "spec.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  v1::Roster roster;
  v1::RosterService& known = *roster.add_services();
  known.set_id(9);
  known.set_name("one");
  v1::RosterBackend& backend = *known.add_backends();
  backend.set_id(17);
  backend.set_slot(3);
  backend.set_address("10.77.0.12");
  backend.set_port(53);
  Topology topology;
  topology.services = {ReachedBy({4, 4}), ReachedBy({4})};
  const DataPlaneSpec spec = MakeSpec(*config, topology, {}, roster);
  EXPECT_EQ(spec.services[0].id, 9u);
  EXPECT_EQ(spec.services[0].backends[0].id, kNoId);
  EXPECT_EQ(spec.services[0].backends[1].id, 17u);
  EXPECT_EQ(spec.services[0].backends[1].slot, 3u);
  EXPECT_EQ(spec.services[1].id, kNoId);
  EXPECT_FALSE(spec.services[0].adaptive);
  EXPECT_TRUE(spec.services[1].adaptive && spec.services[1].config.spreads == HR_SPREAD_FASTEST);
}

}  // namespace
}  // namespace hedgerow
