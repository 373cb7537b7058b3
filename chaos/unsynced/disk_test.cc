// SPDX-License-Identifier: Apache-2.0
//
// What a power cut leaves, case by case; nothing is mounted.

#include "chaos/unsynced/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "chaos/unsynced/control.h"

namespace hedgerow::unsynced {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DiskTest : public testing::Test {
 protected:
  DiskTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    Start();
  }
  ~DiskTest() override {
    disk_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start(Names names = Names::kStrict, std::optional<std::string> ignore_sync = std::nullopt) {
    disk_.reset();
    disk_ =
        std::make_unique<Disk>(DiskOptions{.backing = folder_, .names = names, .ignore_sync = std::move(ignore_sync)});
  }

  NodePtr At(const std::string& path) {
    NodePtr node;
    EXPECT_EQ(disk_->Find(path, node), 0) << path;
    return node;
  }
  bool Exists(const std::string& path) {
    NodePtr node;
    return disk_->Find(path, node) == 0;
  }
  void Make(const std::string& path, const std::string& bytes) {
    NodePtr node;
    ASSERT_EQ(disk_->MakeFile(path, 0600, node), 0) << path;
    Put(path, bytes);
  }
  void Put(const std::string& path, const std::string& bytes, uint64_t offset = 0) {
    ASSERT_TRUE(Exists(path)) << path;
    ASSERT_EQ(disk_->Write(At(path), bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
  }
  std::string Get(const std::string& path) {
    if (!Exists(path)) return "(none)";
    struct stat status {};
    EXPECT_EQ(disk_->Stat(At(path), status), 0);
    std::string bytes(static_cast<size_t>(status.st_size), '?');
    EXPECT_EQ(disk_->Read(At(path), bytes.data(), bytes.size(), 0), status.st_size);
    return bytes;
  }
  void Sync(const std::string& path) {
    ASSERT_TRUE(Exists(path)) << path;
    ASSERT_EQ(disk_->Sync(At(path)), 0) << path;
  }
  void MakeSynced(const std::string& path, const std::string& bytes) {
    Make(path, bytes);
    Sync(path);
    Sync(std::filesystem::path(path).parent_path());
  }
  std::set<std::string> Names_(const std::string& path) {
    std::set<std::string> names;
    if (!Exists(path)) return {"(none)"};
    EXPECT_EQ(disk_->List(At(path), [&](const std::string& name, const struct stat&) { names.insert(name); }), 0);
    return names;
  }

  std::string folder_ = testing::TempDir() + "/hr-unsynced-test.XXXXXX";
  std::unique_ptr<Disk> disk_;
};

TEST_F(DiskTest, UnsyncedBytesAreLostAndSyncedOnesStay) {
  MakeSynced("/a", "synced");
  Put("/a", "SYN");
  Put("/a", " and more", 6);
  EXPECT_EQ(Get("/a"), "SYNced and more");
  const Loss loss = disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a"), "synced");
  EXPECT_THAT(loss.bytes, ElementsAre(std::pair<const std::string, uint64_t>("a", 12)));
  EXPECT_EQ(loss.names, 0u);
}

TEST_F(DiskTest, ASyncCoversTheSizeToo) {
  MakeSynced("/a", "12345");
  ASSERT_EQ(disk_->Truncate(At("/a"), 2), 0);
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a"), "12345") << "cut short, and not synced";
  ASSERT_EQ(disk_->Truncate(At("/a"), 2), 0);
  ASSERT_EQ(disk_->Truncate(At("/a"), 4), 0);
  Sync("/a");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a"), std::string("12\0\0", 4));
  ASSERT_EQ(disk_->Allocate(At("/a"), 0, 0, 100), 0);
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a").size(), 4u);
}

TEST_F(DiskTest, ANewNameNeedsItsFoldersSync) {
  Make("/a", "bytes");
  Sync("/a");
  const Loss loss = disk_->Cut(std::nullopt);
  EXPECT_FALSE(Exists("/a"));
  EXPECT_EQ(loss.names, 1u);
}

TEST_F(DiskTest, WithAJournalAnySyncCoversEveryName) {
  Start(Names::kJournal);
  Make("/a", "bytes");
  Make("/b", "more");
  ASSERT_EQ(disk_->MakeFolder("/f", 0700), 0);
  Make("/f/c", "below");
  Sync("/a");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a"), "bytes");
  EXPECT_EQ(Get("/b"), "") << "a name covers no bytes";
  EXPECT_EQ(Get("/f/c"), "");
}

TEST_F(DiskTest, AFoldersSyncCoversNoBytes) {
  Make("/a", "bytes");
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a"), "");
}

TEST_F(DiskTest, ARenameNeedsItsFoldersSync) {
  MakeSynced("/current", "old");
  MakeSynced("/new", "new");
  ASSERT_EQ(disk_->Rename("/new", "/current"), 0);
  EXPECT_EQ(Get("/current"), "new");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/current"), "old");
  EXPECT_EQ(Get("/new"), "new");
  ASSERT_EQ(disk_->Rename("/new", "/current"), 0);
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/current"), "new");
  EXPECT_FALSE(Exists("/new"));
}

TEST_F(DiskTest, ARenamedFileThatWasNotSyncedIsEmpty) {
  MakeSynced("/current", "old");
  Make("/new", "new");
  ASSERT_EQ(disk_->Rename("/new", "/current"), 0);
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/current"), "");
}

TEST_F(DiskTest, ARemovalNeedsItsFoldersSync) {
  MakeSynced("/a", "bytes");
  ASSERT_EQ(disk_->Remove("/a"), 0);
  EXPECT_FALSE(Exists("/a"));
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a"), "bytes");
  ASSERT_EQ(disk_->Remove("/a"), 0);
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_FALSE(Exists("/a"));
}

TEST_F(DiskTest, AFolderNeedsItsParentsSyncAndBringsWhatWasSyncedInIt) {
  ASSERT_EQ(disk_->MakeFolder("/f", 0700), 0);
  MakeSynced("/f/a", "bytes");
  disk_->Cut(std::nullopt);
  EXPECT_FALSE(Exists("/f")) << "with everything in it, however well that was synced";

  ASSERT_EQ(disk_->MakeFolder("/f", 0700), 0);
  MakeSynced("/f/a", "bytes");
  Make("/f/b", "unsynced");
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/f/a"), "bytes");
  EXPECT_FALSE(Exists("/f/b"));
}

TEST_F(DiskTest, AMoveBetweenFoldersNeverLosesTheFile) {
  for (const char* synced : {"/from", "/to"}) {
    Start();
    for (const char* folder : {"/from", "/to"}) ASSERT_EQ(disk_->MakeFolder(folder, 0700), 0);
    Sync("/");
    MakeSynced("/from/a", "bytes");
    ASSERT_EQ(disk_->Rename("/from/a", "/to/a"), 0);
    Sync(synced);
    disk_->Cut(std::nullopt);
    EXPECT_EQ(Get("/to/a"), "bytes") << synced;
    for (const char* path : {"/from/a", "/to/a"}) {
      if (Exists(path)) {
        ASSERT_EQ(disk_->Remove(path), 0);
      }
    }
    for (const char* folder : {"/from", "/to"}) ASSERT_EQ(disk_->RemoveFolder(folder), 0);
    Sync("/");
  }
}

TEST_F(DiskTest, WhatHadMovedOutOfAFolderSurvivesItsRemoval) {
  ASSERT_EQ(disk_->MakeFolder("/f", 0700), 0);
  Sync("/");
  MakeSynced("/f/a", "bytes");
  ASSERT_EQ(disk_->MakeFolder("/g", 0700), 0);
  ASSERT_EQ(disk_->Rename("/f/a", "/g/b"), 0);
  ASSERT_EQ(disk_->RemoveFolder("/f"), 0);
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_THAT(Names_("/"), ElementsAre("g"));
  EXPECT_EQ(Get("/g/b"), "bytes");
}

TEST_F(DiskTest, AFolderMovesWithAllThatIsInIt) {
  ASSERT_EQ(disk_->MakeFolder("/f", 0700), 0);
  ASSERT_EQ(disk_->MakeFolder("/f/g", 0700), 0);
  Sync("/");
  Sync("/f");
  MakeSynced("/f/g/a", "bytes");
  EXPECT_EQ(disk_->Rename("/f", "/f/g/f"), -EINVAL);
  ASSERT_EQ(disk_->Rename("/f/g", "/h"), 0);
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/f/g/a"), "bytes");
  ASSERT_EQ(disk_->Rename("/f/g", "/h"), 0);
  Sync("/f");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/h/a"), "bytes");
  EXPECT_THAT(Names_("/f"), ElementsAre());
}

TEST_F(DiskTest, NamesThatHaveChangedPlacesAreBothThere) {
  MakeSynced("/a", "A");
  MakeSynced("/b", "B");
  ASSERT_EQ(disk_->Rename("/a", "/t"), 0);
  ASSERT_EQ(disk_->Rename("/b", "/a"), 0);
  ASSERT_EQ(disk_->Rename("/t", "/b"), 0);
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a") + Get("/b"), "BA");
  EXPECT_THAT(Names_("/"), ElementsAre("a", "b"));
}

TEST_F(DiskTest, HardLinksAreOneFile) {
  MakeSynced("/a", "bytes");
  ASSERT_EQ(disk_->Link("/a", "/b"), 0);
  Sync("/");
  disk_->Cut(std::nullopt);
  Put("/a", "BYTES");
  Sync("/b");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/b"), "BYTES");
  struct stat status {};
  ASSERT_EQ(disk_->Stat(At("/a"), status), 0);
  EXPECT_EQ(status.st_nlink, 2u);
}

TEST_F(DiskTest, WhatIsRemovedWhileItIsOpenCanBeUsedAndLeavesNothing) {
  MakeSynced("/a", "bytes");
  NodePtr open = At("/a");
  ASSERT_EQ(disk_->Remove("/a"), 0);
  Sync("/");
  EXPECT_EQ(disk_->Write(open, "B", 1, 0), 1);
  EXPECT_EQ(disk_->Sync(open), 0);
  open.reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/objects"));
}

TEST_F(DiskTest, AFileHeldOverACutGivesAnError) {
  MakeSynced("/a", "bytes");
  const NodePtr open = At("/a");
  disk_->Cut(std::nullopt);
  char byte = 0;
  EXPECT_EQ(disk_->Read(open, &byte, 1, 0), -EIO);
  EXPECT_EQ(disk_->Write(open, "x", 1, 0), -EIO);
  EXPECT_EQ(disk_->Sync(open), -EIO);
  EXPECT_EQ(Get("/a"), "bytes");
}

TEST_F(DiskTest, TheBackingFolderIsAlwaysWhatACutLeaves) {
  MakeSynced("/a", "bytes");
  Put("/a", "BYTES");
  Make("/b", "new");
  std::ifstream file(folder_ + "/tree/a");
  std::ostringstream content;
  content << file.rdbuf();
  EXPECT_EQ(content.str(), "bytes");
  Start();  // the layer itself died
  EXPECT_EQ(Get("/a"), "bytes");
  EXPECT_THAT(Names_("/"), ElementsAre("a"));
}

TEST_F(DiskTest, ADiskThatLiesForgetsWhatWasSynced) {
  Start(Names::kStrict, "*.log");
  MakeSynced("/a.log", "bytes");
  MakeSynced("/b.sst", "bytes");
  disk_->Cut(std::nullopt);
  EXPECT_EQ(Get("/a.log"), "");
  EXPECT_EQ(Get("/b.sst"), "bytes");
  Start(Names::kStrict, "*");
  Make("/c", "bytes");
  Sync("/c");
  Sync("/");
  disk_->Cut(std::nullopt);
  EXPECT_FALSE(Exists("/c"));
}

// Whatever the seed, synced things are as they were; what is not synced is sometimes there, sometimes not, and
// the same for the same seed.
TEST_F(DiskTest, SomeOfWhatWasNotSyncedMayBeThere) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::string first;
    for (int again = 0; again < 2; ++again) {
      disk_.reset();
      std::filesystem::remove_all(folder_ + "/tree");
      Start();
      MakeSynced("/kept", std::string(2000, 'k'));
      MakeSynced("/removed", "r");
      ASSERT_EQ(disk_->Remove("/removed"), 0);
      Make("/new", std::string(2000, 'n'));
      disk_->Cut(seed);
      EXPECT_EQ(Get("/kept"), std::string(2000, 'k'));
      std::string found;
      for (const std::string& name : Names_("/")) found += name + "=" + Get("/" + name) + ";";
      if (again == 0) first = found;
      EXPECT_EQ(found, first);
      seen.insert(found);
    }
  }
  // /removed is there or not, /new is there or not, and of its bytes none, the first sectors, or all.
  EXPECT_GE(seen.size(), 5u);
}

TEST_F(DiskTest, ErrorsAreThoseOfAFileSystem) {
  Make("/a", "x");
  ASSERT_EQ(disk_->MakeFolder("/f", 0700), 0);
  Make("/f/b", "x");
  NodePtr node;
  EXPECT_EQ(disk_->MakeFile("/a", 0600, node), -EEXIST);
  EXPECT_EQ(disk_->MakeFile("/none/a", 0600, node), -ENOENT);
  EXPECT_EQ(disk_->MakeFile("/a/a", 0600, node), -ENOTDIR);
  EXPECT_EQ(disk_->MakeFile("/pipe", S_IFIFO | 0600, node), -EPERM);
  EXPECT_EQ(disk_->MakeFile("/" + std::string(300, 'x'), 0600, node), -ENAMETOOLONG);
  EXPECT_EQ(disk_->Find("/b", node), -ENOENT);
  EXPECT_EQ(disk_->Remove("/f"), -EISDIR);
  EXPECT_EQ(disk_->RemoveFolder("/a"), -ENOTDIR);
  EXPECT_EQ(disk_->RemoveFolder("/f"), -ENOTEMPTY);
  EXPECT_EQ(disk_->Rename("/a", "/f"), -EISDIR);
  EXPECT_EQ(disk_->Rename("/f", "/a"), -ENOTDIR);
  EXPECT_EQ(disk_->Link("/f", "/g"), -EPERM);
  EXPECT_EQ(disk_->Truncate(At("/f"), 0), -EISDIR);
}

TEST_F(DiskTest, AFullDiskTakesNothingMoreAndGivesWhatItHas) {
  Make("/a", "1234");
  ASSERT_EQ(disk_->Sync(At("/a")), 0);
  disk_->Ail({.full = true});
  NodePtr node;
  EXPECT_EQ(disk_->Write(At("/a"), "5", 1, 4), -ENOSPC);
  EXPECT_EQ(disk_->Write(At("/a"), "5", 1, 0), -ENOSPC);
  EXPECT_EQ(disk_->Allocate(At("/a"), 0, 0, 8), -ENOSPC);
  EXPECT_EQ(disk_->MakeFile("/b", 0600, node), -ENOSPC);
  EXPECT_EQ(disk_->MakeFolder("/c", 0700), -ENOSPC);
  EXPECT_EQ(disk_->suffered().refused, 5u);
  struct statvfs space {};
  ASSERT_EQ(disk_->Space(space), 0);
  EXPECT_EQ(space.f_bavail, 0u);
  char bytes[4] = {};
  EXPECT_EQ(disk_->Read(At("/a"), bytes, 4, 0), 4);
  EXPECT_EQ(disk_->Sync(At("/a")), 0);
  EXPECT_EQ(disk_->Rename("/a", "/d"), 0) << "a program that may still rename and remove makes room";
  EXPECT_EQ(disk_->Truncate(At("/d"), 2), 0);
  disk_->Ail({});
  Put("/d", "3456", 2);
  EXPECT_EQ(disk_->Remove("/d"), 0);
}

TEST_F(DiskTest, ASlowDiskHoldsUpItsSyncsAndNothingElse) {
  Make("/a", "1234");
  disk_->Ail({.sync_delay_ms = 300});
  uint64_t syncs = 0;
  bool put_first = false;  // the machine may stand still for as long as a sync takes
  while (!put_first && syncs < 10) {
    const absl::Time begun = absl::Now();
    absl::Time synced;
    std::thread syncing([this, &synced] {
      EXPECT_EQ(disk_->Sync(At("/a")), 0);
      synced = absl::Now();
    });
    ++syncs;
    while (disk_->suffered().slowed < syncs) std::this_thread::yield();
    Put("/a", "x");
    const absl::Time put = absl::Now();
    syncing.join();
    put_first = synced - put > absl::Milliseconds(100);
    EXPECT_GE(absl::Now() - begun, absl::Milliseconds(300));
  }
  EXPECT_TRUE(put_first) << "a write ends while a sync is under way";
  EXPECT_EQ(disk_->suffered().slowed, syncs);
  disk_->Ail({});
  EXPECT_EQ(disk_->Sync(At("/a")), 0);
  EXPECT_EQ(disk_->suffered().slowed, syncs);
}

TEST_F(DiskTest, ADiskThatHangsKeepsItsCallersUntilItIsWell) {
  Make("/a", "1234");
  disk_->Ail({.hangs = true});
  std::atomic<bool> done = false;
  std::thread syncing([this, &done] {
    EXPECT_EQ(disk_->Sync(At("/a")), 0);
    done = true;
  });
  while (disk_->suffered().hung < 1) std::this_thread::yield();
  char bytes[4] = {};
  EXPECT_EQ(disk_->Read(At("/a"), bytes, 4, 0), 4) << "what is there can be read";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(done);
  disk_->Ail({});
  syncing.join();
  EXPECT_TRUE(done);
}

TEST_F(DiskTest, CommandsAreObeyedAndAnswered) {
  Make("/a", "1234");
  EXPECT_EQ(Obey(*disk_, "cut"), R"({"lost_bytes": 4, "lost_names": 1, "files": {"a": 4}})");
  EXPECT_EQ(Obey(*disk_, "cut 7"), R"({"lost_bytes": 0, "lost_names": 0, "files": {}})");
  EXPECT_EQ(Obey(*disk_, "full"), R"({"slowed": 0, "refused": 0, "hung": 0})");
  NodePtr node;
  EXPECT_EQ(disk_->MakeFile("/b", 0600, node), -ENOSPC);
  EXPECT_EQ(Obey(*disk_, "slow 1"), R"({"slowed": 0, "refused": 1, "hung": 0})");
  EXPECT_EQ(disk_->MakeFile("/b", 0600, node), 0) << "one ailment at a time";
  EXPECT_EQ(disk_->Sync(node), 0);
  EXPECT_EQ(Obey(*disk_, "well"), R"({"slowed": 1, "refused": 1, "hung": 0})");
  EXPECT_EQ(Obey(*disk_, "hang"), R"({"slowed": 1, "refused": 1, "hung": 0})");
  EXPECT_EQ(Obey(*disk_, "well"), R"({"slowed": 1, "refused": 1, "hung": 0})");
  for (const char* wrong : {"", "cut x", "cut -1", "sync", "slow", "slow x", "slow 10001"}) {
    EXPECT_THAT(Obey(*disk_, wrong), HasSubstr("error")) << wrong;
  }
}

}  // namespace
}  // namespace hedgerow::unsynced
