// SPDX-License-Identifier: Apache-2.0
//
// What a sound configuration becomes, and that nothing is lost on the way to
// protobuf and back to YAML.

#include "proxy/config/load.h"

#include <gtest/gtest.h>
#include <google/protobuf/util/message_differencer.h>

#include "proxy/config/emit.h"

namespace hedgerow::config {
namespace {

constexpr char kSmallest[] = R"(services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
)";

constexpr char kEverything[] = R"(instance: second
interface: hedge1
attach: clsact
tcx_order: first
admin: {socket: /run/hedgerow/second.sock}
metrics: {listen: ""}
page: {serve: off, history: 90s}
limits: {requests: 1024, parked: 64, flows: 512, fragments: 16}
clock: {kind: htb, tolerance: 1.5ms}
services:
  - name: dns6
    vip: FD99:0::53
    port: 53
    profile: dns
    delay: 250us
    deadline: 1s
    retention: 100ms
    attempts: 3
    budget: 2.5%
    budget_burst: 7
    election_timeout: 150ms
    suspect_min: 2ms
    suspect_max: 400ms
    primary: b
    clients: ["FD78::/64", "fd77::1"]
    backends:
      - {name: a, address: fd77::b, port: 53}
      - {name: b, address: fd77::c, port: 5353}
  - name: echo
    vip: 10.99.0.1
    port: 7
    profile: raw
    raw: {request_offset: 0, request_length: 4, reply_offset: 8, reply_length: 4}
    backends:
      - {name: only, address: 10.77.0.11, port: 7}
  - name: kv
    vip: 10.99.0.2
    port: 4801
    profile: hkv
    cluster: {id: 9223372036854775807, key: ffeeddccbbaa99887766554433221100, epoch: 3, announce_port: 4800}
    backends:
      - {name: n1, address: 10.77.0.11, port: 4801, node: 1}
      - {name: n2, address: 10.77.0.12, port: 4801, node: 4294967295}
)";

v1::Config Load(const char* text) {
  absl::StatusOr<v1::Config> config = LoadText(text, "test.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : v1::Config();
}

TEST(LoadText, FillsTheDefaults) {
  const v1::Config config = Load(kSmallest);
  EXPECT_EQ(config.instance(), "default");
  EXPECT_EQ(config.interface(), "hr0");
  EXPECT_EQ(config.attach(), v1::ATTACH_AUTO);
  EXPECT_EQ(config.tcx_order(), v1::TCX_ORDER_LAST);
  EXPECT_EQ(config.admin().socket(), "/run/hedgerow/admin.sock");
  EXPECT_EQ(config.metrics().listen(), "127.0.0.1:9464");
  EXPECT_EQ(config.page().serve(), v1::PAGE_SERVE_ON);
  EXPECT_EQ(config.page().history_ns(), 600'000'000'000);
  EXPECT_EQ(config.limits().requests(), 131072u);
  EXPECT_EQ(config.clock().tolerance_ns(), 2'000'000);
  ASSERT_EQ(config.services_size(), 1);
  const v1::Service& service = config.services(0);
  EXPECT_EQ(service.delay_ns(), 10'000'000);
  EXPECT_EQ(service.deadline_ns(), 2'000'000'000);
  EXPECT_EQ(service.attempts(), 2u);
  EXPECT_EQ(service.budget_ppm(), 50'000u);
  EXPECT_EQ(service.primary(), "a");
  EXPECT_FALSE(service.has_raw());
  EXPECT_FALSE(service.has_cluster());
}

TEST(LoadText, ReadsEveryKey) {
  const v1::Config config = Load(kEverything);
  EXPECT_EQ(config.metrics().listen(), "");
  EXPECT_EQ(config.page().serve(), v1::PAGE_SERVE_OFF);
  EXPECT_EQ(config.page().history_ns(), 90'000'000'000);
  EXPECT_EQ(config.clock().kind(), v1::CLOCK_KIND_HTB);
  EXPECT_EQ(config.clock().tolerance_ns(), 1'500'000);
  ASSERT_EQ(config.services_size(), 3);
  EXPECT_EQ(config.services(0).vip(), "fd99::53");
  EXPECT_EQ(config.services(0).delay_ns(), 250'000);
  EXPECT_EQ(config.services(0).budget_ppm(), 25'000u);
  EXPECT_EQ(config.services(0).primary(), "b");
  EXPECT_EQ(config.services(1).raw().reply_offset(), 8u);
  EXPECT_EQ(config.services(2).profile(), "hkv");
  EXPECT_EQ(config.services(2).cluster().id(), INT64_MAX);
  EXPECT_EQ(config.services(2).backends(1).node(), 4294967295u);
}

TEST(LoadText, TheEmittedConfigurationLoadsAsTheSame) {
  for (const char* text : {kSmallest, kEverything}) {
    const v1::Config config = Load(text);
    const std::string emitted = EmitYaml(config, Secrets::kShown);
    const v1::Config again = Load(emitted.c_str());
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(config, again)) << emitted;
    EXPECT_EQ(EmitYaml(again, Secrets::kShown), emitted);
  }
}

TEST(LoadText, AcceptsWindowsLineEndingsAndComments) {
  std::string text = "# a comment\n" + std::string(kSmallest);
  for (size_t i = 0; (i = text.find('\n', i)) != std::string::npos; i += 2) text.replace(i, 1, "\r\n");
  EXPECT_TRUE(LoadText(text, "test.yaml").ok());
}

TEST(LoadText, TheSameVipMayServeSeveralPorts) {
  std::string text = kSmallest;
  text += R"(  - name: dns-alt
    vip: 10.99.0.53
    port: 5353
    profile: dns
    backends: [{name: a, address: 10.77.0.11, port: 5353}]
)";
  EXPECT_TRUE(LoadText(text, "test.yaml").ok());
}

}  // namespace
}  // namespace hedgerow::config
