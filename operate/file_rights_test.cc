// SPDX-License-Identifier: Apache-2.0
//
// Whose files are followed, and which may hold a secret.

#include "operate/file_rights.h"
#include "operate/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::operate {
namespace {

struct stat FileOf(uid_t owner, mode_t mode) {
  struct stat info {};
  info.st_uid = owner;
  info.st_mode = S_IFREG | mode;
  return info;
}

TEST(FileRights, FilesOfRootAndOfTheReaderAreFollowed) {
  for (const mode_t mode : {0600, 0640, 0644, 0444, 0755}) {
    EXPECT_EQ(WhyNotFollowed(FileOf(0, mode), "/f", 0), "") << mode;
    EXPECT_EQ(WhyNotFollowed(FileOf(0, mode), "/f", 998), "") << mode;
    EXPECT_EQ(WhyNotFollowed(FileOf(998, mode), "/f", 998), "") << mode;
  }
}

TEST(FileRights, AnotherUsersFileIsNotFollowed) {
  EXPECT_EQ(WhyNotFollowed(FileOf(1000, 0600), "/f", 0),
            "belongs to user 1000, expected root or the user that reads it (0): run `chown root /f`");
  EXPECT_NE(WhyNotFollowed(FileOf(1000, 0600), "/f", 998), "");
}

TEST(FileRights, AFileThatOthersCanChangeIsNotFollowed) {
  EXPECT_EQ(WhyNotFollowed(FileOf(0, 0646), "/f", 0),
            "can be changed by others than its owner (mode 0646): run `chmod go-w /f`");
  for (const mode_t mode : {0660, 0620, 0602, 0666, 0777}) {
    EXPECT_NE(WhyNotFollowed(FileOf(0, mode), "/f", 0), "") << mode;
  }
}

TEST(FileRights, WhatEverybodyCanReadOrChangeHoldsNoSecret) {
  for (const mode_t mode : {0644, 0604, 0666, 0660, 0602, 0620, 0601, 0777}) {
    EXPECT_NE(WhyNotSecret(FileOf(0, mode), "/f"), "") << mode;
  }
  for (const mode_t mode : {0600, 0400, 0640, 0440}) EXPECT_EQ(WhyNotSecret(FileOf(0, mode), "/f"), "") << mode;
  EXPECT_EQ(WhyNotSecret(FileOf(0, 0604), "/f"),
            "can be read by everybody (mode 0604), expected mode 0600 or 0640: run `chmod g-w,o-rwx /f`");
  EXPECT_EQ(
      WhyNotSecret(FileOf(0, 0660), "/f"),
      "can be changed by others than its owner (mode 0660), expected mode 0600 or 0640: run `chmod g-w,o-rwx /f`");
  EXPECT_EQ(WhyNotSecret(FileOf(0, 0601), "/f"),
            "is open to everybody (mode 0601), expected mode 0600 or 0640: run `chmod g-w,o-rwx /f`");
}

TEST(FileRights, AFileThatTheUnitsUserCannotReachIsNamedWithTheCommandThatMendsIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can try";
  const std::string folder = testing::TempDir() + "unit-rights";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string file = folder + "/some.key";
  close(open(file.c_str(), O_WRONLY | O_CREAT, 0600));
  const auto why = [&] { return WhyNotReadBy("nobody", {file, folder + "/missing.key"}); };
  EXPECT_THAT(why(), testing::SizeIs(2)) << "the folder";
  chmod(folder.c_str(), 0711);
  EXPECT_THAT(why(), testing::ElementsAre(testing::HasSubstr("chgrp nobody " + file + " && chmod 0640 " + file)));
  chmod(file.c_str(), 0644);
  EXPECT_THAT(why(), testing::IsEmpty());
  chmod(file.c_str(), 0600);
  EXPECT_THAT(WhyNotReadBy("no-such-user", {file}), testing::IsEmpty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hedgerow::operate
