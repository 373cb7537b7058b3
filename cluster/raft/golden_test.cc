// SPDX-License-Identifier: Apache-2.0
//
// Replays every script in testdata/ and compares. With HEDGEROW_REWRITE=1 in the environment the scripts are
// rewritten instead: look at the difference before you commit it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "build_paths.h"
#include "cluster/raft/testing/script.h"

namespace hedgerow::raft {
namespace {

std::vector<std::string> ScriptNames() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(HEDGEROW_SOURCE_DIR "/cluster/raft/testdata")) {
    if (file.path().extension() == ".txt") names.push_back(file.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Golden : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Scripts, Golden, testing::ValuesIn(ScriptNames()),
                         [](const auto& info) { return info.param; });

TEST_P(Golden, StillTellsTheSame) {
  const std::string path = HEDGEROW_SOURCE_DIR "/cluster/raft/testdata/" + GetParam() + ".txt";
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto output = RunScript(text);
  ASSERT_TRUE(output.ok()) << path << ": " << output.status();
  EXPECT_THAT(*output, testing::Not(testing::HasSubstr("VIOLATION")));
  if (getenv("HEDGEROW_REWRITE") != nullptr) {
    std::ofstream(path) << *output;
  } else {
    EXPECT_EQ(*output, text) << "HEDGEROW_REWRITE=1 rewrites " << path;
  }
}

TEST(GoldenScript, AMistakeInAScriptIsNamedWithItsLine) {
  const auto output = RunScript("nodes 3\n\nfly 1\n");
  ASSERT_FALSE(output.ok());
  EXPECT_TRUE(absl::StrContains(std::string(output.status().message()), "line 3")) << output.status();
}

}  // namespace
}  // namespace hedgerow::raft
