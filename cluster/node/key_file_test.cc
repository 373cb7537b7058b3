// SPDX-License-Identifier: Apache-2.0
//
// Which files are taken for keys.

#include "cluster/node/key_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::node {
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
  absl::StatusOr<wire::Key> Read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return ReadKeyFile(path_);
  }
  std::string folder_;
  std::string path_;
};

TEST_F(KeyFileTest, AKeyAndWhiteSpaceIsRead) {
  for (const std::string& text :
       {std::string(kDigits), std::string(kDigits) + "\n", std::string(kDigits) + " \r\n"}) {
    const absl::StatusOr<wire::Key> key = Read(text);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(*key, *wire::ParseKey(kDigits));
  }
}

TEST_F(KeyFileTest, WhatEverybodyCanReadOrChangeIsNoKey) {
  for (const mode_t mode : {0644, 0604, 0666, 0660, 0602, 0620, 0777}) {
    EXPECT_FALSE(Read(kDigits, mode).ok()) << mode;
  }
  for (const mode_t mode : {0600, 0400, 0640, 0440}) EXPECT_TRUE(Read(kDigits, mode).ok()) << mode;
}

TEST_F(KeyFileTest, AnythingElseIsNoKeyAndIsNotRepeated) {
  for (const std::string& text :
       {std::string(), std::string("0011"), std::string(kDigits) + "0",
        std::string("zz112233445566778899aabbccddeeff"), std::string(32, '0'), std::string(300, '0')}) {
    const absl::Status status = Read(text).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("32 hexadecimal digits"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("0011")));
  }
}

TEST_F(KeyFileTest, AFifoOrAFolderDoesNotHangIt) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ReadKeyFile(path_).status().message(), "is no regular file");
  unlink(path_.c_str());
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(ReadKeyFile(path_).status().message(), "is no regular file");
}

}  // namespace
}  // namespace hedgerow::node
