// SPDX-License-Identifier: Apache-2.0
//
// A process that writes is killed at a random moment, again and again: what it reported durable is there, and
// what is there is a state that it went through.

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cluster/raft/check.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/storage_story.h"

extern char** environ;

namespace hedgerow::storage {
namespace {

class Victim {
 public:
  Victim(const TestFolder& folder, bool sync, uint64_t seed) {
    int ends[2];
    HEDGEROW_CHECK(pipe(ends) == 0);
    out_ = Descriptor(ends[0]);
    const Descriptor in(ends[1]);
    const std::string program = absl::StrCat(HEDGEROW_BUILD_DIR, "/bin/hr-storage-victim");
    std::string arguments[] = {program, folder.path(), sync ? "disk" : "memory", absl::StrCat(seed)};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(),
                    nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.get(), STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, out_.get());
    HEDGEROW_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Victim() {
    if (pid_ > 0) Kill();
  }

  // Waits until it has reported something, so that it is killed at work and not at its start.
  void AwaitFirstReport() { ReadReport(); }
  // The last sequence that it reported as durable.
  uint64_t Kill() {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    killed_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    while (ReadReport()) {
    }
    return reported_;
  }
  bool killed() const { return killed_; }

 private:
  bool ReadReport() {
    uint64_t sequence = 0;
    if (read(out_.get(), &sequence, sizeof(sequence)) != sizeof(sequence)) return false;
    EXPECT_GT(sequence, reported_);
    reported_ = sequence;
    return true;
  }

  pid_t pid_ = -1;
  Descriptor out_;
  uint64_t reported_ = 0;
  bool killed_ = false;
};

class LogCrashTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, LogCrashTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Disk" : "Memory"; });

TEST_P(LogCrashTest, WhatWasReportedDurableSurvivesSigkill) {
  constexpr int kLives = 60;
  const TestFolder folder;
  std::mt19937_64 random(GetParam() ? 1 : 2);
  raft::RestoredState before;  // what the victim starts with
  uint64_t reported_in_all = 0;
  for (uint64_t life = 0; life < kLives; ++life) {
    Victim victim(folder, GetParam(), life);
    // Some are killed while they open the log.
    if (life % 4 != 0) victim.AwaitFirstReport();
    absl::SleepFor(absl::Microseconds(random() % 60'000));
    const uint64_t reported = victim.Kill();
    ASSERT_TRUE(victim.killed()) << "it ended by itself";
    reported_in_all += reported;

    raft::RestoredState found = OpenOrDie(TestOptions(folder, GetParam()))->TakeRestored();
    Story story(life, before);
    uint64_t told = 0;
    while (told < reported) told = story.Next().sequence;
    // What was under way may be there, as far as the 32 writes in flight.
    while (!Same(story.state(), found)) {
      ASSERT_LE(told, reported + 32) << "life " << life << ": after " << reported
                                     << " reported writes it holds " << Describe(found)
                                     << ", which it never did";
      told = story.Next().sequence;
    }
    before = std::move(found);
    if (before.entries.size() > 20'000) {
      before = {};
      std::filesystem::remove_all(folder.log());
    }
  }
  EXPECT_GT(reported_in_all, 1000u);
  RecordProperty("reported", static_cast<int>(reported_in_all));
}

}  // namespace
}  // namespace hedgerow::storage
