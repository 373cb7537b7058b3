// SPDX-License-Identifier: Apache-2.0
//
// What came of a reload is kept by its kind, with the reasons, and the hash
// tells configurations apart.

#include "proxy/instance/reload_outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::ReloadReply Reply(bool applied, const std::vector<std::string>& problems = {}) {
  v1::ReloadReply reply;
  reply.set_applied(applied);
  for (const std::string& problem : problems) reply.add_problems(problem);
  return reply;
}

TEST(ReloadOutcome, EachKindIsCountedAsItself) {
  ReloadFacts facts;
  const std::vector<std::pair<absl::StatusOr<v1::ReloadReply>, ReloadResult>> cases = {
      {Reply(true), ReloadResult::kApplied},
      {Reply(false), ReloadResult::kUnchanged},
      {Reply(false, {"interface: fixed"}), ReloadResult::kRefused},
      {absl::InvalidArgumentError("a.yaml:1:1: no\na.yaml:2:1: nor this"), ReloadResult::kInvalid},
      {absl::InternalError("no memory"), ReloadResult::kFailed}};
  for (const auto& [reply, expected] : cases) {
    NoteReload(reply, 7, facts);
    EXPECT_EQ(facts.last, expected);
    EXPECT_EQ(facts.last_ns, 7);
    EXPECT_EQ(facts.counts[static_cast<size_t>(expected)], 1u) << ReloadWord(expected);
  }
  EXPECT_EQ(facts.counts[0], 0u);
}

TEST(ReloadOutcome, TheReasonsAreThoseOfTheLastOne) {
  ReloadFacts facts;
  NoteReload(absl::InvalidArgumentError("one\ntwo"), 1, facts);
  EXPECT_THAT(facts.last_problems, ElementsAre("one", "two"));
  NoteReload(Reply(false, {"three"}), 2, facts);
  EXPECT_THAT(facts.last_problems, ElementsAre("three"));
  NoteReload(Reply(true), 3, facts);
  EXPECT_THAT(facts.last_problems, testing::IsEmpty());
}

TEST(ReloadOutcome, AHashIsOfTheWholeConfiguration) {
  ReloadFacts one, same, other;
  v1::Config config;
  config.add_services()->set_name("dns");
  NoteConfig(config, 5, absl::FromUnixSeconds(9), one);
  NoteConfig(config, 6, absl::FromUnixSeconds(9), same);
  EXPECT_EQ(one.config_hash, same.config_hash);
  EXPECT_EQ(one.config_hash.size(), 16u);
  config.mutable_services(0)->mutable_cluster()->set_key("00");
  NoteConfig(config, 5, absl::FromUnixSeconds(9), other);
  EXPECT_NE(one.config_hash, other.config_hash) << "a key that is rotated is another configuration";
}

TEST(ReloadOutcome, TheLogSaysWhatAndWhy) {
  EXPECT_EQ(OutcomeText(Reply(false)), "reloaded: nothing has changed");
  EXPECT_THAT(OutcomeText(Reply(false, {"a", "b"})), HasSubstr("not reloaded: a; b"));
  EXPECT_THAT(OutcomeText(absl::InternalError("no memory")), HasSubstr("not reloaded: no memory"));
}

}  // namespace
}  // namespace hedgerow
