// SPDX-License-Identifier: Apache-2.0
//
// A program of two commands as a user runs it: which command is found, exit codes, where messages go. The
// programs' own tests (proxy/cli, cluster/node) run theirs.

#include "operate/command_line.h"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "operate/manual.h"

namespace hedgerow::operate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

int RunGreet(const Call& call) {
  if (call.arguments.words.size() != 2) return call.UsageError("greet wants a name");
  if (call.arguments.words[1] == "nobody") return call.Fail(absl::UnavailableError("nobody is there"));
  if (call.arguments.words[1] == "seven") return call.Fail(7, "seven is not to be greeted");
  v1::ConfigError message;  // any message
  message.set_path(call.arguments.words[1]);
  return call.Print(message, call.arguments.Get("with", "hello") + " " + call.arguments.words[1] + "\n");
}

int RunVersion(const Call& call) { return call.Print(v1::Failure(), "greeter 1\n"); }

const Program& Greeter() {
  static const auto* program =
      new Program{.name = "greeter",
                  .commands = {{"greet", "NAME", "say hello", {{"with", "WORD", "instead of hello"}}, RunGreet},
                               {"version", "", "print the version", {}, RunVersion},
                               HelpCommand()},
                  .notes = {"Be polite."}};
  return *program;
}

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

Outcome Greet(const std::vector<std::string>& argv) {
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = Run(Greeter(), argv, out, err);
  return {exit_code, out.str(), err.str()};
}

// /dev/full takes nothing, as a full disk.
TEST(CommandLine, OutputThatCannotBeWrittenIsAFailure) {
  const std::vector<std::vector<std::string>> commands = {{"greet", "ada"}, {"greet", "ada", "--json"}, {"help"}};
  for (const std::vector<std::string>& argv : commands) {
    std::ofstream full("/dev/full");
    std::ostringstream err;
    EXPECT_EQ(operate::Run(Greeter(), argv, full, err), kExitFailure);
    EXPECT_EQ(err.str(), "greeter: the output could not be written: is its disk full?\n");
  }
  std::ofstream full("/dev/full");
  std::ostringstream err;
  EXPECT_EQ(operate::Run(Greeter(), {"greet", "seven", "--json"}, full, err), 7);
}

TEST(CommandLine, ACommandGetsItsWordsAndOptions) {
  const Outcome text = Greet({"--with=hi", "greet", "ada"});
  EXPECT_EQ(text.exit_code, kExitOk);
  EXPECT_EQ(text.out, "hi ada\n");
  EXPECT_THAT(text.err, IsEmpty());
  const Outcome json = Greet({"greet", "ada", "--json"});
  EXPECT_EQ(json.exit_code, kExitOk);
  EXPECT_EQ(json.out, "{\n  \"line\": 0,\n  \"column\": 0,\n  \"path\": \"ada\",\n  \"message\": \"\"\n}\n");
}

TEST(CommandLine, AFailureHasItsCodeAndGoesToStandardErrorOrAsJsonToStandardOutput) {
  const Outcome text = Greet({"greet", "nobody"});
  EXPECT_EQ(text.exit_code, kExitNotRunning);
  EXPECT_THAT(text.out, IsEmpty());
  EXPECT_EQ(text.err, "nobody is there\n");
  const Outcome json = Greet({"greet", "seven", "--json"});
  EXPECT_EQ(json.exit_code, 7);
  EXPECT_EQ(json.out, "{\n  \"error\": \"seven is not to be greeted\",\n  \"exit_code\": 7\n}\n");
  EXPECT_THAT(json.err, IsEmpty());
}

TEST(CommandLine, MisuseIsCode2WithAHint) {
  const std::string greet = "\nusage: greeter greet NAME [OPTIONS]\n`greeter help greet` has its options\n";
  const std::string list = "\n`greeter help` lists the commands\n";
  for (
      const auto& [argv, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
          {{}, "greeter: which command?" + list},
          {{"gret"}, "greeter: no command gret, did you mean greet?" + list},
          {{"xyz"}, "greeter: no command xyz" + list},
          {{"greet"}, "greeter: greet wants a name" + greet},
          {{"version", "--with", "x"},
           "greeter: version takes no --with\nusage: greeter version [OPTIONS]\n`greeter help version` has its options\n"},
          {{"version", "now"},
           "greeter: version takes no words\nusage: greeter version [OPTIONS]\n`greeter help version` has its options\n"},
          {{"greet", "a", "--version"}, "greeter: greet takes no --version" + greet},
          {{"greet", "--wth", "x"}, "greeter: unknown option --wth, did you mean --with?" + list},
          {{"help", "xyz"},
           "greeter: no command xyz\nusage: greeter help [COMMAND] [OPTIONS]\n`greeter help help` has its options\n"}}) {
    const Outcome done = Greet(argv);
    EXPECT_EQ(done.exit_code, kExitUsage) << message;
    EXPECT_THAT(done.out, IsEmpty()) << message;
    EXPECT_EQ(done.err, message);
  }
  // Also when the command line cannot be read.
  const Outcome json = Greet({"--json", "--wth"});
  EXPECT_EQ(json.exit_code, kExitUsage);
  EXPECT_THAT(json.out, testing::HasSubstr("\"exit_code\": 2"));
  EXPECT_THAT(json.err, IsEmpty());
}

TEST(CommandLine, HelpIsTheDescriptionsWhicheverWayItIsAskedFor) {
  for (const char* asked : {"help", "--help", "-h"}) {
    const Outcome help = Greet({asked});
    EXPECT_EQ(help.exit_code, kExitOk);
    EXPECT_EQ(help.out, HelpOf(Greeter())) << asked;
  }
  for (const auto& argv : {std::vector<std::string>{"help", "greet"}, {"greet", "--help"}, {"greet", "-h"}}) {
    EXPECT_EQ(Greet(argv).out, HelpOf(Greeter(), Greeter().commands[0]));
  }
  EXPECT_EQ(Greet({"help", "--man"}).out, ManPage(Greeter()));
  EXPECT_EQ(Greet({"help", "--completion"}).out, BashCompletion(Greeter()));
}

TEST(CommandLine, TheFlagVersionIsTheCommand) { EXPECT_EQ(Greet({"--version"}).out, "greeter 1\n"); }

TEST(CommandLine, EveryKindOfErrorHasItsExitCode) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 4);
}

TEST(CommandLine, ConfigErrorsKeepThePlaceAndTheOrderOfTheFile) {
  config::Diagnostics errors("f.yaml");
  errors.Add({3, 1}, "b", "second");
  errors.Add({1, 7}, "a", "first");
  std::vector<std::string> shown;
  for (const v1::ConfigError& error : ConfigErrors(errors)) {
    shown.push_back(absl::StrCat(error.line(), ":", error.column(), ": ", error.path(), ": ", error.message()));
  }
  EXPECT_THAT(shown, ElementsAre("1:7: a: first", "3:1: b: second"));
}

}  // namespace
}  // namespace hedgerow::operate
