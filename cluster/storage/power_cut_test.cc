// SPDX-License-Identifier: Apache-2.0
//
// A power cut at every point of a log's run: between any two calls that change its files, and in the midst of
// each. Whatever of the unsynced sectors and names it leaves, the log opens, and is one that it had since the
// last batch that was reported; and it goes on from there to the next cut. Processes are killed in between,
// whose last batch is in the page cache only. HR_POWER_CUT_SEEDS says how many times four runs.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/testing/power_cut_disk.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

namespace fs = std::filesystem;

constexpr StoredIdentity kIdentity = {.cluster_id = kTestCluster, .node = kTestNode};
constexpr int kRuns = 4;           // one after the other, each from what a cut has left of the one before
constexpr uint64_t kBatches = 20;  // of a run
constexpr int kCutsAtEachPoint = 3;
constexpr uint64_t kSeeds = 4;

struct Happened {
  uint64_t cuts = 0;
  uint64_t lost_batches = 0;  // cuts that took what was not reported
  uint64_t kept_batches = 0;  // cuts that left what was not reported
  uint64_t wrong = 0;
  std::string first_wrong;
};

StorageOptions Options(const std::string& log) {
  StorageOptions options;
  options.path = log;
  options.segment_bytes = 8192;
  return options;
}

// One run of a log in `log`, on a recorded disk. Which batch of it is written, and which is reported, is
// noted.
class Run {
 public:
  Run(const std::string& log, raft::RestoredState before, uint64_t seed, Lies lies) : before_(log) {
    states_.push_back(before);
    RecordDisk(log, lies);
    std::mt19937_64 random(seed);
    Story story(seed, std::move(before), /*with_snapshots=*/true);
    while (states_.size() <= kBatches) {
      const std::unique_ptr<DurableLog> opened = *DurableLog::Open(Options(log), kIdentity);
      HEDGEROW_CHECK(Same(opened->TakeRestored(), states_.back()));
      Report();  // what a process of before had written, and not reported
      while (states_.size() <= kBatches && Write(*opened, story, random)) {
      }
    }
    operations_ = StopRecording();
  }

  void CutEverywhere(std::mt19937_64& random, Happened& happened) {
    RecordedDisk disk = before_;
    uint64_t written = 0;
    uint64_t reported = 0;
    for (size_t i = 0; i <= operations_.size(); ++i) {
      for (int cut = 0; cut < kCutsAtEachPoint; ++cut) Cut(disk, i, written, reported, random, happened);
      if (i == operations_.size()) break;
      disk.Do(operations_[i]);
      if (operations_[i].kind != DiskOperation::Kind::kNote) continue;
      (operations_[i].note % 2 == 0 ? written : reported) = operations_[i].note / 2;
    }
  }

  // What one of the cuts has left, and the state that was found in it.
  const std::string& left() const { return kept_->path(); }
  const raft::RestoredState& found() const { return found_; }

 private:
  void Report() { NoteOnDisk(2 * (states_.size() - 1) + 1); }

  // False: the process was killed when it had written a batch and not synced it.
  bool Write(DurableLog& log, Story& story, std::mt19937_64& random) {
    bool starts = false;
    for (uint64_t left = 1 + random() % 3; left > 0; --left) {
      const raft::Persist persist = story.Next();
      starts = starts || persist.new_start.has_value();
      log.Gather(persist);
    }
    states_.push_back(story.state());
    NoteOnDisk(2 * (states_.size() - 1));
    const bool killed = random() % 8 == 0;
    if (killed) {
      HEDGEROW_CHECK(log.PrepareSpare());  // so that the next sync is the batch's
      KillAtNextSync();
    }
    try {
      HEDGEROW_CHECK(log.Commit().ok());
    } catch (const Killed&) {
      return false;
    }
    if (killed) KillNoMore();  // it has synced nothing
    Report();
    if (random() % 2 == 0) HEDGEROW_CHECK(log.PrepareSpare());
    if (starts || random() % 4 == 0) {
      HEDGEROW_CHECK(log.StartIsDurable(story.state().start.index));
      log.DropUpTo(story.state().start.index);
    }
    return true;
  }

  void Cut(const RecordedDisk& disk, size_t point, uint64_t written, uint64_t reported, std::mt19937_64& random,
           Happened& happened) {
    auto left = std::make_unique<TestFolder>();
    fs::create_directories(left->log());
    disk.Leave(left->log(), random);
    const TestFolder copy;
    fs::copy(left->log(), copy.log(), fs::copy_options::recursive);
    ++happened.cuts;
    const auto log = DurableLog::Open(Options(copy.log()), kIdentity);
    raft::RestoredState found;
    uint64_t batch = written + 1;
    if (log.ok()) {
      found = (*log)->TakeRestored();
      for (batch = reported; batch <= written && !Same(states_[batch], found); ++batch) {
      }
    }
    if (batch > written) {
      ++happened.wrong;
      if (happened.first_wrong.empty()) {
        happened.first_wrong =
            absl::StrCat("after ", point, " of ", operations_.size(), " operations, batch ", written, " written and ",
                         reported, " reported: ", log.ok() ? Describe(found) : log.status().ToString());
      }
      return;
    }
    happened.lost_batches += batch < written;
    happened.kept_batches += batch > reported;
    if (kept_ == nullptr || random() % 16 == 0) {
      kept_ = std::move(left);
      found_ = std::move(found);
    }
  }

  const RecordedDisk before_;
  std::vector<raft::RestoredState> states_;  // before it, and after each batch
  std::vector<DiskOperation> operations_;
  std::unique_ptr<TestFolder> kept_;
  raft::RestoredState found_;
};

Happened LiveAndCut(uint64_t seeds, Lies lies) {
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  Happened happened;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    auto folder = std::make_unique<TestFolder>();
    fs::create_directories(folder->log());
    raft::RestoredState state;
    for (int run = 0; run < kRuns; ++run) {
      Run this_run(folder->log(), std::move(state), random(), lies);
      this_run.CutEverywhere(random, happened);
      if (happened.wrong > 0) {
        happened.first_wrong = absl::StrCat("seed ", seed, ", run ", run, ": ", happened.first_wrong);
        return happened;
      }
      auto next = std::make_unique<TestFolder>();
      fs::copy(this_run.left() + "/log", next->log(), fs::copy_options::recursive);
      folder = std::move(next);
      state = this_run.found();
    }
  }
  return happened;
}

TEST(PowerCutTest, ACutAnywhereLeavesTheLogThatWasReportedOrALaterOne) {
  const char* const given = std::getenv("HR_POWER_CUT_SEEDS");
  const Happened happened = LiveAndCut(given == nullptr ? kSeeds : std::strtoull(given, nullptr, 10), Lies::kNone);
  EXPECT_EQ(happened.wrong, 0u) << happened.first_wrong;
  std::printf("%lu cuts: %lu took batches that were not reported, %lu left some\n", happened.cuts,
              happened.lost_batches, happened.kept_batches);
  EXPECT_GT(happened.cuts, 2'000u);
  EXPECT_GT(happened.lost_batches, 200u);
  EXPECT_GT(happened.kept_batches, 50u);
}

// So that the test above can fail.
TEST(PowerCutTest, ALogOnADiskThatLiesIsFoundOut) {
  EXPECT_GT(LiveAndCut(1, Lies::kFiles).wrong, 0u);
  EXPECT_GT(LiveAndCut(1, Lies::kFolders).wrong, 0u);
}

}  // namespace
}  // namespace hedgerow::storage
