// SPDX-License-Identifier: Apache-2.0
//
// Every word that other programs use is answered by a sentence and a page that exists, wherever it is written.
#include "proxy/config/advice.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "build_paths.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

using testing::HasSubstr;

// The errors of a file with these lines at the top, in the service and in its backend.
std::string Errors(const std::string& top, const std::string& service, const std::string& backend,
                   const std::string& profile = "dns") {
  const auto config =
      LoadText(absl::StrCat(top, "\nservices:\n  - name: a\n    vip: 10.99.0.53\n    port: 53\n    profile: ", profile,
                            "\n", service, "\n    backends:\n      - name: b\n",
                            "        address: 10.77.0.11\n        port: 53\n", backend, "\n"),
               "c.yaml");
  return config.ok() ? "" : std::string(config.status().message());
}

// A sentence, and each page that it names.
void ExpectSentenceAndPage(const std::string& errors, const std::string& word) {
  EXPECT_THAT(errors, HasSubstr("(docs/coming-from.md)")) << word;
  EXPECT_EQ(errors.find("expected one of name"), std::string::npos) << word << " gets the list of all keys";
  for (const absl::string_view part : absl::StrSplit(errors, absl::ByAnyChar(" ()\n")))
    if (absl::StartsWith(part, "docs/"))
      EXPECT_TRUE(std::filesystem::exists(absl::StrCat(HEDGEROW_SOURCE_DIR, "/", part))) << word << ": " << part;
}

TEST(Advice, TheWordsOfOtherProgramsAreAnsweredWhereverTheyStand) {
  for (const std::string word : {"policy", "health_check", "backup", "max_fails", "listen", "cache", "server",
                                 "upstream", "timeout", "retries", "pool"}) {
    ExpectSentenceAndPage(Errors(word + ": 1", "", ""), word);
    ExpectSentenceAndPage(Errors("", "    " + word + ": 1", ""), word);
    ExpectSentenceAndPage(Errors("", "", "        " + word + ": 1"), word);
  }
  ExpectSentenceAndPage(Errors("", "    weight: 1", ""), "weight");  // a key of a backend
  EXPECT_EQ(Errors("", "    prefer: each", "        weight: 2"), "");
}

TEST(Advice, NamesOfServicesAsProfilesAreAnswered) {
  for (const std::string word : {"radius", "syslog", "statsd", "wireguard", "snmp", "sip"}) {
    const std::string errors = Errors("", "", "", word);
    ExpectSentenceAndPage(errors, word);
    EXPECT_THAT(errors, HasSubstr(absl::StrCat("got \"", word, "\""))) << word;
  }
}

TEST(Advice, AServerOfTwoServicesIsRefusedWithTheReason) {
  const std::string one =
      "  - name: ONE\n    vip: 10.99.0.VIP\n    port: 53\n    profile: dns\n"
      "    backends: [{name: b, address: 10.77.0.11, port: 53}]\n";
  const auto config = LoadText(absl::StrCat("services:\n", absl::StrReplaceAll(one, {{"ONE", "a"}, {"VIP", "53"}}),
                                            absl::StrReplaceAll(one, {{"ONE", "c"}, {"VIP", "54"}})),
                               "c.yaml");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()),
              testing::AllOf(HasSubstr("expected a backend that no other service uses"),
                             HasSubstr("could not be told which one a reply is for"),
                             HasSubstr("the service an instance of its own")));
}

}  // namespace
}  // namespace hedgerow::config
