// SPDX-License-Identifier: Apache-2.0
#include "operate/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace hedgerow::operate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Program& Shop() {
  static const auto* program = new Program{.name = "hr-shop",
                                           .summary = "sell things",
                                           .commands = {{"sell",
                                                         "THING",
                                                         "sell it",
                                                         {{"price", "EUROS", "what it costs", true},
                                                          {"list", "FILE", "where it is noted"},
                                                          {"gift", "", "wrap it"}},
                                                         nullptr,
                                                         {"hr-shop sell lamp --price 3"}},
                                                        {"close", "", "end the day"}},
                                           .options = {{"json", "", "print JSON"}},
                                           .notes = {"Open from nine to five."},
                                           .exit_codes = {{"0", "sold"}},
                                           .environment = {{"SHOP", "which one"}},
                                           .files = {{"/etc/shop.conf", ".d is not read"}},
                                           .see_also = {"market(1)", "till(8)"}};
  return *program;
}

TEST(Manual, TheUsageLineHasTheOptionsThatACommandNeeds) {
  EXPECT_EQ(UsageLine(Shop(), Shop().commands[0]), "usage: hr-shop sell THING --price EUROS [OPTIONS]");
  EXPECT_EQ(UsageLine(Shop(), Shop().commands[1]), "usage: hr-shop close [OPTIONS]");
}

TEST(Manual, HelpOfACommandHasEveryOptionAndTheExamples) {
  EXPECT_EQ(HelpOf(Shop(), Shop().commands[0]),
            "usage: hr-shop sell THING --price EUROS [OPTIONS]\n\nsell it\n\noptions:\n"
            "  --price EUROS  what it costs\n"
            "  --list FILE    where it is noted\n"
            "  --gift         wrap it\n"
            "  --json         print JSON\n"
            "\nexamples:\n  hr-shop sell lamp --price 3\n");
}

TEST(Manual, HelpListsCommandsOptionsNotesAndExitCodes) {
  EXPECT_EQ(HelpOf(Shop()),
            "usage: hr-shop COMMAND [OPTIONS]\n\ncommands:\n  sell   sell it\n  close  end the day\n"
            "\noptions:\n  --json  print JSON\n\nOpen from nine to five.\n"
            "\nenvironment:\n  SHOP  which one\n\nexit codes:\n  0  sold\n");
}

TEST(Manual, OptionsThatStandFirstLeaveTheWordsBehindTheCommand) {
  Program program = Shop();
  program.options_first = true;
  EXPECT_THAT(HelpOf(program),
              AllOf(HasSubstr("usage: hr-shop [OPTIONS] COMMAND\n"), HasSubstr("\n  sell THING  sell it\n")));
}

TEST(Manual, NoLineOfHelpIsWiderThanAHundredColumns) {
  Program program = Shop();
  for (int i = 0; i < 60; ++i) program.commands[0].options[1].help += " and more";
  for (const absl::string_view line : absl::StrSplit(HelpOf(program, program.commands[0]), '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Manual, APageHasItsSectionsAndNoTextThatRoffTakesForAMacro) {
  const std::string page = ManPage(Shop());
  for (const char* part :
       {".TH HR\\-SHOP 8 ", ".SH NAME\nhr\\-shop \\- sell things\n", ".SH SYNOPSIS\n.B hr\\-shop COMMAND",
        ".SS sell THING\nsell it\n", ".B \\-\\-price EUROS\nwhat it costs\n", "hr\\-shop sell lamp",
        ".SH ENVIRONMENT\n", "/etc/shop.conf\n\\&.d is not read\n", ".SH SEE ALSO\n.BR market (1),\n.BR till (8)\n"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  Program plain = Shop();
  plain.environment.clear();
  EXPECT_THAT(ManPage(plain), Not(HasSubstr("ENVIRONMENT")));
}

TEST(Manual, ACompletionKnowsCommandsOptionsAndFiles) {
  Program program = Shop();
  program.commands[1].words = "[today | SERVICE on|off]";
  EXPECT_THAT(BashCompletion(program), HasSubstr("|| options=\"today on off $(hr-shop status --json"));
  EXPECT_THAT(BashCompletion(Shop()), AllOf(HasSubstr("_hr_shop()"), HasSubstr("options='sell close'"),
                                            HasSubstr("--list) compopt -o filenames 2>/dev/null; mapfile"),
                                            HasSubstr("sell) options='--price --list --gift --json --help'"),
                                            HasSubstr("complete -o default -F _hr_shop hr-shop")));
}

}  // namespace
}  // namespace hedgerow::operate
