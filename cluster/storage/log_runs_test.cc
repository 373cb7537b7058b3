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
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/snapshot_choice.h"
#include "cluster/storage/snapshot_folder.h"
#include "cluster/storage/stopped_log.h"
#include "cluster/storage/testing/log_runs.h"
#include "cluster/storage/testing/power_cut_disk.h"
#include "cluster/storage/testing/storage_story.h"
#include "cluster/storage/testing/storage_victim.h"

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
  uint64_t files_torn = 0;
  uint64_t removals_undone = 0;
};

std::string CutOf(const TestFolder& folder) { return folder.path() + "/cut"; }
std::string ReportOf(const TestFolder& folder) { return folder.path() + "/report"; }

// One run, in a process of its own on a recorded disk: it opens the log, compares it with what it must hold, writes,
// and dies or ends as the run says. What it finds wrong it says on its standard error, and it ends with 1. Beside the
// log it leaves what a power cut would have left of it then, and how much the disk refused and files were dropped.
class Process {
 public:
  Process(const TestFolder& folder, const LogRuns& runs, const Run& run, const raft::RestoredState& before)
      : folder_(std::filesystem::canonical(folder.path())),
        run_(run),
        before_(before),
        options_(RunsOptions(folder_, runs, run.sync, kBootBeforeCut)) {}

  // How it ended, as waitpid says it. 0: it is not killed while it opens the log.
  int Live(uint64_t killed_after_us = 0) {
    return Await(Fork([&] { LiveAndEnd(killed_after_us); }));
  }

 private:
  [[noreturn]] static void Fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    _exit(1);
  }

  // At an arbitrary moment: nothing handles SIGALRM, so it ends the process as SIGKILL would. 0: not.
  static void KillAfter(uint64_t us) {
    const itimerval timer = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = static_cast<suseconds_t>(us)}};
    if (setitimer(ITIMER_REAL, &timer, nullptr) != 0) Fail("cannot set the timer");
  }

  // As LogStorage does when it is opened, and its compactor after that.
  SnapshotFolder GoOn(DurableLog& log) const {
    raft::RestoredState found = log.TakeRestored();
    if (!Same(found, before_)) Fail("it holds " + Describe(found) + "; it must be " + Describe(before_));
    absl::StatusOr<SnapshotFolder> snapshots = SnapshotFolder::Open(options_.path);
    if (!snapshots.ok()) Fail(snapshots.status().ToString());
    const absl::StatusOr<std::string> trouble =
        ChooseSnapshot(*snapshots, options_.path, kRunsIdentity, ReadThrough, found);
    if (!trouble.ok()) Fail(trouble.status().ToString());
    if (!trouble->empty()) Fail(*trouble);
    if (found.snapshot.last != before_.snapshot.last) Fail("it does not go on from its newest snapshot");
    log.DropUpTo(found.start.index);
    return *std::move(snapshots);
  }

  // Tried again while the disk is full.
  static void Commit(DurableLog& log) {
    absl::Status status = log.Commit();
    while (absl::IsResourceExhausted(status)) status = log.Commit();
    if (!status.ok()) Fail(status.ToString());
  }

  void Write(DurableLog& log, const SnapshotFolder& snapshots) const {
    RunTeller teller(run_, before_);
    raft::LogIndex durable_start = teller.state().start.index;
    raft::LogIndex needed_snapshot = teller.state().snapshot.last.index;
    while (!teller.over()) {
      const RunBatch batch = teller.Next();
      for (const raft::Persist& persist : batch.persists) {
        if (persist.new_start.has_value()) TakeTestSnapshot(snapshots, persist.new_start->snapshot);
        log.Gather(persist);
      }
      Commit(log);
      if (batch.start_becomes_durable) {
        durable_start = teller.state().start.index;
        needed_snapshot = teller.state().snapshot.last.index;
        if (!log.StartIsDurable(durable_start)) Fail("its start cannot be synced");
      }
      if (!batch.drops) continue;
      snapshots.RemoveBefore(needed_snapshot);
      log.DropUpTo(durable_start);
    }
  }

  void LiveAndEnd(uint64_t killed_after_us) const {
    std::filesystem::create_directories(folder_.log());
    RecordedDisk disk(folder_.log(), "segments");
    RecordDisk(folder_.log());
    KillAfter(killed_after_us);
    absl::StatusOr<std::unique_ptr<DurableLog>> log = DurableLog::Open(options_, kRunsIdentity);
    if (!log.ok()) Fail(log.status().ToString());
    KillAfter(0);
    const SnapshotFolder snapshots = GoOn(**log);
    if (killed_after_us > 0) return;  // it was faster
    if (run_.disk_fills_up) FillDisk(run_.story_seed);
    Write(**log, snapshots);
    const uint64_t refused = FreeDisk();
    if (!run_.killed) log->reset();
    uint64_t dropped = 0;
    for (const DiskOperation& operation : StopRecording()) {
      disk.Do(operation);
      dropped += operation.kind == DiskOperation::Kind::kRemove && operation.path.starts_with("segments/");
    }
    WriteFile(ReportOf(folder_), absl::StrCat(refused, " ", dropped));
    if (run_.power_cut) {
      std::filesystem::remove_all(CutOf(folder_));
      std::filesystem::create_directories(CutOf(folder_) + "/log");
      std::mt19937_64 random(run_.power_cut_seed);
      disk.Leave(CutOf(folder_) + "/log", random);
    }
    if (run_.killed) raise(SIGKILL);
  }

  const TestFolder folder_;
  const Run& run_;
  const raft::RestoredState& before_;
  const StorageOptions options_;
};

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
  LivingLog(uint64_t seed, Happened& happened) : runs_(RunsOf(seed)), happened_(happened) {}

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
    const raft::RestoredState before = StateBefore(runs_, number);
    Process process(folder_, runs_, run, before);
    for (const uint64_t us : run.killed_opens_us) {
      const int status = process.Live(us);
      ASSERT_TRUE(KilledBy(SIGALRM, status) || EndedWell(status))
          << "a start that is killed after " << us << " us ended " << HowItEnded(status);
      happened_.killed_opens += KilledBy(SIGALRM, status);
    }
    const int status = process.Live();
    ASSERT_TRUE(run.killed ? KilledBy(SIGKILL, status) : EndedWell(status)) << "the run ended " << HowItEnded(status);
    Count(number);
    if (run.read_when_stopped) CheckStopped(number);
    if (run.power_cut) CheckCut(run, before);
  }

  void Count(size_t number) {
    ++happened_.runs;
    happened_.mode_switches += number > 0 && runs_.runs[number - 1].sync != runs_.runs[number].sync;
    uint64_t refused = 0;
    uint64_t dropped = 0;
    ASSERT_EQ(std::sscanf(ReadFile(ReportOf(folder_)).c_str(), "%lu %lu", &refused, &dropped), 2);
    happened_.writes_refused += refused;
    happened_.files_dropped += dropped;
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

  void CheckCut(const Run& run, const raft::RestoredState& before) {
    const TestFolder after(CutOf(folder_));
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
    for (const std::filesystem::directory_entry& left : std::filesystem::directory_iterator(after.segments())) {
      const std::string live = folder_.segments() + "/" + left.path().filename().native();
      const bool removed = !std::filesystem::exists(live);
      happened_.removals_undone += removed;
      happened_.files_torn += !removed && ReadFile(live) != ReadFile(left.path());
    }
  }

  absl::StatusOr<StoppedLog> Read(const TestFolder& folder, std::string_view boot_id) const {
    return ReadStoppedLog(RunsOptions(folder, runs_, /*sync=*/false, boot_id), kRunsIdentity, ReadThrough);
  }

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
  std::printf("%lu files torn, %lu removals undone\n", happened.files_torn, happened.removals_undone);
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
  EXPECT_GT(happened.files_torn, seeds * 3 / 2);
  EXPECT_GT(happened.removals_undone, seeds / 3);
}

TEST(LogRuns, EveryStartFindsWhatWasLeftAndNoPowerCutTakesWhatWasDurable) {
  // The disk is a recorded one; a real one below it would only take time.
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
