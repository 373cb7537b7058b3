// SPDX-License-Identifier: Apache-2.0
//
// Files that are no configuration at all: missing, unreadable kinds, binary,
// huge, empty, deeply nested, or built to explode.

#include "config/source.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class SourceTest : public testing::Test {
 protected:
  SourceTest() {
    char pattern[] = "/tmp/hedgerow-source-test.XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~SourceTest() override {
    unlink(Path().c_str());
    rmdir(Path().c_str());
    rmdir(folder_.c_str());
  }
  std::string Path() const { return folder_ + "/c.yaml"; }
  std::vector<std::string> Load() {
    Diagnostics errors(Path());
    LoadFile(Path(), errors);
    return errors.Lines();
  }
  std::string folder_;
};

std::vector<std::string> ErrorsOf(absl::string_view text) {
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  return errors.Lines();
}

TEST_F(SourceTest, AMissingFileSaysSo) {
  EXPECT_THAT(Load(), ElementsAre(Path() + ": cannot be opened: No such file or directory"));
}

// What it would be called in a message: a daemon that ran with it would answer no `status`.
TEST_F(SourceTest, APathThatIsNoUtf8IsRefused) {
  for (const char* name : {"/c\xff.yaml", "/c\xc3"}) {
    Diagnostics errors("c.yaml");
    const std::string path = folder_ + name;
    std::ofstream(path) << "services: []";
    LoadFile(path, errors);
    EXPECT_THAT(errors.Lines(), ElementsAre("c.yaml: the path is not UTF-8: rename the file or its folder"));
    unlink(path.c_str());
  }
  Diagnostics errors("c.yaml");
  LoadFile(folder_ + "/c\xc3\xa4.yaml", errors);
  EXPECT_THAT(errors.Lines(), ElementsAre("c.yaml: cannot be opened: No such file or directory"));
}

TEST_F(SourceTest, ADirectoryIsNoFile) {
  ASSERT_EQ(mkdir(Path().c_str(), 0700), 0);
  EXPECT_THAT(Load(), ElementsAre(Path() + ": is a directory, expected a file"));
}

TEST_F(SourceTest, AFifoDoesNotHangIt) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  EXPECT_THAT(Load(), ElementsAre(Path() + ": is no regular file"));
}

TEST_F(SourceTest, AHugeFileIsRefusedUnparsed) {
  std::ofstream(Path()) << std::string(kMaxFileBytes + 1, '#');
  EXPECT_THAT(Load(), ElementsAre(HasSubstr("got more than 1048576 bytes")));
}

TEST_F(SourceTest, ABinaryFileIsRefusedWithThePlace) {
  std::ofstream(Path()) << "services:\n"
                        << std::string(
                               "\x7f"
                               "ELF",
                               4);
  EXPECT_THAT(Load(), ElementsAre(HasSubstr(":2:1: got the byte 0x7f, expected YAML text")));
}

TEST(CheckText, RefusesNulAndBrokenUtf8) {
  for (const std::string& text :
       {std::string("a\0b", 3), std::string("\xff\xfe"), std::string("\xc0\x80"), std::string("\xed\xa0\x80"),
        std::string("\xe2\x82"), std::string("\xf5\x80\x80\x80")}) {
    Diagnostics errors("c.yaml");
    EXPECT_FALSE(CheckText(text, errors)) << testing::PrintToString(text);
  }
  Diagnostics errors("c.yaml");
  EXPECT_TRUE(CheckText("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xbf\t\r\n", errors));
}

TEST(ParseTree, SyntaxErrorsCarryLineAndColumn) {
  EXPECT_THAT(ErrorsOf("services: [\n  {name: a\n"), ElementsAre(HasSubstr("not valid YAML")));
  EXPECT_THAT(ErrorsOf("a: b: c\n"), ElementsAre(testing::StartsWith("c.yaml:1:")));
}

TEST(ParseTree, NoMessageHoldsAControlCharacter) {
  // yaml-cpp quotes its mark for the end of the input.
  for (const char* text : {"a: \"\\", "a: \"b\\u0d00\\", "a: \"\\x", "%", "!<", "a: 'b"}) {
    for (const std::string& line : ErrorsOf(text)) {
      for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << testing::PrintToString(line);
    }
  }
}

TEST(ParseTree, AnEmptyFileIsNoConfiguration) {
  for (const char* text : {"", "\n\n", "# nothing\n", "---\n", "~"}) {
    EXPECT_THAT(ErrorsOf(text), ElementsAre(EndsWith("got an empty file, expected a configuration"))) << text;
  }
}

TEST(ParseTree, ASecondDocumentIsRefused) {
  EXPECT_THAT(ErrorsOf("services: []\n---\nservices: []\n"),
              ElementsAre(HasSubstr("got a second document, expected only one per file")));
}

TEST(ParseTree, AListOrScalarIsNoConfiguration) {
  EXPECT_THAT(ErrorsOf("- a\n"), ElementsAre(HasSubstr("c.yaml:1:1: got a list, expected a map with the keys")));
  EXPECT_THAT(ErrorsOf("hello\n"), ElementsAre(HasSubstr("got a single value, expected a map with the keys")));
}

TEST(ParseTree, AnAliasBombIsRefusedAtItsFirstAnchor) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string last = absl::StrCat("*a", i - 1);
    absl::StrAppend(&text, "a", i, ": &a", i, " [", last, ", ", last, ", ", last, ", ", last, "]\n");
  }
  const auto errors = ErrorsOf(text);
  ASSERT_FALSE(errors.empty());
  EXPECT_THAT(errors[0], HasSubstr("c.yaml:1:5: got the anchor \"a0\""));
}

TEST(ParseTree, MergeKeysAreUnknownKeys) {
  EXPECT_THAT(ErrorsOf("<<: {instance: x}\nservices: []\n"), testing::Contains(HasSubstr("unknown key \"<<\"")));
}

TEST(ParseTree, DeepNestingIsRefusedQuickly) {
  const auto start = std::chrono::steady_clock::now();
  std::string block;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&block, std::string(i, ' '), "a:\n");
  EXPECT_THAT(ErrorsOf(block), ElementsAre(HasSubstr("nested levels")));
  for (const char* opening : {"[", "{a: ", "- ", "? ", "[{"}) {
    std::string text;
    for (int i = 0; i < 20'000; ++i) text += opening;
    EXPECT_FALSE(ErrorsOf(text).empty()) << opening;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace hedgerow::config
