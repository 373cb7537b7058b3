// SPDX-License-Identifier: Apache-2.0
//
// The command line is read strictly.

#include "operate/arguments.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::operate {
namespace {

using testing::ElementsAre;

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& argv) {
  return ParseArguments(argv, {"config", "socket", "instance", "log"});
}

TEST(ParseArguments, SeparatesWordsFromOptionsInAnyOrder) {
  const auto parsed = Parse({"--json", "leader", "--socket=/run/x.sock", "set", "dns", "--config", "f", "b"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->words, ElementsAre("leader", "set", "dns", "b"));
  EXPECT_TRUE(parsed->json());
  EXPECT_EQ(parsed->Get("socket"), "/run/x.sock");
  EXPECT_EQ(parsed->Get("config"), "f");
  EXPECT_EQ(parsed->Get("instance", "default"), "default");
  EXPECT_FALSE(parsed->Has("instance"));
  EXPECT_FALSE(parsed->Has("help"));
}

TEST(ParseArguments, TakesAnythingAsAValue) {
  EXPECT_EQ(Parse({"--config="})->Get("config", "default"), "");
  EXPECT_EQ(Parse({"--config", "--json"})->Get("config"), "--json");
  EXPECT_EQ(Parse({"--config=a=b"})->Get("config"), "a=b");
}

TEST(ParseArguments, ALetterIsAnOptionAndWhatStandsBehindTwoDashesIsUntouched) {
  const std::vector<std::string> argv = {"run", "-n", "4", "--", "nc", "-n", "--json", "--", "-u=1"};
  const auto parsed = ParseArguments(argv, {"workers"}, {}, {{'n', "workers"}}, true);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->words, ElementsAre("run"));
  EXPECT_EQ(parsed->Get("workers"), "4");
  EXPECT_THAT(parsed->command, ElementsAre("nc", "-n", "--json", "--", "-u=1"));
  EXPECT_FALSE(parsed->json());
  EXPECT_EQ(ParseArguments({"-n12"}, {"workers"}, {}, {{'n', "workers"}}, true)->Get("workers"), "12");
  EXPECT_FALSE(ParseArguments({"-m", "4"}, {"workers"}, {}, {{'n', "workers"}}, true).ok());
  EXPECT_FALSE(Parse({"run", "--", "x"}).ok()) << "where no command may follow";
}

TEST(ParseArguments, KnowsTheFlagsOfEveryProgram) {
  const auto parsed = Parse({"-h", "--version", "--json", "--json"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->Has("help"));
  EXPECT_TRUE(parsed->Has("version"));
  EXPECT_TRUE(parsed->json());
  EXPECT_FALSE(Parse({})->json());
}

TEST(ParseArguments, KnowsTheFlagsThatItIsGiven) {
  const auto parsed = ParseArguments({"top", "--once", "dns"}, {"config"}, {"once"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->Has("once"));
  EXPECT_THAT(parsed->words, ElementsAre("top", "dns")) << "a flag takes no word";
  EXPECT_FALSE(ParseArguments({"--once=1"}, {}, {"once"}).ok());
  EXPECT_EQ(ParseArguments({"--onec"}, {}, {"once"}).status().message(), "unknown option --onec, did you mean --once?");
}

TEST(ParseArguments, ALoneDashIsAWord) {
  const auto arguments = Parse({"simulate", "-", "--config", "-"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_THAT(arguments->words, testing::ElementsAre("simulate", "-"));
  EXPECT_EQ(arguments->Get("config"), "-");
}

TEST(ParseArguments, SaysWhatItRefuses) {
  for (const auto& [argv, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"up", "--confg", "f"}, "unknown option --confg, did you mean --config?"},
           {{"--jsn"}, "unknown option --jsn, did you mean --json?"},
           {{"--to", "3"}, "unknown option --to"},
           {{"up", "--config"}, "--config wants a value"},
           {{"-v"}, "unknown option -v"},
           {{"-config", "f"}, "unknown option -config"},
           {{"--json=yes"}, "unknown option --json=yes"},
           {{"--config=a", "--config=b"}, "--config is given twice"},
           {{"--"}, "unknown option --"}}) {
    const absl::Status status = Parse(argv).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(message));
  }
}

}  // namespace
}  // namespace hedgerow::operate
