// SPDX-License-Identifier: Apache-2.0
//
// Logs live through what may come their way, drawn from a seed: processes that are killed while they open them
// or when they have written, changes between memory and disk mode, full disks, dropped files, and power cuts.
// Each start must find what the run before has left; after a cut what is found is a state that the log had,
// and no older one than what was called durable. HR_LOG_RUNS_SEEDS says how many seeds, HR_LOG_RUNS_FIRST
// from which on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "cluster/raft/check.h"
#include "cluster/storage/testing/log_runs.h"
#include "cluster/storage/testing/log_runs_cut.h"
#include "cluster/storage/snapshot_choice.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/testing/storage_story.h"

extern char** environ;

namespace hedgerow::storage {
namespace {

using ::testing::IsEmpty;

// 15 s on two processors that have other things to do. What this way of testing has found shows in them:
// files that claimed their first batch as reached before it, and batches that a log was read without because
// what stood before them was gone.
constexpr uint64_t kSeeds = 30;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Of all seeds.
struct Happened {
  uint64_t runs = 0;
  uint64_t killed_opens = 0;
  uint64_t mode_switches = 0;
  uint64_t writes_refused = 0;
  uint64_t files_dropped = 0;
  uint64_t read_when_stopped = 0;
  uint64_t cuts = 0;
  uint64_t cuts_that_took_batches = 0;
  uint64_t snapshots_beyond_log = 0;
  CutLosses losses;
};

// How the process ended, as waitpid says it.
int RunVictim(const TestFolder& folder, uint64_t seed, size_t run, uint64_t killed_after_us = 0) {
  std::string arguments[] = {absl::StrCat(HEDGEROW_BUILD_DIR, "/bin/hr-log-runs-victim"), folder.path(),
                             absl::StrCat(seed), absl::StrCat(run), absl::StrCat(killed_after_us)};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  HEDGEROW_CHECK(posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
  int status = 0;
  HEDGEROW_CHECK(waitpid(pid, &status, 0) == pid);
  return status;
}

bool KilledBy(int signal, int status) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
bool EndedWell(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
std::string HowItEnded(int status) {
  return WIFSIGNALED(status) ? absl::StrCat("killed by signal ", WTERMSIG(status))
                             : absl::StrCat("with code ", WEXITSTATUS(status));
}

bool GoesFurther(const StoppedLog& log) {
  return std::any_of(log.doubts.begin(), log.doubts.end(),
                     [](const std::string& doubt) { return absl::StrContains(doubt, "goes further"); });
}

// The number of the last batch that a run has called durable: 0 is what it began with.
uint64_t LastDurableBatch(const Run& run, const raft::RestoredState& before) {
  if (!run.killed) return run.batches;
  uint64_t durable = 0;
  RunTeller teller(run, before);
  while (!teller.over()) {
    if (teller.Next().start_becomes_durable) durable = teller.drawn();
  }
  return durable;
}

// After which of its batches the run was in the state that `found` has, from the batch `from` on; one more
// than there are: never. A snapshot that goes further than the log stands for it: the run took it later than
// that.
uint64_t BatchOf(const StoppedLog& found, const Run& run, const raft::RestoredState& before, uint64_t from) {
  const bool further = GoesFurther(found);
  uint64_t batch = run.batches + 1;
  bool snapshot_was_taken = false;
  RunTeller teller(run, before);
  for (;;) {
    const raft::RestoredState& state = teller.state();
    const bool is_it = further ? found.raft.hard_state == state.hard_state : Same(found.raft, state);
    if (is_it && teller.drawn() >= from) batch = std::min(batch, teller.drawn());
    if (teller.over()) break;
    const RunBatch next = teller.Next();
    for (const raft::Persist& persist : next.persists) {
      snapshot_was_taken |=
          batch < teller.drawn() && persist.new_start.has_value() && persist.new_start->snapshot == found.raft.start;
    }
  }
  return further && !snapshot_was_taken ? run.batches + 1 : batch;
}

// The log of one seed.
class LivingLog {
 public:
  LivingLog(uint64_t seed, Happened& happened) : seed_(seed), runs_(RunsOf(seed)), happened_(happened) {}

  // Until something is wrong.
  void RunAll() {
    for (size_t number = 0; number < runs_.runs.size() && !::testing::Test::HasFailure(); ++number) {
      SCOPED_TRACE(absl::StrCat("run ", number, " of ", runs_.runs[number].sync ? "disk" : "memory", " mode, files of ",
                                runs_.segment_bytes, " bytes"));
      Live(number);
    }
  }

 private:
  void Live(size_t number) {
    const Run& run = runs_.runs[number];
    for (const uint64_t us : run.killed_opens_us) {
      const int status = RunVictim(folder_, seed_, number, us);
      ASSERT_TRUE(KilledBy(SIGALRM, status) || EndedWell(status))
          << "a start that is killed after " << us << " us ended " << HowItEnded(status);
      happened_.killed_opens += KilledBy(SIGALRM, status);
    }
    const int status = RunVictim(folder_, seed_, number);
    ASSERT_TRUE(run.killed ? KilledBy(SIGKILL, status) : EndedWell(status)) << "the run ended " << HowItEnded(status);
    Count(number);
    if (run.read_when_stopped) CheckStopped(number);
    if (run.power_cut) CheckCut(number);
  }

  void Count(size_t number) {
    ++happened_.runs;
    happened_.mode_switches += number > 0 && runs_.runs[number - 1].sync != runs_.runs[number].sync;
    uint64_t refused = 0;
    ASSERT_TRUE(absl::SimpleAtoi(ReadFile(RefusedWritesOf(folder_)), &refused));
    happened_.writes_refused += refused;
    const std::filesystem::directory_iterator dropped(RemovedFolderOf(folder_));
    happened_.files_dropped += static_cast<uint64_t>(std::distance(begin(dropped), end(dropped)));
  }

  // Nobody but the process is gone, so nothing may be missing, nor called into doubt.
  void CheckStopped(size_t number) {
    const raft::RestoredState expected = StateBefore(runs_, number + 1);
    const absl::StatusOr<StoppedLog> found = Read(folder_, kBootBeforeCut);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(found->doubts, IsEmpty());
    EXPECT_EQ(found->raft.snapshot.last, expected.snapshot.last);
    ASSERT_TRUE(Same(found->raft, expected)) << Describe(found->raft) << "; it must be " << Describe(expected);
    ++happened_.read_when_stopped;
  }

  void CheckCut(size_t number) {
    const Run& run = runs_.runs[number];
    const raft::RestoredState before = StateBefore(runs_, number);
    const TestFolder after(folder_.path() + "/cut");
    const CutLosses losses = CutPower(folder_, after, run.power_cut_seed);
    const absl::StatusOr<StoppedLog> found = Read(after, kBootAfterCut);
    ASSERT_TRUE(found.ok()) << "after a power cut: " << found.status();
    // Stopped in order, all of it is on the disk, and a node goes on with it.
    EXPECT_EQ(found->doubts.empty(), !run.killed) << ::testing::PrintToString(found->doubts);
    const uint64_t durable = LastDurableBatch(run, before);
    const uint64_t batch = BatchOf(*found, run, before, durable);
    ASSERT_LE(batch, run.batches) << "a power cut left " << Describe(found->raft) << ", which it never held since "
                                  << durable << " of its " << run.batches << " batches were durable; "
                                  << ::testing::PrintToString(found->doubts);
    ++happened_.cuts;
    happened_.cuts_that_took_batches += batch < run.batches;
    happened_.snapshots_beyond_log += GoesFurther(*found);
    happened_.losses.files_torn += losses.files_torn;
    happened_.losses.removals_undone += losses.removals_undone;
  }

  absl::StatusOr<StoppedLog> Read(const TestFolder& folder, std::string_view boot_id) const {
    return ReadStoppedLog(RunsOptions(folder, runs_, /*sync=*/false, boot_id), kRunsIdentity, ReadThrough);
  }

  const uint64_t seed_;
  const LogRuns runs_;
  Happened& happened_;
  const TestFolder folder_;
};

void Print(const Happened& happened) {
  std::printf("%lu runs, %lu starts killed, %lu changes of mode, %lu writes refused, %lu files dropped\n",
              happened.runs, happened.killed_opens, happened.mode_switches, happened.writes_refused,
              happened.files_dropped);
  std::printf("%lu read when stopped; %lu power cuts: %lu took batches, %lu left a snapshot beyond the log\n",
              happened.read_when_stopped, happened.cuts, happened.cuts_that_took_batches,
              happened.snapshots_beyond_log);
  std::printf("%lu files torn, %lu removals undone\n", happened.losses.files_torn, happened.losses.removals_undone);
}

// Runs in which nothing happens would find nothing, and show nothing. These are about half of what the first
// seeds give, and less of the starts that are killed, since a fast machine has done with some of them before.
void ExpectEnough(const Happened& happened, uint64_t seeds) {
  EXPECT_GT(happened.runs, seeds * 3);
  EXPECT_GT(happened.killed_opens, seeds);
  EXPECT_GT(happened.mode_switches, seeds);
  EXPECT_GT(happened.writes_refused, seeds * 5);
  EXPECT_GT(happened.files_dropped, seeds * 10);
  EXPECT_GT(happened.read_when_stopped, seeds * 3 / 2);
  EXPECT_GT(happened.cuts, seeds * 4 / 5);
  EXPECT_GT(happened.cuts_that_took_batches, seeds / 2);
  EXPECT_GT(happened.snapshots_beyond_log, seeds / 8);
  EXPECT_GT(happened.losses.files_torn, seeds * 3 / 2);
  EXPECT_GT(happened.losses.removals_undone, seeds / 3);
}

TEST(LogRuns, EveryStartFindsWhatWasLeftAndNoPowerCutTakesWhatWasDurable) {
  // The disk is a pretended one; a real one below it would only take time.
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  const uint64_t seeds = FromEnvironment("HR_LOG_RUNS_SEEDS", kSeeds);
  const uint64_t first = FromEnvironment("HR_LOG_RUNS_FIRST", 1);
  Happened happened;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, "; HR_LOG_RUNS_FIRST=", seed,
                              " HR_LOG_RUNS_SEEDS=1 repeats it, but for the moments at which starts are killed"));
    LivingLog(seed, happened).RunAll();
    if (HasFailure()) return;
  }
  Print(happened);
  if (seeds >= kSeeds) ExpectEnough(happened, seeds);
}

}  // namespace
}  // namespace hedgerow::storage
