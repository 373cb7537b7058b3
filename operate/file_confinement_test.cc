// SPDX-License-Identifier: Apache-2.0
//
// What a confined process can still do with files, and what it cannot. In children, for there is no way back; a kernel
// without Landlock fails these tests, as all that the project supports have it.

#include "operate/file_confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "operate/file_opener.h"

namespace hedgerow::operate {
namespace {

class FileConfinementTest : public testing::Test {
 protected:
  FileConfinementTest() {
    char pattern[] = "/tmp/hedgerow-confinement-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    for (const char* name : {"read", "written", "other"}) {
      std::filesystem::create_directories(Path(name) + "/below");
      std::ofstream(Path(name) + "/file") << "x";
    }
  }
  ~FileConfinementTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // 0, or the errno of an open that was refused.
  static int Open(const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
    const int error = fd >= 0 ? 0 : errno;
    if (fd >= 0) close(fd);
    return error;
  }
  // Whether all expectations of `body` hold in a confined child.
  void Confined(const std::function<bool()>& body, std::vector<FileAccess> allowed = {}) {
    const pid_t child = fork();
    if (child == 0) {
      allowed.push_back({Path("read"), FileAccess::Kind::kRead});
      allowed.push_back({Path("written"), FileAccess::Kind::kWrite});
      allowed.push_back({Path("missing"), FileAccess::Kind::kWrite});
      const absl::Status confined = ConfineFiles(allowed);
      if (!confined.ok()) fprintf(stderr, "%s\n", std::string(confined.message()).c_str());
      _exit(confined.ok() && body() ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  }

  std::string folder_;
};

TEST_F(FileConfinementTest, AForbiddenOpenFailsAlsoForRoot) {
  ASSERT_EQ(Open(Path("other/file"), O_RDONLY), 0);
  Confined([this] {
    return Open(Path("other/file"), O_RDONLY) == EACCES && Open(Path("other/new"), O_WRONLY | O_CREAT) == EACCES &&
           Open("/etc/shadow", O_RDONLY) == EACCES && unlink(Path("other/file").c_str()) != 0 &&
           mkdir(Path("missing").c_str(), 0700) != 0;
  });
  EXPECT_EQ(Open(Path("other/file"), O_RDONLY), 0) << "the parent is as it was";
}

TEST_F(FileConfinementTest, WhatIsOnlyReadCannotBeChanged) {
  Confined([this] {
    return Open(Path("read/file"), O_RDONLY) == 0 && Open(Path("read/below"), O_RDONLY | O_DIRECTORY) == 0 &&
           Open(Path("read/file"), O_WRONLY) == EACCES && Open(Path("read/new"), O_WRONLY | O_CREAT) == EACCES &&
           unlink(Path("read/file").c_str()) != 0;
  });
}

// As a link to another release, and as a folder that is renamed into place.
TEST_F(FileConfinementTest, AFolderThatIsExchangedIsReadByItsName) {
  const std::string link = Path("link");
  std::filesystem::create_directory_symlink("read", link);
  const auto read = [](const std::string& path) {
    const int fd = OpenToRead(path);
    char contents = 0;
    const int error = fd < 0 ? errno : ::read(fd, &contents, 1) == 1 ? 0 : EIO;
    if (fd >= 0) close(fd);
    return error;
  };
  int changed[2], done[2];
  ASSERT_TRUE(pipe(changed) == 0 && pipe(done) == 0);
  std::thread changes([&] {  // of the parent, which is not confined
    char any = 0;
    ASSERT_EQ(::read(done[0], &any, 1), 1);
    std::filesystem::remove(link);
    std::filesystem::create_directory_symlink("other", link);
    std::filesystem::rename(Path("read"), Path("former"));
    std::filesystem::rename(Path("other"), Path("read"));
    std::filesystem::create_directories(Path("other"));
    std::ofstream(Path("other/file")) << "y";
    ASSERT_EQ(write(changed[1], "x", 1), 1);
  });
  Confined(
      [&] {
        char any = 0;
        if (read(Path("read/file")) != 0 || read(Path("other/file")) != EACCES) return false;
        if (write(done[1], "x", 1) != 1 || ::read(changed[0], &any, 1) != 1) return false;
        return Open(Path("read/file"), O_RDONLY) == EACCES && read(Path("read/file")) == 0 &&
               read(Path("read/none")) == ENOENT && read(Path("read/../other/file")) == EACCES &&
               read("/etc/shadow") == EACCES && read(Path("written/new")) == ENOENT && read(link + "/file") == 0;
      },
      {{link, FileAccess::Kind::kRead}});
  changes.join();
}

TEST_F(FileConfinementTest, NamesCanBeListedEverywhere) {
  Confined([this] { return Open("/", O_RDONLY) == 0 && Open(Path("other"), O_RDONLY | O_DIRECTORY) == 0; });
}

TEST_F(FileConfinementTest, AFolderOfItsOwnIsWrittenAsBefore) {
  Confined([this] {
    const std::string own = Path("written");
    return Open(own + "/new", O_RDWR | O_CREAT | O_TRUNC) == 0 &&
           rename((own + "/new").c_str(), (own + "/below/new").c_str()) == 0 &&
           truncate((own + "/below/new").c_str(), 0) == 0 && unlink((own + "/below/new").c_str()) == 0 &&
           mkdir((own + "/folder").c_str(), 0700) == 0 && rmdir((own + "/folder").c_str()) == 0;
  });
}

TEST_F(FileConfinementTest, LaterThreadsAreConfinedAndNoProgramRuns) {
  Confined([this] {
    int error = 0;
    std::thread([&] { error = Open(Path("other/file"), O_RDONLY); }).join();
    char program[] = "/usr/bin/true";
    char* arguments[] = {program, nullptr};
    return error == EACCES && execv(program, arguments) != 0 && errno == EACCES;
  });
}

}  // namespace
}  // namespace hedgerow::operate
