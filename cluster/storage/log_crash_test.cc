// SPDX-License-Identifier: Apache-2.0
//
// A process that writes is killed at a random moment, again and again: what it reported durable is there, and
// what is there is a state that it went through.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/testing/storage_story.h"
#include "cluster/storage/testing/storage_victim.h"

namespace hedgerow::storage {
namespace {

class LogCrashTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, LogCrashTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Disk" : "Memory"; });

TEST_P(LogCrashTest, WhatWasReportedDurableSurvivesSigkill) {
  constexpr int kRuns = 60;
  const TestFolder folder;
  std::mt19937_64 random(GetParam() ? 1 : 2);
  raft::RestoredState before;  // what the victim starts with
  uint64_t reported_in_all = 0;
  uint64_t starts = 0;
  for (uint64_t run = 0; run < kRuns; ++run) {
    Victim victim(folder.path(), GetParam(), run);
    // Some are killed while they open the log.
    if (run % 4 != 0) victim.AwaitFirstReport();
    absl::SleepFor(absl::Microseconds(random() % 60'000));
    const uint64_t reported = victim.Kill();
    ASSERT_TRUE(victim.killed()) << "it ended by itself";
    reported_in_all += reported;

    raft::RestoredState found = OpenOrDie(TestOptions(folder, GetParam()))->TakeRestored();
    Story story(run, before, /*with_snapshots=*/true);
    uint64_t drawn = 0;
    while (drawn < reported) drawn = story.Next().sequence;
    // What was under way may be there, as far as the 32 writes in flight.
    while (!Same(story.state(), found)) {
      ASSERT_LE(drawn, reported + 32) << "run " << run << ": after " << reported << " reported writes it holds "
                                      << Describe(found) << ", which it never did";
      drawn = story.Next().sequence;
    }
    EXPECT_GE(found.snapshot.last.index, found.start.index);
    starts += found.start.index > before.start.index;
    before = std::move(found);
    if (before.entries.size() > 20'000) {
      before = {};
      std::filesystem::remove_all(folder.log());
    }
  }
  EXPECT_GT(reported_in_all, 1000u);
  EXPECT_GT(starts, 20u) << "runs in which the log was given a new start";
  RecordProperty("reported", static_cast<int>(reported_in_all));
}

}  // namespace
}  // namespace hedgerow::storage
