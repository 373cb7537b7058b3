// SPDX-License-Identifier: Apache-2.0
//
// The command line is read strictly.

#include "proxy/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::cli {
namespace {

using testing::ElementsAre;

TEST(ParseArguments, SeparatesWordsFromOptionsInAnyOrder) {
  const auto parsed =
      ParseArguments({"--json", "leader", "--socket=/run/x.sock", "set", "dns", "--config", "f", "b"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->words, ElementsAre("leader", "set", "dns", "b"));
  EXPECT_TRUE(parsed->json());
  EXPECT_EQ(parsed->Get("socket"), "/run/x.sock");
  EXPECT_EQ(parsed->Get("config"), "f");
  EXPECT_EQ(parsed->Get("instance", "default"), "default");
}

TEST(ParseArguments, RefusesWhatItDoesNotKnow) {
  for (const std::vector<std::string>& argv :
       std::vector<std::vector<std::string>>{{"up", "--confg", "f"},
                                             {"up", "--config"},
                                             {"-v"},
                                             {"--json=yes"},
                                             {"--config=a", "--config=b"},
                                             {"--"}}) {
    EXPECT_EQ(ParseArguments(argv).status().code(), absl::StatusCode::kInvalidArgument) << argv[0];
  }
  EXPECT_THAT(std::string(ParseArguments({"--confg", "f"}).status().message()),
              testing::HasSubstr("did you mean --config?"));
}

}  // namespace
}  // namespace hedgerow::cli
