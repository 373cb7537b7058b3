// SPDX-License-Identifier: Apache-2.0
//
// The program as a user runs it, where no privilege and no daemon is needed:
// exit codes, where messages go, JSON also on failure.

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "proxy/cli/command.h"

namespace hedgerow::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

struct Outcome {
  int exit_code;
  std::string out;
};

// Standard output only, or with `2>&1` in the words also standard error.
Outcome Hedgerow(const std::string& words) {
  const std::string command = absl::StrCat(HEDGEROW_BUILD_DIR, "/bin/hedgerow ", words);
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome{-1, ""};
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) outcome.out.append(buffer, got);
  const int state = pclose(pipe);
  if (WIFEXITED(state)) outcome.exit_code = WEXITSTATUS(state);
  return outcome;
}

constexpr char kCorpus[] = "/proxy/config/corpus/";
std::string Corpus(const char* name) { return absl::StrCat(HEDGEROW_SOURCE_DIR, kCorpus, name); }

TEST(HedgerowProgram, ValidateAcceptsASoundFile) {
  char pattern[] = "/tmp/hedgerow-commands-test.XXXXXX";
  const std::string copy = absl::StrCat(mkdtemp(pattern), "/everything.yaml");
  std::filesystem::copy_file(Corpus("everything.yaml"), copy);
  ASSERT_EQ(chmod(copy.c_str(), 0600), 0);  // it holds a key
  const Outcome done = Hedgerow("validate --config " + copy);
  EXPECT_EQ(done.exit_code, kExitOk);
  EXPECT_THAT(done.out, HasSubstr("sound (4 services, 6 backends)"));
  ASSERT_EQ(chmod(copy.c_str(), 0644), 0);
  const Outcome open = Hedgerow("validate --config " + copy + " 2>&1");
  EXPECT_EQ(open.exit_code, kExitUsage);
  EXPECT_THAT(open.out, HasSubstr("run `chmod g-w,o-rwx " + copy + "`"));
  std::filesystem::remove_all(pattern);
}

TEST(HedgerowProgram, ValidateSaysThatTftpDoesNotWorkByAVip) {
  char pattern[] = "/tmp/hedgerow-commands-test.XXXXXX";
  const std::string path = absl::StrCat(mkdtemp(pattern), "/tftp.yaml");
  const auto validated = [&path](int port, int backend_port) {
    std::ofstream(path) << "services: [{name: boot, vip: 10.99.0.1, port: " << port << ", profile: flow, backends: ["
                        << "{name: a, address: 10.77.0.11, port: " << backend_port
                        << "}, {name: b, address: 10.77.0.12, port: " << backend_port << "}]}]\n";
    return Hedgerow("validate --config " + path).out;
  };
  EXPECT_THAT(validated(69, 69), HasSubstr("service boot: port 69 is TFTP's"));
  EXPECT_THAT(validated(1069, 69), HasSubstr("port 69 is TFTP's"));
  EXPECT_THAT(validated(1069, 1069), AllOf(HasSubstr("sound (1 services, 2 backends)"), Not(HasSubstr("TFTP"))));
  std::filesystem::remove_all(pattern);
}

TEST(HedgerowProgram, ValidateRefusesWithCode2AndThePlace) {
  const Outcome done = Hedgerow("validate --config " + Corpus("alias.yaml") + " 2>&1");
  EXPECT_EQ(done.exit_code, kExitUsage);
  EXPECT_THAT(done.out, HasSubstr("alias.yaml:1:5: got the anchor"));
  const Outcome json = Hedgerow("validate --json --config " + Corpus("alias.yaml"));
  EXPECT_EQ(json.exit_code, kExitUsage);
  EXPECT_THAT(json.out, HasSubstr("\"ok\": false"));
  EXPECT_THAT(json.out, HasSubstr("\"column\": 5"));
}

TEST(HedgerowProgram, ErrorsGoToStandardErrorAndAsJsonToStandardOutput) {
  const Outcome text = Hedgerow("status --socket /tmp/hedgerow-none.sock 2>/dev/null");
  EXPECT_EQ(text.exit_code, kExitNotRunning);
  EXPECT_THAT(text.out, IsEmpty());
  const Outcome json = Hedgerow("status --socket /tmp/hedgerow-none.sock --json 2>/dev/null");
  EXPECT_EQ(json.exit_code, kExitNotRunning);
  EXPECT_THAT(json.out, HasSubstr("\"exit_code\": 3"));
}

TEST(HedgerowProgram, MisuseIsCode2WithAHint) {
  for (const auto& [words, hint] : std::vector<std::pair<std::string, std::string>>{
           {"", "which command?"},
           {"statsu", "did you mean status?"},
           {"status now", "status takes no words"},
           {"validate hedgerow.yaml", "validate takes no words; it takes --config FILE\n"},
           {"stop", "did you mean down?"},
           {"bypass dns maybe", "`hedgerow help bypass` has its options"},
           {"status --log x", "status takes no --log"},
           {"leader", "leader wants show, set or unset"},
           {"leader set dns", "leader wants show, set or unset"},
           {"bypass dns maybe", "got \"maybe\", expected on or off"},
           {"dry-run dns", "dry-run wants a service and on or off"},
           {"dry-run dns maybe", "got \"maybe\", expected on or off"},
           {"drain", "drain wants a backend"},
           {"undrain a b c", "undrain wants a backend"},
           {"up", "--config FILE is missing"},
           {"clean --instance a/b", "got \"a/b\""},
           {"--confg x", "did you mean --config?"},
       }) {
    const Outcome done = Hedgerow(words + " 2>&1");
    EXPECT_EQ(done.exit_code, kExitUsage) << words;
    EXPECT_THAT(done.out, HasSubstr(hint)) << words;
  }
}

TEST(HedgerowProgram, HelpListsEveryCommandAndTheDocumentationNamesThem) {
  const Outcome help = Hedgerow("help");
  EXPECT_EQ(help.exit_code, kExitOk);
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/cli.md");
  std::stringstream docs;
  docs << file.rdbuf();
  for (const operate::Command& command : TheProgram().commands) {
    EXPECT_THAT(help.out, HasSubstr("  " + command.name)) << command.name;
    EXPECT_THAT(docs.str(), HasSubstr("| `" + command.name)) << command.name;
    EXPECT_THAT(Hedgerow(command.name + " --help").out, StartsWith("usage: hedgerow " + command.name)) << command.name;
  }
}

TEST(HedgerowProgram, CommandsOfTheClusterAreTheNodes) {
  EXPECT_THAT(Hedgerow("cluster version").out, StartsWith("hedgerow-node "));
  EXPECT_THAT(Hedgerow("cluster help snapshot").out, StartsWith("usage: hedgerow-node snapshot"));
  const Outcome nobody = Hedgerow("cluster status --socket /nowhere/admin.sock 2>&1");
  EXPECT_EQ(nobody.exit_code, kExitNotRunning);
  EXPECT_EQ(Hedgerow("cluster 2>&1").exit_code, kExitUsage);
}

TEST(HedgerowProgram, VersionsAgree) {
  EXPECT_THAT(Hedgerow("version").out, StartsWith("hedgerow "));
  EXPECT_THAT(Hedgerow("version --json").out, HasSubstr("\"abi_version\""));
  EXPECT_EQ(Hedgerow("--version").exit_code, kExitOk);
}

}  // namespace
}  // namespace hedgerow::cli
