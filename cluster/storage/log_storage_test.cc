// SPDX-License-Identifier: Apache-2.0
//
// The log as cluster/node sees it, where nothing goes wrong with the disk.

#include "cluster/storage/log_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::HasSubstr;

absl::Status OpenError(const StorageOptions& options,
                       StoredIdentity identity = {.cluster_id = kTestCluster, .node = kTestNode}) {
  return LogStorage::Open(options, identity).status();
}

bool Readable(int fd, int within_ms = 0) {
  pollfd event = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&event, 1, within_ms) == 1;
}

// Of a log that is to end by itself soon; empty: it did not.
std::string ErrorAfterWriting(LogStorage& storage) {
  Story story(8, {});
  const absl::Time until = absl::Now() + absl::Seconds(10);
  while (storage.health().ok() && absl::Now() < until) {
    storage.Write(story.Next());
    absl::SleepFor(absl::Milliseconds(50));  // no more than the log's present file has room for
  }
  return std::string(storage.health().message());
}

// Both modes.
class LogStorageTest : public ::testing::TestWithParam<bool> {
 protected:
  StorageOptions options() const { return TestOptions(folder_, GetParam()); }
  TestFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Modes, LogStorageTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Disk" : "Memory"; });

TEST_P(LogStorageTest, ANewLogIsEmpty) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  EXPECT_TRUE(Same(storage->TakeRestored(), {}));
  EXPECT_EQ(storage->TakeDurable(), 0u);
  EXPECT_TRUE(storage->health().ok());
}

// The file may say something else by now, and on some of the nodes only.
TEST_P(LogStorageTest, WhatItBeganWithIsRecordedOnce) {
  StorageOptions edited = options();
  for (const uint64_t voters : {3, 5, 1}) {
    std::vector<raft::NodeId> ids;
    for (uint64_t id = 1; id <= voters; ++id) ids.push_back(raft::NodeId(id));
    edited.begins_with = raft::Configuration::OfVoters(ids);
    EXPECT_EQ(OpenOrDie(edited)->began_with().voters, 0b111u);
  }
}

TEST_P(LogStorageTest, ALogKeepsItsIdAndNoOtherHasIt) {
  const uint64_t first = OpenOrDie(options())->copy_id();
  EXPECT_NE(first, 0u);
  EXPECT_EQ(first >> 62, 0u) << "what else is said in its place needs those";
  EXPECT_EQ(OpenOrDie(options())->copy_id(), first);
  std::filesystem::remove_all(folder_.log());
  EXPECT_NE(OpenOrDie(options())->copy_id(), first) << "the folder was emptied";
}

TEST_P(LogStorageTest, ALogThatJoinedStaysOneThatJoined) {
  EXPECT_TRUE(OpenOrDie(options())->began_with().members.empty());
  StorageOptions edited = options();
  edited.begins_with = raft::Configuration::OfVoters({kTestNode});
  EXPECT_TRUE(OpenOrDie(edited)->began_with().members.empty());
}

TEST_P(LogStorageTest, ARestartRestoresWhatWasWritten) {
  raft::RestoredState expected;
  for (uint64_t run = 0; run < 5; ++run) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    raft::RestoredState restored = storage->TakeRestored();
    ASSERT_TRUE(Same(restored, expected))
        << "run " << run << ": " << Describe(restored) << " instead of " << Describe(expected);
    Story story(run, std::move(restored));
    raft::Persist persist;
    for (int i = 0; i < 500; ++i) {
      persist = story.Next();
      storage->Write(persist);
    }
    ASSERT_TRUE(AwaitDurable(*storage, persist.sequence));
    expected = story.state();
  }
}

TEST_P(LogStorageTest, AStopWritesWhatWaits) {
  raft::RestoredState expected;
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    Story story(1, {});
    for (int i = 0; i < 300; ++i) storage->Write(story.Next());
    expected = story.state();
  }
  EXPECT_TRUE(Same(OpenOrDie(options())->TakeRestored(), expected));
}

TEST_P(LogStorageTest, TheDurableSequenceGrowsInOrderAndNoFurtherThanWhatWasWritten) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  Story story(2, {});
  uint64_t last = 0;
  for (uint64_t i = 1; i <= 2000; ++i) {
    storage->Write(story.Next());
    const uint64_t durable = storage->TakeDurable();
    ASSERT_GE(durable, last);
    ASSERT_LE(durable, i);
    last = durable;
  }
  EXPECT_TRUE(AwaitDurable(*storage, 2000));
}

TEST_P(LogStorageTest, SequencesMayLeaveGaps) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  for (const uint64_t sequence : {5, 17, 400}) {
    storage->Write({.sequence = sequence, .hard_state = raft::HardState{.term = raft::Term(sequence)}});
  }
  EXPECT_TRUE(AwaitDurable(*storage, 400));
  EXPECT_EQ(storage->TakeDurable(), 400u);
}

TEST_P(LogStorageTest, ATruncationIsDurableWithWhatReplacesIt) {
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    storage->Write({.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1)}});
    raft::Persist first = {.sequence = 2};
    for (uint64_t i = 1; i <= 10; ++i) first.entries.push_back(TestEntry(i, 1, "old"));
    storage->Write(first);
    storage->Write({.sequence = 3,
                    .hard_state = raft::HardState{.term = raft::Term(2), .voted_for = raft::NodeId(3)},
                    .truncate_from = raft::LogIndex(4),
                    .entries = {TestEntry(4, 2, "new"), TestEntry(5, 2, "")}});
    ASSERT_TRUE(AwaitDurable(*storage, 3));
  }
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    const raft::RestoredState state = storage->TakeRestored();
    EXPECT_EQ(state.hard_state, (raft::HardState{.term = raft::Term(2), .voted_for = raft::NodeId(3)}));
    ASSERT_EQ(state.entries.size(), 5u);
    EXPECT_EQ(state.entries[2], TestEntry(3, 1, "old"));
    EXPECT_EQ(state.entries[3], TestEntry(4, 2, "new"));
    EXPECT_EQ(state.entries[4], TestEntry(5, 2, ""));
    // Of what another run wrote, and all of it.
    storage->Write({.sequence = 1, .truncate_from = raft::LogIndex(1)});
    ASSERT_TRUE(AwaitDurable(*storage, 1));
  }
  const raft::RestoredState state = OpenOrDie(options())->TakeRestored();
  EXPECT_EQ(state.hard_state.term, raft::Term(2));
  EXPECT_TRUE(state.entries.empty());
}

TEST_P(LogStorageTest, AnothersLogIsRefused) {
  OpenOrDie(options());
  const absl::Status cluster = OpenError(options(), {.cluster_id = 8, .node = kTestNode});
  EXPECT_EQ(cluster.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cluster.message()),
              HasSubstr("belongs to node 2 of cluster 7, and this is node 2 of cluster 8: correct data_dir"));
  const absl::Status node = OpenError(options(), {.cluster_id = kTestCluster, .node = raft::NodeId(1)});
  EXPECT_EQ(node.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(node.message()), HasSubstr("this is node 1 of cluster 7"));
  OpenOrDie(options());
}

TEST_P(LogStorageTest, AChangeOfMembersInALaterFormatIsRefusedInWords) {
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    raft::Entry change = TestEntry(1, 1, std::string(1, '\x7f') + "of a later version");
    change.kind = raft::EntryKind::kConfiguration;
    storage->Write(
        {.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1), .voted_for = {}}, .entries = {change}});
    ASSERT_TRUE(AwaitDurable(*storage, 1));
  }
  const absl::Status status = OpenError(options());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a change of members at entry 1 in a form that this program does not know"));
}

TEST_P(LogStorageTest, ALogThatIsInUseIsRefused) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  const absl::Status status = OpenError(options());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << "and so no exit code 3: a node runs";
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use by another process"));
}

TEST_P(LogStorageTest, AFolderThatCannotBeMadeIsNamed) {
  StorageOptions options = this->options();
  options.path = folder_.path() + "/not/there";
  EXPECT_THAT(std::string(OpenError(options).message()), HasSubstr("/not/there"));
}

TEST_P(LogStorageTest, ModesMayChangeBetweenRuns) {
  raft::RestoredState expected;
  for (int run = 0; run < 4; ++run) {
    StorageOptions options = this->options();
    options.sync = options.sync != (run % 2 == 1);
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
    raft::RestoredState restored = storage->TakeRestored();
    ASSERT_TRUE(Same(restored, expected));
    Story story(static_cast<uint64_t>(run), std::move(restored));
    raft::Persist persist;
    for (int i = 0; i < 50; ++i) {
      persist = story.Next();
      storage->Write(persist);
    }
    ASSERT_TRUE(AwaitDurable(*storage, persist.sequence));
    expected = story.state();
  }
}

TEST_P(LogStorageTest, StatisticsAddUp) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  Story story(3, {});
  uint64_t entries = 0;
  uint64_t truncations = 0;
  for (int i = 0; i < 1000; ++i) {
    raft::Persist persist = story.Next();
    entries += persist.entries.size();
    truncations += persist.truncate_from.has_value();
    storage->Write(std::move(persist));
  }
  ASSERT_TRUE(AwaitDurable(*storage, 1000));
  const StorageStatistics statistics = storage->statistics();
  EXPECT_EQ(statistics.writes, 1000u);
  EXPECT_EQ(statistics.entries, entries);
  EXPECT_EQ(statistics.truncations, truncations);
  EXPECT_GT(statistics.bytes, entries * 100);
  EXPECT_EQ(statistics.queue_length, 0u);
  EXPECT_EQ(statistics.queue_bytes, 0u);
  EXPECT_EQ(statistics.queue_over_bound, 0u);
  EXPECT_EQ(statistics.syncs.samples(), statistics.batches);
}

TEST(QuickSyncsTest, AfterAStallTheOwnerWaitsForNoneForLong) {
  QuickSyncs syncs(2'000'000);
  for (int i = 0; i < 32; ++i) {
    EXPECT_FALSE(syncs.hold());
    syncs.Took(500'000);
  }
  for (int i = 0; i < 100; ++i) syncs.Took(i % 10 == 0 ? 5'000'000 : 500'000);
  EXPECT_FALSE(syncs.hold()) << "one in ten is too many";
  for (int i = 0; i < 100; ++i) syncs.Took(500'000);
  syncs.Took(5'000'000);
  EXPECT_TRUE(syncs.hold()) << "one in a hundred is borne";
  syncs.Took(40'000'000);
  for (int i = 0; i < 10'000; ++i) syncs.Took(i % 100 == 0 ? 5'000'000 : 500'000);
  EXPECT_FALSE(syncs.hold());
  for (int i = 0; i < 20'000; ++i) syncs.Took(500'000);
  EXPECT_TRUE(syncs.hold());
}

TEST(LogStorageCommitHere, TheOwnerCommitsItselfWhileTheDiskIsQuickAndTheThreadOtherwise) {
  const TestFolder folder;
  StorageOptions options = TestOptions(folder, /*sync=*/true);
  options.quick_sync_ns = 10'000'000'000;
  std::unique_ptr<LogStorage> storage = OpenOrDie(options);
  Story story(4, {});
  const auto write = [&](bool here) {
    raft::Persist persist = story.Next();
    const uint64_t sequence = persist.sequence;
    storage->Write(std::move(persist), here);
    return sequence;
  };
  for (int i = 0; i < 200; ++i) {
    const uint64_t sequence = write(true);
    if (storage->CommitHere()) break;
    ASSERT_TRUE(AwaitDurable(*storage, sequence)) << "by the thread, until the disk is known to be quick";
  }
  uint64_t last = write(true);
  last = write(true);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_LT(storage->TakeDurable(), last) << "it is left for the owner";
  ASSERT_TRUE(storage->CommitHere());
  EXPECT_EQ(storage->TakeDurable(), last) << "both, on return";
  EXPECT_FALSE(storage->CommitHere()) << "nothing is left";
  EXPECT_EQ(storage->here_for_ns(), 0u);
  EXPECT_GE(storage->statistics().batches_here, 1u);
  write(true);
  ASSERT_TRUE(AwaitDurable(*storage, write(false))) << "an owner that will not wait leaves all to the thread";

  storage.reset();
  options.quick_sync_ns = 0;
  storage = OpenOrDie(options);
  Story slow(4, storage->TakeRestored());
  for (int i = 0; i < 40; ++i) {
    raft::Persist persist = slow.Next();
    const uint64_t sequence = persist.sequence;
    storage->Write(std::move(persist), /*here=*/true);
    EXPECT_FALSE(storage->CommitHere());
    ASSERT_TRUE(AwaitDurable(*storage, sequence));
  }
}

TEST(LogStorageCommitHere, AFolderThatIsMovedEndsTheLogOfAnOwnerThatCommitsItself) {
  TestFolder folder;
  StorageOptions options = TestOptions(folder, /*sync=*/true);
  options.quick_sync_ns = 10'000'000'000;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
  Story story(4, {});
  const auto commit = [&] {
    raft::Persist persist = story.Next();
    const uint64_t sequence = persist.sequence;
    storage->Write(std::move(persist), /*here=*/true);
    return storage->CommitHere() || !AwaitDurable(*storage, sequence);
  };
  for (int i = 0; i < 200 && !commit(); ++i) {
  }
  ASSERT_GE(storage->statistics().batches_here, 1u);
  std::filesystem::rename(folder.log(), folder.log() + ".before");
  const absl::Time until = absl::Now() + absl::Seconds(10);
  while (storage->health().ok() && absl::Now() < until) {
    storage->Write(story.Next(), /*here=*/true);
    storage->CommitHere();
    absl::SleepFor(absl::Milliseconds(50));  // no more than the log's present file has room for
  }
  EXPECT_THAT(std::string(storage->health().message()),
              HasSubstr("was removed, moved or mounted over while the node ran"));
}

// A file may not grow any more: an error that is no full disk.
TEST_P(LogStorageTest, AnyOtherFailedWriteIsFinalAndNothingMoreIsReported) {
  const auto limit_files = [](rlim_t bytes) {
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  signal(SIGXFSZ, SIG_IGN);
  uint64_t durable = 0;
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    Story story(8, {});
    for (int i = 0; i < 20; ++i) storage->Write(story.Next());
    ASSERT_TRUE(AwaitDurable(*storage, 20));
    limit_files(100'000);
    for (int i = 0; i < 1000 && storage->health().ok(); ++i) {
      storage->Write(story.Next());
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(storage->health().code(), absl::StatusCode::kInternal) << storage->health();
    EXPECT_THAT(std::string(storage->health().message()), HasSubstr("File too large"));
    EXPECT_TRUE(Readable(storage->event_fd()));
    durable = storage->TakeDurable();
    limit_files(RLIM_INFINITY);
    for (int i = 0; i < 100; ++i) storage->Write(story.Next());
    absl::SleepFor(absl::Milliseconds(100));
    EXPECT_EQ(storage->TakeDurable(), durable);
  }
  const raft::RestoredState found = OpenOrDie(options())->TakeRestored();
  Story story(8, {});
  uint64_t drawn = 0;
  while (drawn < durable) drawn = story.Next().sequence;
  while (!Same(story.state(), found) && drawn < durable + 1000) drawn = story.Next().sequence;
  EXPECT_TRUE(Same(story.state(), found)) << Describe(found);
}

// The next start would not find what is acknowledged from then on.
TEST_P(LogStorageTest, AFolderThatIsRemovedEndsTheLog) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  std::filesystem::remove_all(folder_.log());
  EXPECT_THAT(ErrorAfterWriting(*storage), HasSubstr("was removed, moved or mounted over while the node ran"));
}

TEST(LogStorageModesTest, OnDiskAFolderThatIsMovedEndsTheLog) {
  TestFolder folder;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder, true));
  std::filesystem::rename(folder.log(), folder.log() + ".before");
  EXPECT_THAT(ErrorAfterWriting(*storage), HasSubstr("was removed, moved or mounted over while the node ran"));
}

TEST(LogStorageModesTest, OnDiskWhatWaitsForASyncSharesTheNext) {
  const TestFolder folder;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder, true));
  Story story(4, {});
  for (int i = 0; i < 2000; ++i) storage->Write(story.Next());
  ASSERT_TRUE(AwaitDurable(*storage, 2000));
  const StorageStatistics statistics = storage->statistics();
  EXPECT_LT(statistics.batches, 1000u);
  EXPECT_GT(statistics.largest_batch, 2u);
}

TEST(LogStorageModesTest, ABatchIsBounded) {
  const TestFolder folder;
  StorageOptions options = TestOptions(folder, true);
  options.batch_max_bytes = 1;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
  Story story(5, {});
  for (int i = 0; i < 50; ++i) storage->Write(story.Next());
  ASSERT_TRUE(AwaitDurable(*storage, 50));
  EXPECT_EQ(storage->statistics().batches, 50u);
}

TEST(LogStorageModesTest, BeyondItsBoundTheQueueTakesEverythingAndCountsIt) {
  const TestFolder folder;
  StorageOptions options = TestOptions(folder, true);
  options.queue_max_bytes = 1;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
  Story story(6, {});
  for (int i = 0; i < 50; ++i) storage->Write(story.Next());
  ASSERT_TRUE(AwaitDurable(*storage, 50));
  EXPECT_EQ(storage->statistics().queue_over_bound, 50u);
}

// Also for an owner that runs before the writer's thread goes on: the wake-up is the last that the writer does.
TEST(LogStorageModesTest, OnDiskEachCommitIsOneEventAndReadingItIsEnough) {
  const TestFolder folder;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder, true));
  EXPECT_FALSE(Readable(storage->event_fd()));
  for (uint64_t i = 1; i <= 200; ++i) {
    storage->Write({.sequence = i, .hard_state = raft::HardState{.term = raft::Term(i)}});
    ASSERT_TRUE(Readable(storage->event_fd(), 10'000));
    storage->ReadEvent();
    EXPECT_FALSE(Readable(storage->event_fd()));
    EXPECT_EQ(storage->TakeDurable(), i);
  }
}

TEST(LogStorageModesTest, InMemoryAWriteIsDurableWhenItReturns) {
  const TestFolder folder;
  const std::unique_ptr<LogStorage> storage = OpenOrDie(TestOptions(folder, false));
  Story story(7, {});
  for (uint64_t i = 1; i <= 20; ++i) {
    storage->Write(story.Next());
    EXPECT_EQ(storage->TakeDurable(), i);
  }
  EXPECT_EQ(storage->statistics().batches, 20u);
}

TEST(LogStorageModesTest, AMemoryLogEndsWithItsHostUnlessItWasStopped) {
  const TestFolder folder;
  StorageOptions options = TestOptions(folder, false);
  options.boot_id = "first";
  OpenOrDie(options)->Write({.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1)}});
  options.boot_id = "second";  // stopped in order: everything was synced
  EXPECT_EQ(OpenOrDie(options)->TakeRestored().hard_state.term, raft::Term(1));

  std::string running;  // the watermark of a log that is being written
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
    running = ReadFile(folder.log() + "/watermark");
  }
  WriteFile(folder.log() + "/watermark", running);
  options.boot_id = "third";
  const absl::Status status = OpenError(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was written in memory mode and this host has restarted since"));
  options.sync = true;
  EXPECT_EQ(OpenError(options).code(), absl::StatusCode::kFailedPrecondition);
  options.boot_id = "second";  // the process alone had died
  OpenOrDie(options);
}

// Two runs of the host that cannot be told apart would pass for one.
TEST(LogStorageModesTest, AHostWhoseRunCannotBeKnownKeepsNoMemoryLog) {
  const TestFolder folder;
  StorageOptions options = TestOptions(folder, false);
  options.boot_id = "";
  const absl::Status refused = OpenError(options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/proc/sys/kernel/random/boot_id cannot be read"));
  EXPECT_FALSE(std::filesystem::exists(folder.log() + "/log-header"));

  options.boot_id = "known";
  std::string running;
  {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options);
    running = ReadFile(folder.log() + "/watermark");
  }
  WriteFile(folder.log() + "/watermark", running);
  options.boot_id = "";
  EXPECT_EQ(OpenError(options).code(), absl::StatusCode::kPermissionDenied);
  options.sync = true;
  EXPECT_TRUE(IsLost(OpenError(options))) << "what memory mode left unsynced may be gone";
  options.boot_id = "known";
  OpenOrDie(options);  // disk mode from now on, and synced
  options.boot_id = "";
  OpenOrDie(options);
}

}  // namespace
}  // namespace hedgerow::storage
