// SPDX-License-Identifier: Apache-2.0
//
// The file system as programs meet it: mounted, through the kernel. Needs root and FUSE.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "chaos/unsynced/mounted_test.h"

namespace hedgerow::unsynced {
namespace {

using net::UniqueFd;
using testing::HasSubstr;

class MountTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(geteuid(), 0u) << "needs root: sudo ./dev test";
    if (const std::string why = WhyNoFuse(); !why.empty()) GTEST_SKIP() << "no FUSE here: " << why;
  }
};

UniqueFd Open(const std::string& path, int flags) {
  UniqueFd file(open(path.c_str(), flags | O_CLOEXEC, 0600));
  EXPECT_TRUE(file.valid()) << path << ": " << strerror(errno);
  return file;
}

void Write(const UniqueFd& file, const std::string& bytes) {
  ASSERT_EQ(write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

void SyncFolder(const std::string& path) { ASSERT_EQ(fsync(Open(path, O_RDONLY | O_DIRECTORY).get()), 0); }

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST_F(MountTest, AppendedBytesNeedFdatasync) {
  Mounted disk;
  const std::string path = disk.path() + "/log";
  {
    const UniqueFd file = Open(path, O_CREAT | O_WRONLY | O_APPEND);
    ASSERT_EQ(fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
    SyncFolder(disk.path());
    Write(file, "first");
    ASSERT_EQ(fdatasync(file.get()), 0);
    Write(file, "second");
    // It writes back and promises nothing.
    ASSERT_EQ(sync_file_range(file.get(), 0, 0,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER),
              0);
  }
  EXPECT_EQ(Content(path), "firstsecond");
  EXPECT_THAT(disk.Cut(), HasSubstr(R"("files": {"log": 6})"));
  EXPECT_EQ(Content(path), "first");
  Write(Open(path, O_WRONLY | O_APPEND), "third");
  EXPECT_EQ(Content(path), "firstthird") << "the kernel remembers nothing of before the cut";
}

TEST_F(MountTest, ClosingIsNotSyncing) {
  Mounted disk;
  Write(Open(disk.path() + "/a", O_CREAT | O_WRONLY), "bytes");
  SyncFolder(disk.path());
  disk.Cut();
  EXPECT_EQ(Content(disk.path() + "/a"), "");
}

TEST_F(MountTest, SyncCoversMappedAndDirectWrites) {
  Mounted disk;
  const std::string path = disk.path() + "/a";
  const UniqueFd file = Open(path, O_CREAT | O_RDWR);
  SyncFolder(disk.path());
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  char* const mapped = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  mapped[0] = 'm';
  ASSERT_EQ(msync(mapped, 8192, MS_SYNC), 0);
  munmap(mapped, 8192);
  void* block = nullptr;
  ASSERT_EQ(posix_memalign(&block, 4096, 4096), 0);
  std::memset(block, 'd', 4096);
  {
    const UniqueFd direct = Open(path, O_WRONLY | O_DIRECT);
    ASSERT_EQ(pwrite(direct.get(), block, 4096, 4096), 4096) << "direct I/O is not synced either";
    disk.Cut();
  }
  EXPECT_EQ(Content(path), "m" + std::string(8191, '\0'));
  {
    const UniqueFd direct = Open(path, O_WRONLY | O_DIRECT);
    ASSERT_EQ(pwrite(direct.get(), block, 4096, 4096), 4096);
    ASSERT_EQ(fdatasync(direct.get()), 0);
  }
  free(block);
  disk.Cut();
  EXPECT_EQ(Content(path), "m" + std::string(4095, '\0') + std::string(4096, 'd'));
}

TEST_F(MountTest, SynchronousWritesNeedNoSync) {
  Mounted disk;
  for (const int flag : {O_SYNC, O_DSYNC}) {
    const std::string path = disk.path() + "/" + std::to_string(flag);
    Open(path, O_CREAT | O_WRONLY);
    SyncFolder(disk.path());
    Write(Open(path, O_WRONLY | flag), "bytes");
    disk.Cut();
    EXPECT_EQ(Content(path), "bytes");
  }
}

TEST_F(MountTest, ReplacingAFileByARenameIsSafeAndTheCarelessWayIsNot) {
  Mounted disk;
  const auto replace = [&](const std::string& bytes, bool sync_file) {
    const UniqueFd file = Open(disk.path() + "/new", O_CREAT | O_WRONLY | O_TRUNC);
    Write(file, bytes);
    if (sync_file) {
      ASSERT_EQ(fsync(file.get()), 0);
    }
    ASSERT_EQ(rename((disk.path() + "/new").c_str(), (disk.path() + "/CURRENT").c_str()), 0);
  };
  replace("1", true);
  SyncFolder(disk.path());
  disk.Cut();
  EXPECT_EQ(Content(disk.path() + "/CURRENT"), "1");
  replace("2", true);
  disk.Cut();
  EXPECT_EQ(Content(disk.path() + "/CURRENT"), "1") << "its folder was not synced";
  replace("3", false);
  SyncFolder(disk.path());
  disk.Cut();
  EXPECT_EQ(Content(disk.path() + "/CURRENT"), "") << "its bytes were not synced";
}

TEST_F(MountTest, ItIsAFileSystemToWorkOn) {
  Mounted disk;
  const std::string path = disk.path() + "/a/b";
  ASSERT_TRUE(std::filesystem::create_directories(path));
  const UniqueFd file = Open(path + "/f", O_CREAT | O_RDWR | O_EXCL);
  EXPECT_LT(open((path + "/f").c_str(), O_CREAT | O_EXCL | O_RDWR, 0600), 0);
  EXPECT_EQ(flock(file.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_LT(flock(Open(path + "/f", O_RDWR).get(), LOCK_EX | LOCK_NB), 0);
  const std::string big(3'000'000, 'x');
  Write(file, big);
  EXPECT_EQ(Content(path + "/f"), big);
  ASSERT_EQ(unlink((path + "/f").c_str()), 0);
  Write(file, "y");
  char last = 0;
  EXPECT_EQ(pread(file.get(), &last, 1, 3'000'000), 1);
  EXPECT_EQ(last, 'y');
  EXPECT_TRUE(std::filesystem::is_empty(path));
  EXPECT_EQ(fsync(file.get()), 0);
  for (int i = 0; i < 1000; ++i) Open(path + "/" + std::to_string(i), O_CREAT | O_WRONLY);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), {}), 1000);
  EXPECT_EQ(std::filesystem::remove_all(disk.path() + "/a"), 1002u);
}

TEST_F(MountTest, TheMountGoesWithItsProcess) {
  Mounted disk;
  const UniqueFd open_file = Open(disk.path() + "/a", O_CREAT | O_RDWR);
  ASSERT_TRUE(IsMounted(disk.path()));
  EXPECT_EQ(disk.End(), 0);
  EXPECT_FALSE(IsMounted(disk.path()));
  EXPECT_LT(write(open_file.get(), "x", 1), 0);
}

}  // namespace
}  // namespace hedgerow::unsynced
