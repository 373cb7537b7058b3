// SPDX-License-Identifier: Apache-2.0
//
// Which files are taken for keys.

#include "operate/key_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::operate {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kDigits[] = "00112233445566778899aabbccddeeff";

class KeyFileTest : public testing::Test {
 protected:
  KeyFileTest() {
    char pattern[] = "/tmp/hedgerow-key-file-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/key";
  }
  ~KeyFileTest() override {
    unlink(path_.c_str());
    rmdir(path_.c_str());
    rmdir(folder_.c_str());
  }
  absl::StatusOr<std::string> Read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return ReadKeyFile(path_, Reader::kServes);
  }
  std::string folder_;
  std::string path_;
};

TEST_F(KeyFileTest, AKeyAndWhiteSpaceIsRead) {
  for (const std::string& text :
       {std::string(kDigits), std::string(kDigits) + "\n", std::string(kDigits) + " \r\n",
        "  " + std::string(kDigits) + "\r\n\n", std::string("00112233445566778899AAbbccddEEff\n")}) {
    const absl::StatusOr<std::string> key = Read(text);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(*key, kDigits);
  }
}

TEST_F(KeyFileTest, WhatEverybodyCanReadOrChangeIsNoKey) {
  for (const mode_t mode : {0644, 0604, 0666, 0660, 0602, 0620, 0601, 0777}) {
    EXPECT_FALSE(Read(kDigits, mode).ok()) << mode;
  }
  for (const mode_t mode : {0600, 0400, 0640, 0440}) EXPECT_TRUE(Read(kDigits, mode).ok()) << mode;
}

// Root may read every file, so it is root that must be told.
TEST_F(KeyFileTest, AnotherUsersKeyIsShownButNotServedWith) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root (to give a file away)";
  ASSERT_TRUE(Read(kDigits).ok());
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(ReadKeyFile(path_, Reader::kShows).ok());
  EXPECT_EQ(ReadKeyFile(path_, Reader::kServes).status().message(),
            "belongs to user 65534, expected root or the user that reads it (0): run `chown root " + path_ + "`");
}

TEST_F(KeyFileTest, AnythingElseIsNoKeyAndIsNotRepeated) {
  for (const std::string& text :
       {std::string(), std::string("0011"), std::string(kDigits) + "0", std::string(kDigits) + kDigits,
        "key: " + std::string(kDigits), std::string("zz112233445566778899aabbccddeeff"), std::string(32, '0'),
        std::string(300, '0'), std::string(5000, 'a')}) {
    const absl::Status status = Read(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("32 hexadecimal digits"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("0011")));
  }
}

TEST_F(KeyFileTest, AMissingFileSaysSo) {
  const absl::Status status = ReadKeyFile(path_, Reader::kServes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "cannot be opened: No such file or directory");
}

TEST_F(KeyFileTest, AFifoOrAFolderDoesNotHangIt) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ReadKeyFile(path_, Reader::kServes).status().message(), "is no regular file");
  unlink(path_.c_str());
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(ReadKeyFile(path_, Reader::kServes).status().message(), "is a directory, expected a file");
}

TEST_F(KeyFileTest, AFileHoldsOneKeyOrTwoInTheirOrder) {
  const std::string next = "ffeeddccbbaa99887766554433221100";
  ASSERT_TRUE(Read(std::string(kDigits) + "\n").ok());
  EXPECT_EQ(*ReadKeyRing(path_, Reader::kShows), std::vector<std::string>({kDigits}));
  EXPECT_FALSE(Read(next + "\n" + kDigits + "\r\n\n").ok()) << "one key is wanted";
  EXPECT_EQ(*ReadKeyRing(path_, Reader::kShows), std::vector<std::string>({next, kDigits}));
}

TEST_F(KeyFileTest, MoreKeysTheSameTwiceOrNoneAreRefused) {
  const std::string digits(kDigits);
  for (const std::string& text : {std::string(), std::string("\n \n"), digits + "\n" + digits,
                                  digits + "\nffeeddccbbaa99887766554433221100\n" + std::string(32, '1'),
                                  digits + "\nno key", digits + "\n" + std::string(32, '0')}) {
    (void)Read(text);
    const absl::Status status = ReadKeyRing(path_, Reader::kShows).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("0011")));
  }
}

TEST_F(KeyFileTest, KeysAreReplacedInOneStepAndTheModeStays) {
  ASSERT_TRUE(Read(kDigits, 0640).ok());
  const std::vector<std::string> keys = {"ffeeddccbbaa99887766554433221100", kDigits};
  ASSERT_TRUE(WriteKeyRing(path_, keys).ok());
  EXPECT_EQ(*ReadKeyRing(path_, Reader::kShows), keys);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_NE(access((path_ + ".next").c_str(), F_OK), 0);
  EXPECT_FALSE(WriteKeyRing(folder_ + "/none", keys).ok()) << "it is the operator's to make the first";
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink("key", link.c_str()), 0);
  ASSERT_TRUE(WriteKeyRing(link, {kDigits}).ok());
  EXPECT_EQ(*ReadKeyRing(path_, Reader::kShows), std::vector<std::string>{kDigits}) << "the file that it leads to";
  EXPECT_EQ(unlink(link.c_str()), 0);
}

TEST_F(KeyFileTest, AFileIsReplacedAndNoLinkFollowedThatWasPlantedThere) {
  ASSERT_TRUE(Read(kDigits, 0600).ok());
  const std::string made = folder_ + "/made";
  ASSERT_EQ(symlink("key", (made + ".next").c_str()), 0);
  ASSERT_EQ(symlink("key", made.c_str()), 0);
  struct stat rights {};
  rights.st_mode = 0640;
  rights.st_uid = geteuid();
  rights.st_gid = getegid();
  ASSERT_TRUE(ReplaceFile(made, "text", rights).ok());
  EXPECT_TRUE(ReadKeyFile(path_, Reader::kShows).ok()) << "what the links led to";
  ASSERT_EQ(lstat(made.c_str(), &rights), 0);
  EXPECT_EQ(rights.st_mode, S_IFREG | 0640u);
  EXPECT_EQ(unlink(made.c_str()), 0);
}

}  // namespace
}  // namespace hedgerow::operate
