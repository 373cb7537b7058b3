// SPDX-License-Identifier: Apache-2.0
//
// The command line without a supervisor: what is refused, and texts for people.
#include "steer/cli/commands.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build_paths.h"

namespace hedgerow::steer::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

Outcome Steer(const std::vector<std::string>& words) {
  std::ostringstream out, err;
  const int code = operate::Run(TheProgram(), words, out, err);
  return {code, out.str(), err.str()};
}

TEST(SteerCommands, AreRefusedWithTheirUsage) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"run"},
                                             {"run", "-n", "2", "--", "true"},
                                             {"run", "--listen", "127.0.0.1:1", "-n", "2"},
                                             {"run", "-n"},
                                             {"run", "--listen", "127.0.0.1:1", "--", "true"},
                                             {"resize"},
                                             {"resize", "two"},
                                             {"resize", "2", "3"},
                                             {"drain"},
                                             {"weights"},
                                             {"weights", "1", "heavy"},
                                             {"explain"},
                                             {"explain", "router"},
                                             {"explain", "192.0.2.1", "--payload", "abc"},
                                             {"adopt"},
                                             {"adopt", "--listen", "127.0.0.1:1", "nginx"},
                                             {"adopt", "12"},
                                             {"adopt", "--listen", "127.0.0.1:1", "--empty", "stand-in", "12"},
                                             {"bind"},
                                             {"bind", "nfcapd"},
                                             {"simulate"},
                                             {"show", "it"},
                                             {"show", "--", "x"},
                                             {"stop", "now"},
                                             {"shw"},
                                             {"show", "--name", "Bad Name"}}) {
    const Outcome refused = Steer(words);
    EXPECT_EQ(refused.exit_code, kExitUsage) << testing::PrintToString(words) << refused.err;
    EXPECT_EQ(refused.out, "");
    EXPECT_NE(refused.err, "");
  }
  EXPECT_THAT(Steer({"shw"}).err, HasSubstr("did you mean show?"));
}

TEST(SteerCommands, WithoutAGroupItIsSaid) {
  char pattern[] = "/tmp/hedgerow-steer-test.XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const Outcome none = Steer({"show", "--run-dir", folder});
  EXPECT_EQ(none.exit_code, kExitNotRunning);
  EXPECT_THAT(none.err, HasSubstr("no group runs here"));
  for (const char* name : {"one", "two"}) {
    std::filesystem::create_directories(folder + "/" + name);
    std::ofstream(folder + "/" + name + "/record.json") << "{}";
  }
  EXPECT_THAT(Steer({"show", "--run-dir", folder}).err, HasSubstr("There are one, two"));
  const Outcome dead = Steer({"show", "--run-dir", folder, "--name", "one", "--json"});
  EXPECT_EQ(dead.exit_code, kExitNotRunning);
  EXPECT_THAT(dead.out, HasSubstr("\"exit_code\": 3"));
  std::filesystem::remove_all(folder);
}

TEST(SteerCommands, HelpListsEveryCommandAndTheDocumentationNamesThem) {
  const Outcome help = Steer({"help"});
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/cli.md");
  std::stringstream docs;
  docs << file.rdbuf();
  for (const operate::Command& command : TheProgram().commands) {
    EXPECT_THAT(help.out, HasSubstr("  " + command.name));
    EXPECT_THAT(docs.str(), HasSubstr("| `hedgerow-steer " + command.name)) << command.name;
    EXPECT_THAT(Steer({command.name, "--help"}).out, testing::StartsWith("usage: hedgerow-steer " + command.name));
  }
}

TEST(SteerCommands, HelpSaysWhatStandsBehindTheDashes) {
  EXPECT_THAT(Steer({"help", "run"}).out,
              HasSubstr("usage: hedgerow-steer run --listen ADDRESS:PORT --workers N [OPTIONS] -- CMD..."));
  EXPECT_THAT(Steer({"help", "run"}).out, HasSubstr("-n, --workers N"));
}

TEST(SteerText, ColumnsOfNumbersStandToTheRight) {
  EXPECT_EQ(TableText({{"slot", "state", "udp"}, {"0", "serving", "1,000"}, {"12", "-", "7"}}),
            "slot  state      udp\n"
            "   0  serving  1,000\n"
            "  12  -            7\n");
}

TEST(SteerText, AGroupShowsItsProblemsFirst) {
  v1::Group group;
  group.set_name("port-2055");
  group.set_address("192.0.2.1:2055");
  group.add_transports("udp");
  group.add_problems("takeover: of the UDP sockets");
  v1::Slot& slot = *group.add_slots();
  slot.set_state("serving");
  slot.set_pid(4711);
  slot.set_weight(1);
  slot.set_buckets(1024);
  const std::string text = GroupText(group);
  EXPECT_THAT(text, testing::StartsWith("PROBLEM takeover: of the UDP sockets\nport-2055: 192.0.2.1:2055 (udp)"));
  EXPECT_THAT(text, HasSubstr("   0  serving  0.0s  4711       1    1,024"));
  EXPECT_THAT(text, Not(HasSubstr("tcp"))) << "it has none";
}

TEST(SteerText, ASourceIsNamedAsItIsHashed) {
  const hr_steer_config config{.ipv6_prefix = 64, .field_bytes = 2};
  EXPECT_EQ(SourceText({HR_STEER_IPV4, {0x070200c0, 0}}, config), "IPv4 192.0.2.7");
  EXPECT_EQ(SourceText({HR_STEER_IPV6, {0xb80d0120, 0}}, config), "IPv6 2001:db8::/64");
  EXPECT_EQ(SourceText({HR_STEER_DEVICE, {7, 0}}, config), "device 7");
  EXPECT_EQ(SourceText({HR_STEER_FIELD, {0x0b0a, 0}}, config), "field 0a0b");
}

}  // namespace
}  // namespace hedgerow::steer::cli
