// SPDX-License-Identifier: Apache-2.0
//
// What a configuration says about policy: the adaptive delay, who is asked first, dry runs; and every way in
// which that can be wrong, with the whole error line.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proxy/config/emit.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

using testing::HasSubstr;
using testing::Not;

// `lines` stand where the service's own keys do: the first of them in line 6, column 5.
std::string Text(const std::string& lines, const std::string& top = "instance: default") {
  return absl::StrCat(top, R"(
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    )",
                      lines, R"(
    profile: dns
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
)");
}

std::string Error(const std::string& lines, const std::string& top = "instance: default") {
  const auto config = LoadText(Text(lines, top), "c.yaml");
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(PolicyConfig, IsPlainUnlessAskedFor) {
  const auto config = LoadText(Text("delay: 10ms"), "c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const v1::Service& service = config->services(0);
  EXPECT_FALSE(service.has_adaptive());
  EXPECT_EQ(service.prefer(), v1::PREFER_PRIMARY);
  EXPECT_EQ(service.dry_run(), v1::SWITCH_OFF);
  EXPECT_THAT(EmitYaml(*config), Not(HasSubstr("adaptive")));
}

// A flow's packets are apart by seconds. Who writes the upper bound alone has said how long silence may be.
TEST(PolicyConfig, AFlowsSuspicionStaysBelowTheWrittenBound) {
  const auto of = [](const std::string& line) {
    const auto config =
        LoadText(absl::StrCat("services:\n  - name: media\n    vip: 10.99.0.53\n    port: 4500\n", line,
                              "    profile: flow\n    backends: [{name: a, address: 10.77.0.11, port: 53}]\n"),
                 "c.yaml");
    EXPECT_TRUE(config.ok()) << config.status();
    return std::pair(config->services(0).suspect_min_ns(), config->services(0).suspect_max_ns());
  };
  EXPECT_EQ(of(""), std::pair(int64_t{3'000'000'000}, int64_t{3'000'000'000}));
  EXPECT_EQ(of("    suspect_max: 500ms\n"), std::pair(int64_t{500'000'000}, int64_t{500'000'000}));
  EXPECT_EQ(of("    suspect_max: 9s\n"), std::pair(int64_t{3'000'000'000}, int64_t{9'000'000'000}));
  EXPECT_EQ(of("    suspect_min: 600s\n"), std::pair(int64_t{600'000'000'000}, int64_t{600'000'000'000}));
  EXPECT_EQ(of("    suspect_min: 1s\n"), std::pair(int64_t{1'000'000'000}, int64_t{1'000'000'000}));
}

TEST(PolicyConfig, IsReadAndWritten) {
  const auto config =
      LoadText(Text("adaptive: {floor: 500us, cap: 80ms}\n    prefer: fastest\n    dry_run: on"), "c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const v1::Service& service = config->services(0);
  EXPECT_EQ(service.adaptive().floor_ns(), 500'000);
  EXPECT_EQ(service.adaptive().cap_ns(), 80'000'000);
  EXPECT_EQ(service.prefer(), v1::PREFER_FASTEST);
  EXPECT_EQ(service.dry_run(), v1::SWITCH_ON);
  const auto again = LoadText(EmitYaml(*config), "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), config->SerializeAsString());
}

TEST(PolicyConfig, TheFloorHasADefaultAndTheCapHasNone) {
  const auto config = LoadText(Text("adaptive: {cap: 50ms}"), "c.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->services(0).adaptive().floor_ns(), 1'000'000);
  EXPECT_THAT(Error("adaptive: {floor: 2ms}"),
              HasSubstr("c.yaml:6:15: services[0].adaptive.cap: the key is missing, expected a duration between 100us "
                        "and 10s, such as 100ms"));
}

TEST(PolicyConfig, SaysWhatIsWrongAndWhere) {
  struct {
    const char* lines;
    const char* error;
  } const rows[] = {
      {"adaptive: {floor: 9ms, cap: 8ms}",
       R"(c.yaml:6:33: services[0].adaptive.cap: got "8ms", expected at least the floor of 9ms)"},
      {"adaptive: {cap: 2s}",
       R"(c.yaml:6:21: services[0].adaptive.cap: got "2s", expected less than the deadline of 2s)"},
      {"adaptive: {floor: 99us, cap: 8ms}",
       R"(c.yaml:6:23: services[0].adaptive.floor: got "99us", expected a duration between 100us and 10s, such as 1ms)"},
      {"adaptive: 5%",
       R"(c.yaml:6:15: services[0].adaptive: got a single value, expected a map with the keys floor, cap)"},
      {"adaptive: {cap: 8ms, p: 95}",
       R"(c.yaml:6:26: services[0].adaptive: unknown key "p", expected one of floor, cap)"},
      {"check: {rise: 0}",
       R"(c.yaml:6:19: services[0].check.rise: got "0", expected a whole number between 1 and 100)"},
      {"check: {every: 10ms}", R"(services[0].check.every: got "10ms", expected a duration between 1s and 60s)"},
      {"check: {name: www.example.test}\n    cluster: {id: 7, key: ffeeddccbbaa99887766554433221100}",
       R"(services[0].check: got a check, expected none with a cluster, which announces its leader)"},
      {"prefer: b", R"(c.yaml:6:13: services[0].prefer: got "b", expected one of primary, fastest, each, source)"},
      {"prefer: source\n    cluster: {id: 7, key: ffeeddccbbaa99887766554433221100}",
       R"(services[0].prefer: got "source", expected "primary" with a cluster)"},
      {"dry_run: yes", R"(c.yaml:6:14: services[0].dry_run: got "yes", expected one of off, on)"},
      {"prefer: fastest\n    cluster: {id: 7, key: ffeeddccbbaa99887766554433221100}",
       R"(c.yaml:6:13: services[0].prefer: got "fastest", expected "primary" with a cluster (its leader gets the )"
       R"(requests; another member would only send them on to it))"},
  };
  for (const auto& [lines, error] : rows) EXPECT_THAT(Error(lines), HasSubstr(error)) << lines;
}

TEST(PolicyConfig, TheSuspicionTimeoutHasACeiling) {
  EXPECT_EQ(LoadText(Text("delay: 10ms"), "c.yaml")->services(0).suspect_max_ns(), 1'000'000'000);
  EXPECT_EQ(LoadText(Text("suspect_max: 50ms"), "c.yaml")->services(0).suspect_max_ns(), 50'000'000);
  EXPECT_EQ(LoadText(Text("suspect_min: 10s"), "c.yaml")->services(0).suspect_max_ns(), 10'000'000'000)
      << "where only the lower bound is given, the upper one follows it";
  EXPECT_EQ(Error("suspect_min: 20ms\n    suspect_max: 10ms"),
            "c.yaml:7:18: services[0].suspect_max: got \"10ms\", expected at least the suspect_min of 20ms");
  EXPECT_EQ(Error("suspect_max: 3ms"),
            "c.yaml:6:18: services[0].suspect_max: got \"3ms\", expected at least the suspect_min of 5ms");
  EXPECT_EQ(
      Error("suspect_min: 61s"),
      "c.yaml:6:18: services[0].suspect_min: got \"61s\", expected at most 60s: only a profile with flow may have more");
  EXPECT_THAT(Error("suspect_max: never"), HasSubstr("c.yaml:6:18: services[0].suspect_max"));
}

}  // namespace
}  // namespace hedgerow::config
