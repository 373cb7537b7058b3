// SPDX-License-Identifier: Apache-2.0
//
// The nodes' log on a disk that loses power: its writer is killed at a random moment and the disk forgets what
// was not synced, again and again. What was reported durable is there, and what is there is a state that the
// log went through. In memory mode, what is left can be recovered. And a disk that lies is found out, so that
// this test can fail.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "chaos/unsynced/mounted_test.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/segments.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/testing/storage_story.h"
#include "cluster/storage/testing/storage_victim.h"

namespace hedgerow::unsynced {
namespace {

using storage::Describe;
using storage::Same;
using storage::Story;
using storage::TestFolder;
using storage::Victim;

struct Variant {
  const char* name;
  std::vector<std::string> flags;
  bool torn;  // some of what was not synced is there after all
};

// ctest shows it with the test's name.
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

// An error, a skip, or nothing.
void NeedFuse() {
  ASSERT_EQ(geteuid(), 0u) << "needs root: sudo ./dev test";
  if (const std::string why = WhyNoFuse(); !why.empty()) GTEST_SKIP() << "no FUSE here: " << why;
}

class LogPowerCutTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { NeedFuse(); }
};
class LyingDiskTest : public testing::Test {
 protected:
  void SetUp() override { NeedFuse(); }
};
INSTANTIATE_TEST_SUITE_P(Variants, LogPowerCutTest,
                         testing::Values(Variant{"Strict", {"--names=strict"}, false},
                                         Variant{"StrictTorn", {"--names=strict"}, true},
                                         Variant{"Journal", {"--names=journal"}, false},
                                         Variant{"JournalTorn", {"--names=journal"}, true}),
                         [](const auto& variant) { return variant.param.name; });

// One run of a writer, and the power cut that ends it. Gives what it had reported durable.
uint64_t RunAndDie(Mounted& disk, bool sync, uint64_t run, bool torn, std::mt19937_64& random) {
  Victim victim(disk.path(), sync, run);
  // Some are killed while they open the log.
  if (run % 4 != 0) victim.AwaitFirstReport();
  absl::SleepFor(absl::Microseconds(random() % 60'000));
  const uint64_t reported = victim.Kill();
  EXPECT_TRUE(victim.killed()) << "run " << run << ": it ended by itself";
  if (torn) {
    disk.Cut(random());
  } else {
    disk.Cut();
  }
  return reported;
}

TEST_P(LogPowerCutTest, WhatWasReportedDurableSurvives) {
  constexpr int kRuns = 12;
  Mounted disk(GetParam().flags);
  const TestFolder folder{disk.path()};
  std::mt19937_64 random(7);
  raft::RestoredState before;
  uint64_t reported_in_all = 0;
  for (uint64_t run = 0; run < kRuns; ++run) {
    const uint64_t reported = RunAndDie(disk, /*sync=*/true, run, GetParam().torn, random);
    reported_in_all += reported;
    absl::StatusOr<std::unique_ptr<storage::LogStorage>> opened = storage::LogStorage::Open(
        TestOptions(folder, true), {.cluster_id = storage::kTestCluster, .node = storage::kTestNode});
    ASSERT_TRUE(opened.ok()) << "run " << run << ", " << reported << " reported: " << opened.status();
    raft::RestoredState found = (*opened)->TakeRestored();
    Story story(run, before, /*with_snapshots=*/true);
    uint64_t drawn = 0;
    while (drawn < reported) drawn = story.Next().sequence;
    // What was under way may be there, as far as the 32 writes in flight.
    while (!Same(story.state(), found)) {
      ASSERT_LE(drawn, reported + 32) << "run " << run << ": after " << reported << " reported writes it holds "
                                      << Describe(found) << ", which it never did";
      drawn = story.Next().sequence;
    }
    before = std::move(found);
  }
  EXPECT_GT(reported_in_all, uint64_t{20} * kRuns);
}

absl::StatusOr<storage::StoppedLog> ReadStopped(const TestFolder& folder) {
  return storage::ReadStoppedLog(TestOptions(folder, false),
                                 {.cluster_id = storage::kTestCluster, .node = storage::kTestNode},
                                 storage::ReadThrough);
}

// In memory mode the node itself is lost then, but what is left is a log: one that it has been, or a snapshot
// that goes further. So a cluster can be recovered from it.
TEST_P(LogPowerCutTest, WhatMemoryModeLeavesCanBeRecovered) {
  constexpr uint64_t kRuns = 8;
  Mounted disk(GetParam().flags);
  const TestFolder folder{disk.path()};
  std::mt19937_64 random(9);
  uint64_t starts = 0;
  for (uint64_t i = 0; i < kRuns; ++i) {
    const uint64_t run = 4 * i + 1;  // none is killed while it opens the log
    const uint64_t reported = RunAndDie(disk, /*sync=*/false, run, GetParam().torn, random);
    {
      const absl::StatusOr<storage::StoppedLog> log = ReadStopped(folder);
      ASSERT_TRUE(log.ok()) << "run " << run << ", " << reported << " reported: " << log.status();
      starts += log->raft.start.index > raft::LogIndex();
      Story story(run, {}, /*with_snapshots=*/true);
      const auto found = [&log, &story] {
        const bool snapshot = log->raft.entries.empty() && log->raft.start == log->raft.snapshot.last;
        return Same(story.state(), log->raft) || (snapshot && story.state().snapshot.last == log->last);
      };
      uint64_t drawn = 0;
      while (!found()) {
        ASSERT_LE(drawn, reported + 32) << "run " << run << ": " << Describe(log->raft);
        drawn = story.Next().sequence;
      }
    }
    std::filesystem::remove_all(folder.log());
  }
  EXPECT_GT(starts, 0u);
}

class MemoryModeTest : public LyingDiskTest {
 protected:
  // Entries of 1 KB. At most 64 wait for the writer, who makes one record of what waits: a record has no bound, and a
  // file that begins with a long one is longer than the others.
  static void Append(storage::LogStorage& storage, uint64_t count) {
    for (uint64_t i = 1; i <= count; ++i) {
      raft::Persist persist = {.sequence = i};
      if (i == 1) persist.hard_state = raft::HardState{.term = raft::Term(1)};
      persist.entries.push_back(storage::TestEntry(i, 1, std::string(1000, 'p')));
      storage.Write(std::move(persist));
      if (i % 64 == 0 || i == count) ASSERT_TRUE(AwaitDurable(storage, i));
    }
  }
  static ptrdiff_t Files(const TestFolder& folder) {
    return std::distance(std::filesystem::directory_iterator(folder.segments()), {});
  }
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) absl::SleepFor(absl::Milliseconds(10));
    return condition();
  }
};

TEST_F(MemoryModeTest, NothingGoesThatTheLogOnTheDiskNeeds) {
  Mounted disk;
  const TestFolder folder{disk.path()};
  // The last one, one that is ready, and the pool.
  constexpr ptrdiff_t kLeft = 2 + storage::Segments::kPoolMax_files;
  const raft::EntryId end = {.index = raft::LogIndex(4000), .term = raft::Term(1)};
  {
    const std::unique_ptr<storage::LogStorage> storage = storage::OpenOrDie(TestOptions(folder, false));
    Append(*storage, 4000);
    ASSERT_GT(Files(folder), kLeft);
    storage::WriteWithSnapshot(*storage,
                               {.sequence = 4001, .new_start = raft::NewStart{.after = end, .snapshot = end}});
    ASSERT_TRUE(AwaitDurable(*storage, 4001));
    ASSERT_TRUE(Eventually([&] { return Files(folder) <= kLeft; })) << "its beginning does not go";
    disk.Cut();
  }
  const absl::StatusOr<storage::StoppedLog> log = ReadStopped(folder);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->raft.start, end);
  EXPECT_EQ(log->raft.snapshot.last, end);
}

// Only the syncs of the log's files are lies: the log is short, or refused as damaged.
TEST_F(LyingDiskTest, IsFoundOut) {
  Mounted disk({"--ignore_sync=????????????????"});  // as long as their names are
  const TestFolder folder{disk.path()};
  std::mt19937_64 random(8);
  const uint64_t reported = RunAndDie(disk, /*sync=*/true, 1, /*torn=*/false, random);
  ASSERT_GT(reported, 0u);
  const auto opened = storage::LogStorage::Open(TestOptions(folder, true),
                                                {.cluster_id = storage::kTestCluster, .node = storage::kTestNode});
  if (!opened.ok()) {
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss) << opened.status();
    return;
  }
  const raft::RestoredState found = (*opened)->TakeRestored();
  Story story(1, {}, /*with_snapshots=*/true);
  uint64_t drawn = 0;
  while (drawn < reported) drawn = story.Next().sequence;
  for (; drawn <= reported + 32; drawn = story.Next().sequence) {
    EXPECT_FALSE(Same(story.state(), found)) << "nothing was lost, though nothing was synced";
  }
}

}  // namespace
}  // namespace hedgerow::unsynced
