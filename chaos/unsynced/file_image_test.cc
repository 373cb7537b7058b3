// SPDX-License-Identifier: Apache-2.0
#include "chaos/unsynced/file_image.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>

namespace hedgerow::unsynced {
namespace {

net::UniqueFd NewObject() { return net::UniqueFd(memfd_create("object", MFD_CLOEXEC)); }

std::string Content(const FileImage& file) {
  std::string content(file.size(), '?');
  EXPECT_EQ(file.Read(content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  return content;
}

std::string ObjectOf(const FileImage& file) {
  struct stat status {};
  EXPECT_EQ(fstat(file.object(), &status), 0);
  std::string content(static_cast<size_t>(status.st_size), '?');
  EXPECT_EQ(pread(file.object(), content.data(), content.size(), 0), status.st_size);
  return content;
}

void Write(FileImage& file, const std::string& bytes, uint64_t offset) {
  ASSERT_EQ(file.Write(bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
}

// What a plain file would hold.
class Model {
 public:
  void Write(const std::string& bytes, uint64_t offset) {
    content.resize(std::max<size_t>(content.size(), offset + bytes.size()));
    content.replace(offset, bytes.size(), bytes);
  }
  std::string content;
};

TEST(FileImageTest, ReadsAsAFileAndItsObjectIsWhatWasSynced) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    FileImage file(NewObject());
    Model model;
    std::string synced;
    for (int step = 0; step < 200; ++step) {
      const uint64_t offset = random() % 5000;
      switch (random() % 8) {
        case 0:
          ASSERT_EQ(file.Truncate(offset), 0);
          model.content.resize(offset);
          break;
        case 1:
          ASSERT_EQ(file.Punch(offset, 700), 0);
          for (size_t i = offset; i < std::min<size_t>(offset + 700, model.content.size()); ++i) {
            model.content[i] = '\0';
          }
          break;
        case 2:
          ASSERT_EQ(file.Sync(), 0);
          synced = model.content;
          break;
        default: {
          const std::string bytes(1 + random() % 1500, static_cast<char>('a' + random() % 26));
          Write(file, bytes, offset);
          model.Write(bytes, offset);
        }
      }
      ASSERT_EQ(Content(file), model.content) << "round " << round << " step " << step;
      ASSERT_EQ(ObjectOf(file), synced) << "round " << round << " step " << step;
    }
  }
}

TEST(FileImageTest, CountsTheBytesThatACutWouldTake) {
  FileImage file(NewObject());
  Write(file, std::string(1000, 'a'), 0);
  EXPECT_EQ(file.UnsyncedBytes(), 1000u);
  ASSERT_EQ(file.Sync(), 0);
  EXPECT_EQ(file.UnsyncedBytes(), 0u);
  Write(file, "bbb", 998);
  EXPECT_EQ(file.UnsyncedBytes(), 3u);
  ASSERT_EQ(file.Truncate(10), 0);
  EXPECT_EQ(file.UnsyncedBytes(), 0u) << "a cut would bring bytes back, and take none";
}

// Each sector is as before or as after; both happen, and the file has grown no further than its bytes.
TEST(FileImageTest, SomeOfItIsSectorsOldAndNew) {
  const std::string before(4096, 'a');
  size_t seen_old = 0;
  size_t seen_new = 0;
  size_t seen_part = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FileImage file(NewObject());
    Write(file, before, 0);
    ASSERT_EQ(file.Sync(), 0);
    Write(file, std::string(6000, 'b'), 1024);
    std::mt19937_64 random(seed);
    ASSERT_EQ(file.SyncSome(random), 0);
    const std::string found = ObjectOf(file);
    ASSERT_GE(found.size(), before.size());
    ASSERT_LE(found.size(), 7024u);
    for (size_t at = 0; at < found.size(); at += 512) {
      const std::string sector = found.substr(at, 512);
      const char first = sector[0];
      ASSERT_EQ(sector, std::string(sector.size(), first)) << "torn within a sector";
      ASSERT_TRUE(first == 'b' ? at >= 1024 : first == 'a' && at < 4096) << at;
      seen_old += first == 'a' && at >= 1024;
      seen_new += first == 'b';
    }
    seen_part += found.size() > 4096 && found.size() < 7024;
  }
  EXPECT_GT(seen_old, 100u);
  EXPECT_GT(seen_new, 100u);
  EXPECT_GT(seen_part, 10u) << "some of what was appended";
}

TEST(FileImageTest, AnOffsetBeyondAllReasonIsRefused) {
  FileImage file(NewObject());
  EXPECT_EQ(file.Write("x", 1, FileImage::kFileMax_bytes), -EFBIG);
  EXPECT_EQ(file.Truncate(FileImage::kFileMax_bytes + 1), -EFBIG);
}

}  // namespace
}  // namespace hedgerow::unsynced
