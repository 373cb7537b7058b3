// SPDX-License-Identifier: Apache-2.0
//
// One row for every way a configuration can be wrong: a sound file with one
// line exchanged, and the whole error line that must come of it.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

// Line and column of each value matter below.
constexpr char kSound[] = R"(instance: default
interface: hr0
attach: auto
admin: {socket: /run/hedgerow/admin.sock}
metrics: {listen: "127.0.0.1:9464"}
limits: {requests: 131072}
clock: {tolerance: 2ms}
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    delay: 10ms
    deadline: 2s
    attempts: 2
    budget: 5%
    primary: a
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
  - name: echo
    vip: 10.99.0.1
    port: 7
    profile: raw
    raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4}
    backends:
      - {name: a, address: 10.77.0.11, port: 7}
)";

struct Row {
  const char* name;
  const char* line;      // of kSound, the first that matches
  const char* replaced;  // by this
  const char* error;     // all of it, less "c.yaml:"
};

// gtest would print the pointers.
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr Row kRows[] = {
    {"UnknownUnit", "delay: 10ms", "delay: 10 parsecs",
     R"(13:12: services[0].delay: got "10 parsecs", expected a duration between 100us and 10s, such as 10ms)"},
    {"NoUnit", "delay: 10ms", "delay: 10",
     R"(13:12: services[0].delay: got "10", expected a duration between 100us and 10s, such as 10ms)"},
    {"DelayTooSmall", "delay: 10ms", "delay: 99us",
     R"(13:12: services[0].delay: got "99us", expected a duration between 100us and 10s, such as 10ms)"},
    {"NegativeDelay", "delay: 10ms", "delay: -10ms",
     R"(13:12: services[0].delay: got "-10ms", expected a duration between 100us and 10s, such as 10ms)"},
    {"EmptyValue", "delay: 10ms",
     "delay:", R"(13:5: services[0].delay: got nothing, expected a duration between 100us and 10s, such as 10ms)"},
    {"ListForScalar", "delay: 10ms", "delay: [10ms]",
     R"(13:12: services[0].delay: got a list, expected a duration between 100us and 10s, such as 10ms)"},
    {"DelayNotBelowDeadline", "delay: 10ms", "delay: 2s",
     R"(13:12: services[0].delay: got "2s", expected less than the deadline of 2s)"},
    {"DeadlineTooLong", "deadline: 2s", "deadline: 61s",
     R"(14:15: services[0].deadline: got "61s", expected a duration between 200us and 60s, such as 2s)"},
    {"UnknownKeyWithGuess", "delay: 10ms", "dealy: 10ms",
     R"(13:5: services[0]: unknown key "dealy", did you mean "delay"?)"},
    {"WordOfOthers", "attempts: 2", "retries: 2",
     R"(15:5: services[0]: unknown key "retries": `attempts` is how often a request may be sent, and `budget` how many )"
     R"(may be sent again (docs/coming-from.md))"},
    {"WordOfOthersAtTheTop", "attach: auto", "listen: 53",
     R"(3:1: unknown key "listen": clients send to the `vip` and `port` of a service, an address that no host has; )"
     R"(which hosts may is `clients` (docs/coming-from.md))"},
    {"ServiceAsProfile", "profile: dns", "profile: syslog",
     R"(12:14: services[0].profile: got "syslog", expected one of PROFILES (`profile: one-way`, for datagrams that )"
     R"(get no answer (docs/coming-from.md)))"},
    {"UnknownTopKey", "attach: auto", "frobnicate: 1",
     R"(3:1: unknown key "frobnicate", expected one of instance, interface, attach, tcx_order, admin, metrics, )"
     R"(limits, clock, page, unattended_timeout, rule_priority, vip_route, services)"},
    {"KeyOfEarlierVersions", "attach: auto", "detach_after: 5s",
     R"(3:1: the key "detach_after" has another name now, write "unattended_timeout")"},
    {"KeyThatIsGone", "attach: auto", "parking: {engine: qdisc}",
     R"(3:1: the key "parking" is gone, remove it: engine qdisc left the product, and requests always wait in the wheel )"
     R"((the technique is measured by `./dev bench seed-hedge --modes qdisc-htb`))"},
    {"EmptyKey", "attach: auto", "\"\": 5s",
     R"(3:1: unknown key "", expected one of instance, interface, attach, tcx_order, admin, metrics, )"
     R"(limits, clock, page, unattended_timeout, rule_priority, vip_route, services)"},
    {"DuplicateKey", "delay: 10ms", "deadline: 1s",
     R"(14:5: services[0].deadline: the key is given twice, expected it once)"},
    {"DuplicateTopKey", "attach: auto", "instance: other",
     R"(3:1: instance: the key is given twice, expected it once)"},
    {"AttemptsTooMany", "attempts: 2", "attempts: 6",
     R"(15:15: services[0].attempts: got "6", expected a whole number between 1 and 5)"},
    {"AttemptsFraction", "attempts: 2", "attempts: 2.5",
     R"(15:15: services[0].attempts: got "2.5", expected a whole number between 1 and 5)"},
    {"AttemptsQuoted", "attempts: 2", "attempts: \"2\"",
     R"(15:15: services[0].attempts: got "2", expected a whole number between 1 and 5)"},
    {"BudgetWithoutPercent", "budget: 5%", "budget: 0.05",
     R"(16:13: services[0].budget: got "0.05", expected a percentage between 0% and 100%, such as 5%)"},
    {"BudgetTooLarge", "budget: 5%", "budget: 101%",
     R"(16:13: services[0].budget: got "101%", expected a percentage between 0% and 100%, such as 5%)"},
    {"PortZero", "port: 53", "port: 0",
     R"(11:11: services[0].port: got "0", expected a whole number between 1 and 65535)"},
    {"PortHex", "port: 53", "port: 0x35",
     R"(11:11: services[0].port: got "0x35", expected a whole number between 1 and 65535)"},
    {"UnknownProfile", "profile: dns", "profile: gopher",
     R"(12:14: services[0].profile: got "gopher", expected one of PROFILES)"},
    {"MissingProfile", "profile: dns", "retention: 1s",
     R"(9:5: services[0].profile: the key is missing, expected one of PROFILES)"},
    {"FormerKeyOfAService", "profile: dns", "profile: dns\n    linger: 1s",
     R"(13:5: services[0]: the key "linger" has another name now, write "retention")"},
    {"UnknownAttach", "attach: auto", "attach: xdp", R"(3:9: attach: got "xdp", expected one of auto, tcx, clsact)"},
    {"UnspecifiedIsNoWord", "attach: auto", "attach: unspecified",
     R"(3:9: attach: got "unspecified", expected one of auto, tcx, clsact)"},
    {"LoopbackVip", "vip: 10.99.0.53", "vip: 127.0.0.53",
     R"(10:10: services[0].vip: got "127.0.0.53", expected an IPv4 or IPv6 unicast address, such as 10.77.0.11 or )"
     R"(fd77::b (this is a loopback address))"},
    {"MulticastVip", "vip: 10.99.0.53", "vip: 224.0.0.251",
     R"(10:10: services[0].vip: got "224.0.0.251", expected an IPv4 or IPv6 unicast address, such as 10.77.0.11 or )"
     R"(fd77::b (this is a multicast address))"},
    {"UnspecifiedVip", "vip: 10.99.0.53", "vip: 0.0.0.0",
     R"(10:10: services[0].vip: got "0.0.0.0", expected an IPv4 or IPv6 unicast address, such as 10.77.0.11 or )"
     R"(fd77::b (this is an unspecified address))"},
    {"HostNameVip", "vip: 10.99.0.53", "vip: dns.example",
     R"(10:10: services[0].vip: got "dns.example", expected an IPv4 or IPv6 unicast address, such as 10.77.0.11 or )"
     R"(fd77::b)"},
    {"FamilyMismatch", "{name: b, address: 10.77.0.12, port: 53}", "{name: b, address: fd77::c, port: 53}",
     R"(20:28: services[0].backends[1].address: got "fd77::c", expected an IPv4 address like the service's vip )"
     R"(10.99.0.53 (dual stack takes two services))"},
    {"ClientsOfTheOtherFamily", "primary: a", "clients: [10.78.0.0/24, \"fd78::/64\"]",
     R"(17:29: services[0].clients[1]: got "fd78::/64", expected an IPv4 network like the service's vip )"
     R"(10.99.0.53 (dual stack takes two services))"},
    {"ClientsWithBitsBeyondThePrefix", "primary: a", "clients: [10.78.0.1/24]",
     R"(17:15: services[0].clients[0]: got "10.78.0.1/24", expected a network, such as 10.0.0.0/8 or fd00::/8 )"
     R"((bits beyond the prefix are set; did you mean 10.78.0.0/24?))"},
    {"UnknownPrimary", "primary: a", "primary: aa",
     R"(17:14: services[0].primary: got "aa", expected the name of a backend of this service, did you mean "a"?)"},
    {"DuplicateBackendName", "{name: b, address: 10.77.0.12, port: 53}", "{name: a, address: 10.77.0.12, port: 53}",
     R"(20:16: services[0].backends[1].name: got "a", expected a name no other backend of this service has )"
     R"((services[0].backends[0].name in line 19 is the same))"},
    {"DuplicateBackendEndpoint", "{name: b, address: 10.77.0.12, port: 53}", "{name: b, address: 10.77.0.11, port: 53}",
     R"(20:28: services[0].backends[1].address: got "10.77.0.11:53", expected an address and port no other backend )"
     R"(of this service has (services[0].backends[0].address in line 19 is the same))"},
    {"DuplicateServiceName", "name: echo", "name: dns",
     R"(21:11: services[1].name: got "dns", expected a name no other service has (services[0].name in line 9 is )"
     R"(the same))"},
    {"BackendOfTwoServices", "{name: a, address: 10.77.0.11, port: 7}", "{name: a, address: 10.77.0.11, port: 53}",
     R"(27:28: services[1].backends[0].address: got "10.77.0.11:53", expected a backend that no other service uses )"
     R"((services[0].backends[0].address in line 19 is the same): a client socket that uses both services could )"
     R"(not be told which one a reply is for; give the backend a second port or address, or )"
     R"(the service an instance of its own)"},
    {"BackendIsAVip", "{name: b, address: 10.77.0.12, port: 53}", "{name: b, address: 10.99.0.1, port: 53}",
     R"(20:28: services[0].backends[1].address: got "10.99.0.1", expected an address that is no vip )"
     R"((services[1].vip in line 22): requests would come back to the proxy)"},
    {"RawWithoutBlock", "raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4}", "delay: 1ms",
     R"(24:14: services[1].profile: got "raw" without a raw block, expected raw: {request_offset, request_length, )"
     R"(reply_offset, reply_length})"},
    {"DnsWithRawBlock", "profile: raw", "profile: dns",
     R"(25:10: services[1].raw: got a raw block, expected one only with profile: raw)"},
    {"RawLengthTooLong", "request_length: 4", "request_length: 17",
     R"(25:46: services[1].raw.request_length: got "17", expected a whole number between 0 and 16)"},
    {"RawOffsetTooLarge", "request_offset: 0", "request_offset: 1480",
     R"(25:27: services[1].raw.request_offset: got "1480", expected a whole number between 0 and 1024)"},
    {"RawLengthsDiffer", "reply_length: 4", "reply_length: 8",
     R"(25:80: services[1].raw.reply_length: got 8, expected request_length, which is 4 (a reply repeats the )"
     R"(request's bytes))"},
    {"RawLengthMissing", ", reply_length: 4", "",
     R"(25:10: services[1].raw.reply_length: got 0, expected request_length, which is 4 (a reply repeats the )"
     R"(request's bytes))"},
    {"MetricsNotLoopback", "listen: \"127.0.0.1:9464\"", "listen: \"0.0.0.0:9464\"",
     R"(5:19: metrics.listen: got "0.0.0.0:9464", expected a loopback address, or metrics.tls and metrics.token_file beside it, )"
     R"(because other hosts can connect there)"},
    {"MetricsWithATokenInClear", "listen: \"127.0.0.1:9464\"",
     "listen: \"0.0.0.0:9464\", token_file: /etc/hedgerow/token",
     R"(5:19: metrics.listen: got "0.0.0.0:9464", expected a loopback address, or metrics.tls and metrics.token_file beside it, )"
     R"(because other hosts can connect there)"},
    {"MetricsSocketWithAToken", "listen: \"127.0.0.1:9464\"",
     "listen: unix:/run/hedgerow/metrics.sock, token_file: /etc/hedgerow/token",
     R"(5:19: metrics.listen: got "unix:/run/hedgerow/metrics.sock", expected an address and port beside metrics.tls and )"
     R"(metrics.token_file: a socket's group says who may ask there)"},
    {"MetricsWithoutPort", "listen: \"127.0.0.1:9464\"", "listen: localhost",
     R"(5:19: metrics.listen: got "localhost", expected an address and port such as 127.0.0.1:9464 or )"
     R"([::1]:9464, unix:/PATH, or "" for none)"},
    {"RelativeSocket", "socket: /run/hedgerow/admin.sock", "socket: admin.sock",
     R"(4:17: admin.socket: got "admin.sock", expected an absolute path of at most 100 bytes)"},
    {"InstanceWithSlash", "instance: default", "instance: a/b",
     R"(1:11: instance: got "a/b", expected 1 to 15 of the characters a-z, 0-9 and -)"},
    {"InterfaceTooLong", "interface: hr0", "interface: hedgerow-proxy0",
     R"(2:12: interface: got "hedgerow-proxy0", expected an interface name of 1 to 13 letters, digits, - or _, )"
     R"(starting with a letter)"},
    {"ServiceNameInCapitals", "name: dns", "name: DNS",
     R"(9:11: services[0].name: got "DNS", expected a name of 1 to 31 of the characters a-z, 0-9 and -, not )"
     R"(starting with -)"},
    {"LimitTooSmall", "requests: 131072", "requests: 3",
     R"(6:20: limits.requests: got "3", expected a whole number between 16 and 1048575)"},
    {"ToleranceTooLarge", "tolerance: 2ms", "tolerance: 2s",
     R"(7:20: clock.tolerance: got "2s", expected a duration between 100us and 1s, such as 2ms)"},
    {"ScalarForMap", "clock: {tolerance: 2ms}", "clock: fast",
     R"(7:8: clock: got a single value, expected a map with the keys kind, tolerance)"},
    {"ScalarForList", "- {name: a, address: 10.77.0.11, port: 7}", "nobody",
     R"(27:7: services[1].backends: got a single value, expected a list of 1 to 8 entries)"},
    {"EmptyList", "    backends:\n      - {name: a, address: 10.77.0.11, port: 7}", "    backends: []",
     R"(26:15: services[1].backends: got 0 entries, expected a list of 1 to 8 entries)"},
    {"ListAsKey", "attach: auto", "[a, b]: auto",
     R"(3:1: got a list as a key, expected one of instance, interface, attach, tcx_order, admin, metrics, limits, )"
     R"(clock, page, unattended_timeout, rule_priority, vip_route, services)"},
    {"Anchor", "delay: 10ms", "delay: &d 10ms", R"(13:12: got the anchor "d", expected a plain value)"},
    {"Tag", "delay: 10ms", "delay: !!int 10ms",
     R"(13:12: got the tag "tag:yaml.org,2002:int", expected a plain value)"},
};

class ConfigError : public testing::TestWithParam<Row> {};

TEST_P(ConfigError, IsReportedAtItsPlaceWithValueAndExpectation) {
  const Row& row = GetParam();
  std::string text = kSound;
  const size_t at = text.find(row.line);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(row.line).size(), row.replaced);
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  const std::string profiles = absl::StrJoin(ProfileNames(), ", ");
  EXPECT_THAT(errors.Lines(),
              testing::Contains(absl::StrCat("c.yaml:", absl::StrReplaceAll(row.error, {{"PROFILES", profiles}}))));
}

INSTANTIATE_TEST_SUITE_P(EachRow, ConfigError, testing::ValuesIn(kRows),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ConfigErrors, TheUnchangedFileIsSound) { EXPECT_TRUE(LoadText(kSound, "c.yaml").ok()); }

TEST(ConfigErrors, OneMistakeIsOneError) {
  for (const Row& row : kRows) {
    std::string text = kSound;
    text.replace(text.find(row.line), std::string(row.line).size(), row.replaced);
    Diagnostics errors("c.yaml");
    LoadText(text, errors);
    EXPECT_LE(errors.Lines().size(), 2u) << row.name << ": " << testing::PrintToString(errors.Lines());
  }
}

TEST(ConfigErrors, AllErrorsOfAFileAreReportedInItsOrder) {
  const std::string text = absl::StrReplaceAll(
      kSound, {{"attempts: 2", "attempts: 9"}, {"instance: default", "instance: A"}, {"port: 7}", "port: seven}"}});
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(),
              testing::ElementsAre(testing::StartsWith("c.yaml:1:11: instance: got \"A\""),
                                   testing::StartsWith("c.yaml:15:15: services[0].attempts: got \"9\""),
                                   testing::StartsWith("c.yaml:27:46: services[1].backends[0].port: got \"seven\"")));
}

TEST(ConfigErrors, AVipInPlaceIsNotLedByAnUplink) {
  const std::string text = absl::StrReplaceAll(kSound, {{"instance: default", "instance: default\nvip_route: uplink"},
                                                        {"attempts: 2", "attempts: 2\n    in_place: true"}});
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(), testing::ElementsAre(testing::HasSubstr(
                                  "services[0].in_place: got true, expected false with vip_route: uplink")));
}

TEST(ConfigErrors, WhatAServiceIsAlsoAskedAtIsOneServicesAlone) {
  const std::string text = absl::StrReplaceAll(
      kSound, {{"instance: default", "instance: default\nvip_route: uplink"},
               {"attempts: 2", "attempts: 2\n    also_at: [10.78.0.1, 'fd78::1', 10.78.0.1, 10.99.0.53]"}});
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(),
              testing::UnorderedElementsAre(
                  testing::HasSubstr("also_at[1]: got \"fd78::1\", expected an IPv4 address like the service's vip"),
                  testing::HasSubstr("also_at[2]: got \"10.78.0.1:53\", expected an address and port that no other"),
                  testing::HasSubstr("also_at[3]: got \"10.99.0.53:53\", expected an address and port that no other"),
                  testing::HasSubstr("also_at: got addresses, expected none with vip_route: uplink")));
}

TEST(ConfigErrors, DuplicateVipAndPort) {
  const std::string text =
      absl::StrReplaceAll(kSound, {{"vip: 10.99.0.1\n    port: 7", "vip: 10.99.0.53\n    port: 53"}});
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(),
              testing::ElementsAre("c.yaml:22:10: services[1].vip: got \"10.99.0.53:53\", expected an address and port "
                                   "no other service has (services[0].vip in line 10 is the same)"));
}

TEST(ConfigErrors, TooManyErrorsAreCut) {
  std::string text = "services:\n";
  for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "  - {a: 1, b: 2, c: 3}\n");
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_EQ(errors.Lines().size(), Diagnostics::kMaxKept + 1);
  EXPECT_THAT(errors.Lines().back(), testing::EndsWith("more errors"));
}

TEST(ConfigErrors, TooManyServicesAreRefusedByNumber) {
  std::string text = "services:\n";
  for (int i = 0; i < 65; ++i) absl::StrAppend(&text, "  - {}\n");
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(), testing::ElementsAre("c.yaml:2:3: services: got 65 entries, expected a list of 1 to 64 "
                                                   "entries"));
}

}  // namespace
}  // namespace hedgerow::config
