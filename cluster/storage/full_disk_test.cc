// SPDX-License-Identifier: Apache-2.0
//
// A full disk, on a small tmpfs that only this process sees. Needs root. The namespace is made before any
// thread, since threads inherit it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "cluster/raft/check.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

class FullDiskTest : public ::testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() {
    static bool private_mounts = false;
    if (std::exchange(private_mounts, true)) return;
    ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "needs root: sudo ./dev test";
    ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  }
  void SetUp() override { ASSERT_EQ(mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=16m"), 0); }
  void TearDown() override { EXPECT_EQ(umount2(folder_.path().c_str(), MNT_DETACH), 0); }

  uint64_t Free() const {
    struct statvfs space {};
    HEDGEROW_CHECK(statvfs(folder_.path().c_str(), &space) == 0);
    return uint64_t{space.f_bavail} * space.f_frsize;
  }
  // As far as it can: the compactor takes and gives back space meanwhile.
  void Fill(uint64_t bytes_left) {
    const net::UniqueFd file(open(filler().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    HEDGEROW_CHECK(file.valid());
    for (uint64_t step = Free(); step >= 4096; step /= 2) {
      while (Free() >= step + bytes_left) {
        const off_t end = lseek(file.get(), 0, SEEK_END);
        if (posix_fallocate(file.get(), end, static_cast<off_t>(step)) != 0) break;
      }
    }
  }
  void MakeSpace() { std::filesystem::remove(filler()); }
  std::string filler() const { return folder_.path() + "/filler"; }
  StorageOptions options() const {
    StorageOptions options = TestOptions(folder_, GetParam());
    options.segment_bytes = 128 * 1024;
    options.batch_max_bytes = 256 * 1024;
    return options;
  }
  // Writes on until there is no space, and none is left in the log's own files either. Gives the last
  // sequence written.
  uint64_t WriteUntilFull(LogStorage& storage, Story& story) {
    uint64_t written = 0;
    for (int full = 0, round = 0; full < 20 && round < 2000; ++round) {
      Fill(0);
      if (storage.health().ok()) {
        full = 0;
        for (int i = 0; i < 20; ++i) {
          raft::Persist persist = story.Next();
          written = persist.sequence;
          storage.Write(std::move(persist));
        }
      } else {
        ++full;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_TRUE(absl::IsResourceExhausted(storage.health())) << storage.health();
    return written;
  }

  TestFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Modes, FullDiskTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Disk" : "Memory"; });

TEST_P(FullDiskTest, WritesWaitInOrderAndGoOnWhenThereIsSpaceAgain) {
  raft::RestoredState expected;
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    Story story(1, {});
    for (int i = 0; i < 100; ++i) storage->Write(story.Next());
    ASSERT_TRUE(AwaitDurable(*storage, 100));
    uint64_t written = WriteUntilFull(*storage, story);
    EXPECT_THAT(std::string(storage->health().message()), HasSubstr("no space left for the log in"));
    EXPECT_THAT(std::string(storage->health().message()), HasSubstr("free some space"));
    const uint64_t durable = storage->TakeDurable();
    for (int i = 0; i < 20; ++i) storage->Write(story.Next());
    written += 20;
    absl::SleepFor(absl::Milliseconds(200));
    EXPECT_EQ(storage->TakeDurable(), durable);
    EXPECT_GT(storage->statistics().full_disk_retries, 1u);
    EXPECT_EQ(storage->statistics().queue_length, written - durable);

    MakeSpace();
    ASSERT_TRUE(AwaitDurable(*storage, written)) << storage->health();
    EXPECT_TRUE(storage->health().ok()) << storage->health();
    EXPECT_EQ(storage->statistics().queue_length, 0u);
    expected = story.state();
  }
  EXPECT_TRUE(Same(OpenOrDie(options())->TakeRestored(), expected));
}

TEST_P(FullDiskTest, TheFirstWriteOfARunMayFindTheDiskFull) {
  raft::RestoredState expected;
  for (uint64_t run = 0; run < 3; ++run) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    raft::RestoredState restored = storage->TakeRestored();
    ASSERT_TRUE(Same(restored, expected));
    Story story(run, std::move(restored));
    const uint64_t written = WriteUntilFull(*storage, story);
    MakeSpace();
    for (int i = 0; i < 50; ++i) storage->Write(story.Next());
    ASSERT_TRUE(AwaitDurable(*storage, written + 50)) << storage->health();
    EXPECT_TRUE(storage->health().ok());
    expected = story.state();
  }
  EXPECT_TRUE(Same(OpenOrDie(options())->TakeRestored(), expected));
}

TEST_P(FullDiskTest, NothingIsLostHoweverOftenItFills) {
  std::mt19937_64 random(5);
  raft::RestoredState expected;
  int times_full = 0;
  for (uint64_t run = 0; run < 4; ++run) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    raft::RestoredState restored = storage->TakeRestored();
    ASSERT_TRUE(Same(restored, expected)) << "run " << run << ": " << Describe(restored);
    Story story(100 + run, std::move(restored));
    raft::Persist persist;
    for (int round = 0; round < 5; ++round) {
      Fill(random() % 100'000);
      for (int i = 0; i < 60; ++i) {
        persist = story.Next();
        storage->Write(persist);
      }
      absl::SleepFor(absl::Milliseconds(random() % 80));
      times_full += !storage->health().ok();
      MakeSpace();
      if (random() % 2 == 0) {
        ASSERT_TRUE(AwaitDurable(*storage, persist.sequence)) << storage->health();
      }
    }
    ASSERT_TRUE(AwaitDurable(*storage, persist.sequence)) << storage->health();
    expected = story.state();
  }
  EXPECT_GT(times_full, 3);
}

TEST_P(FullDiskTest, AStopWhileItIsFullKeepsWhatWasReported) {
  uint64_t reported = 0;
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    Story story(3, {});
    WriteUntilFull(*storage, story);
    reported = storage->TakeDurable();
  }
  // A log that is there needs no room to be opened.
  EXPECT_EQ(LogStorage::Open(options(), {.cluster_id = kTestCluster, .node = kTestNode}).status(), absl::OkStatus());
  MakeSpace();
  const raft::RestoredState found = OpenOrDie(options())->TakeRestored();
  Story story(3, {});
  uint64_t drawn = 0;
  while (drawn < reported) drawn = story.Next().sequence;
  for (int i = 0; i < 20 && !Same(story.state(), found); ++i) story.Next();
  EXPECT_TRUE(Same(story.state(), found)) << Describe(found);
}

// A file that was made ready before the disk was full.
TEST_P(FullDiskTest, ThereIsRoomForAWhileWithoutSpace) {
  auto log = DurableLog::Open(options(), {.cluster_id = kTestCluster, .node = kTestNode});
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Gather({.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1)}});
  ASSERT_EQ((*log)->Commit(), absl::OkStatus());
  ASSERT_TRUE((*log)->PrepareSpare());
  Fill(0);
  ASSERT_LT(Free(), 4096u);
  for (uint64_t i = 1; i <= 50; ++i) {  // more than what the first one still takes
    (*log)->Gather({.sequence = i + 1, .entries = {TestEntry(i, 1, std::string(4'000, 'p'))}});
    ASSERT_EQ((*log)->Commit(), absl::OkStatus()) << i;
  }
}

}  // namespace
}  // namespace hedgerow::storage
