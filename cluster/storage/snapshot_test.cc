// SPDX-License-Identifier: Apache-2.0
//
// Snapshots as files, in their folder, and beside a log: what is damaged is seen, what was not finished is
// nothing, and a log never goes on from a snapshot that is not a part of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "build_paths.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/snapshot_writer.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

raft::EntryId At(uint64_t index, uint64_t term) { return {.index = raft::LogIndex(index), .term = raft::Term(term)}; }

SnapshotHeader HeaderOf(const raft::EntryId& last) {
  return {
      .cluster_id = kTestCluster,
      .snapshot = {.last = last, .configuration = raft::Configuration::OfVoters({raft::NodeId(1), raft::NodeId(2)})}};
}

std::string WriteSnapshot(const std::string& path, const raft::EntryId& last, const std::vector<std::string>& chunks) {
  absl::StatusOr<SnapshotFileWriter> writer = SnapshotFileWriter::Create(path, HeaderOf(last));
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const std::string& chunk : chunks) EXPECT_TRUE(writer->Append(chunk).ok());
  EXPECT_TRUE(writer->Finish().ok());
  return ReadFile(path);
}

absl::StatusOr<std::vector<std::string>> ReadSnapshot(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<SnapshotReader>> reader = SnapshotReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::vector<std::string> chunks;
  while (true) {
    absl::StatusOr<std::optional<std::string>> chunk = (*reader)->Next();
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value()) return chunks;
    chunks.push_back(**std::move(chunk));
  }
}

class SnapshotFileTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/file"; }
  absl::Status ErrorOf(const std::string& bytes) {
    WriteFile(path(), bytes);
    return ReadSnapshot(path()).status();
  }
  TestFolder folder_;
};

TEST_F(SnapshotFileTest, SaysHowMuchOfItWasRead) {
  WriteSnapshot(path(), At(100, 7), {"one", std::string(5'000'000, 'x')});
  LoadProgress progress;
  const auto reader = SnapshotReader::Open(path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  (*reader)->ReportTo(progress);
  EXPECT_EQ(progress.stage(), LoadProgress::Stage::kSnapshot);
  const uint64_t before_bytes = progress.done_bytes();
  ASSERT_TRUE(ReadThrough(**reader).ok());
  EXPECT_EQ(progress.total_bytes(), std::filesystem::file_size(path()));
  EXPECT_GT(progress.done_bytes(), before_bytes + 5'000'000);
  EXPECT_LE(progress.done_bytes(), progress.total_bytes());
}

TEST_F(SnapshotFileTest, ComesBackAsItWasWritten) {
  const std::vector<std::string> chunks = {"one", std::string(5'000'000, 'x'), std::string(1, '\0')};
  WriteSnapshot(path(), At(100, 7), chunks);
  const auto read = ReadSnapshot(path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, chunks);
  EXPECT_EQ((*SnapshotReader::Open(path()))->header(), HeaderOf(At(100, 7)));
}

TEST_F(SnapshotFileTest, AnyFlippedBitIsSeen) {
  const std::string whole = WriteSnapshot(path(), At(100, 7), {"first", "second"});
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ErrorOf(flipped).ok()) << "bit " << bit;
  }
}

TEST_F(SnapshotFileTest, AnythingCutShortOrAddedIsSeen) {
  const std::string whole = WriteSnapshot(path(), At(100, 7), {"first", "second"});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ErrorOf(whole.substr(0, size)).code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_THAT(std::string(ErrorOf(whole + "x").message()), HasSubstr("something comes after its end"));
  EXPECT_EQ(ErrorOf(whole + std::string(4096, '\0')).code(), absl::StatusCode::kDataLoss);
}

TEST_F(SnapshotFileTest, AChunkOfAnotherSnapshotOrPlaceIsSeen) {
  const std::string one = WriteSnapshot(path(), At(100, 7), {"first", "other"});
  const std::string another = WriteSnapshot(path(), At(101, 7), {"first", "other"});
  const size_t first = one.find("first");
  ASSERT_EQ(first, another.find("first"));
  std::string mixed = one;
  mixed.replace(first - 8, 13, another, first - 8, 13);
  EXPECT_THAT(std::string(ErrorOf(mixed).message()), HasSubstr("chunk 0 has a wrong checksum"));
  std::string swapped = one;
  swapped.replace(first - 8, 13, one, first + 5, 13);
  EXPECT_THAT(std::string(ErrorOf(swapped).message()), HasSubstr("chunk 0 has a wrong checksum"));
}

TEST_F(SnapshotFileTest, AFormatOfTheFutureIsNamed) {
  std::string bytes = WriteSnapshot(path(), At(100, 7), {"first"});
  bytes[18] = static_cast<char>(kSnapshotVersion + 1);
  const absl::Status status = ErrorOf(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("start the version of the program that wrote it"));
}

TEST_F(SnapshotFileTest, EveryFormatThereWasIsRead) {
  const std::string golden = HEDGEROW_SOURCE_DIR "/cluster/storage/testdata/snapshot-";
  if (getenv("HEDGEROW_REWRITE") != nullptr) {
    WriteSnapshot(absl::StrCat(golden, kSnapshotVersion), At(1000, 12), {"a chunk", "and another"});
  }
  for (uint32_t version = 1; version <= kSnapshotVersion; ++version) {
    const std::string file = absl::StrCat(golden, version);
    const auto read = ReadSnapshot(file);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(*read, ElementsAre("a chunk", "and another"));
    EXPECT_EQ((*SnapshotReader::Open(file))->header(), HeaderOf(At(1000, 12)));
  }
}

TEST(SnapshotFolderTest, WhatWasNotPublishedIsNothingAndGoesWithTheNextStart) {
  const TestFolder test;
  std::filesystem::create_directory(test.log());
  const std::string path = test.log() + "/snapshots";
  {
    const absl::StatusOr<SnapshotFolder> folder = SnapshotFolder::Open(test.log());
    ASSERT_TRUE(folder.ok()) << folder.status();
    TakeTestSnapshot(*folder, At(7, 1));
    TakeTestSnapshot(*folder, At(300, 2));
    ASSERT_TRUE(folder->Begin(HeaderOf(At(400, 2)), "taking").ok());
    ASSERT_TRUE(folder->Begin(HeaderOf(At(500, 2)), "receiving").ok());
    EXPECT_THAT(folder->List(), ElementsAre(At(300, 2), At(7, 1)));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), {}), 4);
  const absl::StatusOr<SnapshotFolder> folder = SnapshotFolder::Open(test.log());
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), {}), 2);
  folder->RemoveBefore(raft::LogIndex(300));
  EXPECT_THAT(folder->List(), ElementsAre(At(300, 2)));
}

class SnapshotWriterTest : public ::testing::Test {
 protected:
  SnapshotWriterTest() {
    std::filesystem::create_directory(test_.log());
    folder_.emplace(*SnapshotFolder::Open(test_.log()));
  }
  std::unique_ptr<SnapshotWriter> Begin() {
    return std::make_unique<SnapshotWriter>(*folder_, HeaderOf(At(9, 1)), [this] { ended_.Notify(); });
  }
  TestFolder test_;
  std::optional<SnapshotFolder> folder_;
  absl::Notification ended_;
};

TEST_F(SnapshotWriterTest, PublishesWhatItWasGivenAndSaysSo) {
  const std::unique_ptr<SnapshotWriter> writer = Begin();
  for (int i = 0; i < 100; ++i) writer->Append("chunk " + std::to_string(i));
  EXPECT_FALSE(writer->result().has_value());
  writer->Finish();
  ended_.WaitForNotification();
  ASSERT_TRUE(writer->result().has_value());
  EXPECT_TRUE(writer->result()->ok()) << *writer->result();
  EXPECT_EQ(writer->backlog_bytes(), 0u);
  const auto read = ReadSnapshot(folder_->PathOf(At(9, 1)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 100u);
  EXPECT_EQ(read->back(), "chunk 99");
}

TEST_F(SnapshotWriterTest, WhatIsGivenUpLeavesNothing) {
  std::unique_ptr<SnapshotWriter> writer = Begin();
  for (int i = 0; i < 100; ++i) writer->Append(std::string(100'000, 'x'));
  writer.reset();
  EXPECT_TRUE(ended_.HasBeenNotified());
  EXPECT_TRUE(std::filesystem::is_empty(test_.log() + "/snapshots"));
}

TEST_F(SnapshotWriterTest, AnErrorIsTheResult) {
  std::filesystem::remove(test_.log() + "/snapshots");
  const std::unique_ptr<SnapshotWriter> writer = Begin();
  ended_.WaitForNotification();
  EXPECT_FALSE(writer->result()->ok());
  writer->Append("to nobody");
  EXPECT_EQ(writer->backlog_bytes(), 0u);
}

// A log of entries 1 to 10 of term 1, that begins after `start`, with these snapshots beside it.
class SnapshotChoiceTest : public ::testing::Test {
 protected:
  void Make(uint64_t start, const std::vector<raft::EntryId>& snapshots) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    raft::Persist persist = {.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(5)}};
    for (uint64_t i = 1; i <= 10; ++i) persist.entries.push_back(TestEntry(i, 1, "x"));
    storage->Write(persist);
    if (start > 0) {
      TakeTestSnapshot(storage->snapshots(), At(start, 1));
      storage->Write({.sequence = 2, .new_start = raft::NewStart{.after = At(start, 1), .snapshot = At(start, 1)}});
    }
    ASSERT_TRUE(AwaitDurable(*storage, start > 0 ? 2 : 1));
    for (const raft::EntryId& last : snapshots) TakeTestSnapshot(storage->snapshots(), last);
  }
  void Damage(const raft::EntryId& last) {
    const std::string path = PathOf(last);
    std::string bytes = ReadFile(path);
    bytes.resize(bytes.size() - 1);
    WriteFile(path, bytes);
  }
  std::string PathOf(const raft::EntryId& last) { return SnapshotFolder::Open(folder_.log())->PathOf(last); }
  absl::StatusOr<raft::EntryId> Chosen() {
    const absl::StatusOr<std::unique_ptr<LogStorage>> storage =
        LogStorage::Open(options(), {.cluster_id = kTestCluster, .node = kTestNode});
    if (!storage.ok()) return storage.status();
    trouble_ = (*storage)->snapshot_trouble();
    left_ = (*storage)->snapshots().List();
    return (*storage)->TakeRestored().snapshot.last;
  }
  StorageOptions options() const { return TestOptions(folder_, true); }

  TestFolder folder_;
  std::string trouble_;
  std::vector<raft::EntryId> left_;
};

TEST_F(SnapshotChoiceTest, TheNewestOfTheLogIsTakenAndTheOthersGo) {
  Make(3, {At(5, 1), At(8, 1)});
  EXPECT_EQ(*Chosen(), At(8, 1));
  EXPECT_THAT(left_, ElementsAre(At(8, 1)));
  EXPECT_THAT(trouble_, IsEmpty());
}

TEST_F(SnapshotChoiceTest, OneThatWasReceivedAndNotInstalledIsNone) {
  Make(3, {At(8, 2), At(500, 4)});
  EXPECT_EQ(*Chosen(), At(3, 1)) << "the log has another entry 8, and ends before 500";
  EXPECT_THAT(left_, ElementsAre(At(3, 1)));
}

TEST_F(SnapshotChoiceTest, OneOfAnotherClusterIsRefused) {
  Make(3, {});
  const absl::StatusOr<SnapshotFolder> folder = SnapshotFolder::Open(folder_.log());
  SnapshotHeader header = HeaderOf(At(3, 1));
  header.cluster_id = kTestCluster + 1;
  absl::StatusOr<SnapshotFileWriter> writer = folder->Begin(header, "taking");
  ASSERT_TRUE(writer->Finish().ok() && folder->Publish(writer->path(), At(3, 1)).ok());
  EXPECT_EQ(Chosen().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SnapshotChoiceTest, ADamagedOneIsPassedOverWhileTheLogReachesBackToAnOlderOne) {
  Make(3, {At(5, 1), At(8, 1)});
  Damage(At(8, 1));
  EXPECT_EQ(*Chosen(), At(5, 1));
  EXPECT_THAT(trouble_, HasSubstr("is damaged: it is cut short"));
  EXPECT_THAT(trouble_, HasSubstr("nothing is lost"));
  EXPECT_EQ(*Chosen(), At(5, 1));
  EXPECT_THAT(trouble_, IsEmpty());
}

TEST_F(SnapshotChoiceTest, AWholeLogNeedsNone) {
  Make(0, {At(5, 1)});
  Damage(At(5, 1));
  EXPECT_EQ(*Chosen(), At(0, 0));
  EXPECT_THAT(trouble_, HasSubstr("the log reaches back to its beginning"));
}

TEST_F(SnapshotChoiceTest, ALogWithoutItsBeginningAndWithoutASnapshotIsRefused) {
  Make(3, {});
  Damage(At(3, 1));
  for (int twice = 0; twice < 2; ++twice) {
    const absl::Status status = Chosen().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("it begins after entry 3, and there is no whole snapshot of what came before: the snapshot"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("it is cut short"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("Leave this node stopped"));
  }
  std::filesystem::remove(PathOf(At(3, 1)));
  EXPECT_EQ(Chosen().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SnapshotChoiceTest, WhatItsUserCannotReadIsPassedOverToo) {
  Make(3, {At(5, 1), At(8, 1)});
  std::vector<uint64_t> tried;
  const auto picky = [&tried](SnapshotReader& snapshot) {
    tried.push_back(snapshot.header().snapshot.last.index.value());
    return tried.size() == 1 ? absl::DataLossError("its contents are odd") : ReadThrough(snapshot);
  };
  const absl::StatusOr<std::unique_ptr<LogStorage>> storage =
      LogStorage::Open(options(), {.cluster_id = kTestCluster, .node = kTestNode}, picky);
  ASSERT_TRUE(storage.ok()) << storage.status();
  EXPECT_THAT(tried, ElementsAre(8, 5));
  EXPECT_EQ((*storage)->TakeRestored().snapshot.last, At(5, 1));
}

// Both modes.
class NewStartTest : public ::testing::TestWithParam<bool> {
 protected:
  StorageOptions options() const { return TestOptions(folder_, GetParam()); }
  uint64_t DiskUse() const {
    uint64_t bytes = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.log())) {
      std::error_code gone;
      const uintmax_t size = file.is_regular_file() ? file.file_size(gone) : 0;
      if (!gone) bytes += size;
    }
    return bytes;
  }
  TestFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Modes, NewStartTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Disk" : "Memory"; });

TEST_P(NewStartTest, ARestartRestoresALogWithNewStarts) {
  raft::RestoredState expected;
  for (uint64_t run = 0; run < 5; ++run) {
    const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
    raft::RestoredState restored = storage->TakeRestored();
    ASSERT_TRUE(Same(restored, expected))
        << "run " << run << ": " << Describe(restored) << " instead of " << Describe(expected);
    ASSERT_EQ(restored.snapshot.last, expected.snapshot.last);
    Story story(run, std::move(restored), /*with_snapshots=*/true);
    raft::Persist persist;
    for (int i = 0; i < 500; ++i) {
      persist = story.Next();
      WriteWithSnapshot(*storage, persist);
    }
    ASSERT_TRUE(AwaitDurable(*storage, persist.sequence));
    expected = story.state();
  }
  EXPECT_GT(expected.start.index, raft::LogIndex(500));
}

TEST_P(NewStartTest, WhatIsBeforeItAndOlderSnapshotsLeaveTheDisk) {
  const std::unique_ptr<LogStorage> storage = OpenOrDie(options());
  storage->Write({.sequence = 1, .hard_state = raft::HardState{.term = raft::Term(1)}});
  uint64_t sequence = 1;
  uint64_t pieces = 0;
  // 1 MB, and the log begins after it.
  const auto write_piece = [&] {
    raft::Persist persist = {.sequence = ++sequence};
    for (uint64_t i = 1; i <= 20; ++i) {
      persist.entries.push_back(TestEntry(20 * pieces + i, 1, std::string(50'000, 'p')));
    }
    storage->Write(persist);
    const raft::EntryId end = At(20 * ++pieces, 1);
    WriteWithSnapshot(*storage, {.sequence = ++sequence, .new_start = raft::NewStart{.after = end, .snapshot = end}});
    return AwaitDurable(*storage, sequence);
  };
  while (pieces < 60) ASSERT_TRUE(write_piece());
  // The compactor takes what a snapshot has made superfluous when it finds the time.
  const auto left = [&] { return DiskUse() > 12'000'000 || storage->snapshots().List().size() > 2; };
  for (int i = 0; i < 40 && left(); ++i) {
    absl::SleepFor(absl::Milliseconds(250));
    ASSERT_TRUE(write_piece());
  }
  EXPECT_LT(DiskUse(), 12'000'000u) << "of " << pieces << " MB";
  EXPECT_LE(storage->snapshots().List().size(), 2u);
}

}  // namespace
}  // namespace hedgerow::storage
