// SPDX-License-Identifier: Apache-2.0
//
// Differences are named by their keys, entries by their names, secrets not at
// all, and what cannot be applied while the proxy runs says why.

#include "proxy/config/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kText[] = R"(
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
  - name: kv
    vip: 10.99.0.4
    port: 4801
    profile: hkv
    cluster: {id: 7, key: "000102030405060708090a0b0c0d0e0f"}
    backends: [{name: n1, address: 10.77.0.11, port: 4801}]
)";

v1::Config Load(const std::string& text) {
  auto config = LoadText(text, "test.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : v1::Config();
}

// The changes after replacing texts of the configuration.
std::vector<Change> After(const std::vector<std::pair<std::string, std::string>>& replaced) {
  const v1::Config to = Load(absl::StrReplaceAll(kText, replaced));
  return Diff(Load(kText), to);
}

std::string Text(const Change& change) {
  const auto quoted = [](const std::string& text) { return text.empty() ? "\"\"" : text; };
  if (change.kind == "changed")
    return absl::StrCat("  ", change.path, ": ", quoted(change.from), " -> ", quoted(change.to));
  const std::string& what = change.kind == "added" ? change.to : change.from;
  return absl::StrCat(change.kind == "added" ? "+ " : "- ", change.path, what.empty() ? "" : ": ", what);
}

std::vector<std::string> Texts(const std::vector<Change>& changes) {
  std::vector<std::string> texts;
  for (const Change& change : changes) texts.push_back(Text(change));
  return texts;
}

TEST(Diff, NothingDiffersFromItself) { EXPECT_THAT(After({}), IsEmpty()); }

TEST(Diff, AValueIsNamedByItsKeyInItsOwnUnits) {
  const auto changes = After({{"profile: dns", "profile: dns\n    delay: 5ms\n    budget: 2%"}});
  EXPECT_THAT(Texts(changes), ElementsAre("  services[dns].delay: 10ms -> 5ms", "  services[dns].budget: 5% -> 2%"));
  EXPECT_THAT(Obstacles(changes), IsEmpty());
}

TEST(Diff, EntriesAreToldApartByNameAndNotByPlace) {
  const std::string a = "      - {name: a, address: 10.77.0.11, port: 53}\n";
  const std::string b = "      - {name: b, address: 10.77.0.12, port: 53}\n";
  const auto moved =
      After({{a + b, b + a}, {"port: 53\n    profile: dns", "port: 53\n    profile: dns\n    primary: a"}});
  EXPECT_THAT(moved, IsEmpty());
  const auto changes =
      After({{"{name: b, address: 10.77.0.12, port: 53}", "{name: c, address: 10.77.0.13, port: 53}"}});
  EXPECT_THAT(Texts(changes), ElementsAre("- services[dns].backends[b]: address 10.77.0.12, port 53",
                                          "+ services[dns].backends[c]: address 10.77.0.13, port 53"));
  EXPECT_THAT(Obstacles(changes), IsEmpty());
}

TEST(Diff, ListsOfWordsAndEntriesWithoutNamesAreCompared) {
  const std::string raw =
      "profile: raw\n    raw: {request_offset: 0, request_length: 4, reply_offset: 0, "
      "reply_length: 4, requests: [{offset: 4, bytes: \"01\"}], one_datagram: true}";
  const v1::Config from = Load(absl::StrReplaceAll(kText, {{"profile: dns", raw}}));
  EXPECT_THAT(Diff(from, from), IsEmpty());
  const std::string other = absl::StrReplaceAll(raw, {{"\"01\"", "\"02\""}, {", one_datagram: true", ""}});
  EXPECT_THAT(Texts(Diff(from, Load(absl::StrReplaceAll(kText, {{"profile: dns", other}})))),
              ElementsAre("  services[dns].raw.requests[0].bytes: 01 -> 02",
                          "  services[dns].raw.one_datagram: true -> false"));
  v1::Config words = from;
  words.mutable_services(0)->add_duplicate("set");
  words.mutable_services(0)->add_duplicate("touch");
  EXPECT_THAT(Texts(Diff(from, words)), ElementsAre("  services[dns].duplicate: \"\" -> set, touch"));
}

// Several may have one name, and most have none.
TEST(Diff, OperationsAreToldApartByPlaceAndNotByName) {
  const std::string raw =
      "profile: raw\n    duplicate: [gat]\n    raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4, "
      "operations: [{match: [{offset: 4, text: get}]}, {name: gat, match: [{offset: 4, text: gat}]}, "
      "{name: gat, match: [{offset: 4, text: gats}]}]}";
  const v1::Config from = Load(absl::StrReplaceAll(kText, {{"profile: dns", raw}}));
  EXPECT_THAT(Diff(from, from), IsEmpty());
  const std::string other = absl::StrReplaceAll(raw, {{"gats}]}]", "gatz}]}], not_idempotent: [incr]"}});
  const auto changes = Diff(from, Load(absl::StrReplaceAll(kText, {{"profile: dns", other}})));
  EXPECT_THAT(Texts(changes), ElementsAre("  services[dns].raw.operations[2].match[0].text: gats -> gatz",
                                          "  services[dns].raw.not_idempotent: \"\" -> incr"));
  EXPECT_THAT(Obstacles(changes), IsEmpty());
}

// No packet is judged by it.
TEST(Diff, AHarmlessRequestIsNamedWhileTheProxyRuns) {
  const std::string raw =
      "profile: raw\n    raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4}";
  const std::string with = absl::StrReplaceAll(raw, {{"reply_length: 4}", "reply_length: 4, check: {bytes: \"00\"}}"}});
  const auto changes = Diff(Load(absl::StrReplaceAll(kText, {{"profile: dns", raw}})),
                            Load(absl::StrReplaceAll(kText, {{"profile: dns", with}})));
  EXPECT_THAT(Texts(changes), testing::Contains(testing::HasSubstr("services[dns].raw.check")));
  EXPECT_THAT(Obstacles(changes), IsEmpty());
}

TEST(Diff, AServiceIsAddedAndRemovedAsAWhole) {
  const auto changes = After({{"name: kv", "name: store"}});
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].path, "services[kv]");
  EXPECT_EQ(changes[0].kind, "removed");
  EXPECT_EQ(changes[1].path, "services[store]");
  EXPECT_THAT(changes[1].to, HasSubstr("vip 10.99.0.4"));
  EXPECT_THAT(Obstacles(changes), IsEmpty());
}

TEST(Diff, AKeyThatChangedIsSaidToHaveChangedAndNotShown) {
  const auto changes = After({{"000102030405060708090a0b0c0d0e0f", "ff0102030405060708090a0b0c0d0e0f"}});
  EXPECT_THAT(Texts(changes), ElementsAre("  services[kv].cluster.key: (hidden) -> (hidden)"));
  const auto whole = Diff(
      Load(kText),
      Load(absl::StrReplaceAll(kText, {{"    cluster: {id: 7, key: \"000102030405060708090a0b0c0d0e0f\"}\n", ""}})));
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_THAT(Text(whole[0]), testing::Not(HasSubstr("0001")));
}

TEST(Diff, WhatCannotBeAppliedIsNamedWithTheReason) {
  const auto top = Diff(
      Load(kText), Load(absl::StrCat("interface: hr7\nlimits: {requests: 4096}\nunattended_timeout: 5s\n", kText)));
  EXPECT_THAT(Obstacles(top),
              ElementsAre(HasSubstr(
                  "interface, limits.requests: fixed while the proxy runs; `systemctl restart hedgerowd` applies it")));
  EXPECT_EQ(top.size(), 3u) << "unattended_timeout can";
  EXPECT_THAT(Obstacles(After({{"vip: 10.99.0.53", "vip: 10.99.0.54"}})),
              ElementsAre(HasSubstr("services[dns].vip: ")));
  EXPECT_THAT(Obstacles(After({{"profile: dns", "profile: hkv"}})), ElementsAre(HasSubstr("services[dns].profile: ")));
}

TEST(Diff, WhatMayBeSentTwiceCanChangeAndHowAnswersArePairedCannot) {
  const std::string raw =
      "profile: raw\n    raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4, "
      "operations: [{match: [{offset: 4, bytes: \"01\"}]}]}";
  const v1::Config from = Load(absl::StrReplaceAll(kText, {{"profile: dns", raw}}));
  const auto after = [&](const std::string& what, const std::string& by) {
    return Diff(from, Load(absl::StrReplaceAll(kText, {{"profile: dns", absl::StrReplaceAll(raw, {{what, by}})}})));
  };
  EXPECT_EQ(after("\"01\"", "\"02\"").size(), 1u);
  EXPECT_THAT(Obstacles(after("\"01\"", "\"02\"")), IsEmpty());
  EXPECT_THAT(Obstacles(after("reply_offset: 0", "reply_offset: 2")),
              ElementsAre(HasSubstr("services[dns].raw.reply_offset: ")));
}

TEST(Diff, AnnouncementsAreAwaitedWhereTheyWereAndNowhereElse) {
  EXPECT_THAT(Obstacles(After({{"cluster: {id: 7,", "cluster: {id: 7, announce_port: 4999,"}})),
              ElementsAre(HasSubstr("services[kv].cluster.announce_port: ")));
  EXPECT_THAT(Obstacles(After({{"name: kv", "name: store"}})), IsEmpty()) << "a new service on the same port";
  const std::string without =
      absl::StrReplaceAll(kText, {{"    cluster: {id: 7, key: \"000102030405060708090a0b0c0d0e0f\"}\n", ""}});
  EXPECT_THAT(Obstacles(Diff(Load(without), Load(kText))), ElementsAre(HasSubstr("services[kv].cluster: ")));
  EXPECT_THAT(Obstacles(Diff(Load(without), Load(kText), {4803})), IsEmpty()) << "by the programs, since their start";
}

TEST(Diff, AKeyThatAnOlderVersionDidNotKnowIsAtItsDefault) {
  v1::Config old = Load(kText);
  old.set_unattended_timeout_ns(0);
  EXPECT_THAT(Diff(old, Load(kText)), IsEmpty());
  EXPECT_THAT(Texts(Diff(old, Load(absl::StrCat("unattended_timeout: 5s\n", kText)))),
              ElementsAre("  unattended_timeout: 60s -> 5s"));
}

}  // namespace
}  // namespace hedgerow::config
