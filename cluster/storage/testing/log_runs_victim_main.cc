// SPDX-License-Identifier: Apache-2.0
//
// Runs one run of a log (log_runs.h) on a pretended disk (log_runs_disk.h): opens it, compares it with what
// it must hold, writes, and dies or ends as the run says. Started by log_runs_test. What it finds wrong it
// says on its standard error, and returns 1.

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/testing/log_runs.h"
#include "cluster/storage/testing/log_runs_disk.h"
#include "cluster/storage/snapshot_choice.h"
#include "cluster/storage/snapshot_folder.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  _exit(1);
}

// At an arbitrary moment: nothing handles SIGALRM, so it ends the process as SIGKILL would. 0: not.
void KillAfter(uint64_t us) {
  const itimerval timer = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = static_cast<suseconds_t>(us)}};
  if (setitimer(ITIMER_REAL, &timer, nullptr) != 0) Fail("cannot set the timer");
}

std::unique_ptr<DurableLog> Open(const StorageOptions& options) {
  absl::StatusOr<std::unique_ptr<DurableLog>> log = DurableLog::Open(options, kRunsIdentity);
  if (!log.ok()) Fail(log.status().ToString());
  return *std::move(log);
}

// As LogStorage does when it is opened, and its compactor after that.
SnapshotFolder GoOnFrom(const raft::RestoredState& expected, DurableLog& log, const StorageOptions& options) {
  raft::RestoredState found = log.TakeRestored();
  if (!Same(found, expected)) Fail("it holds " + Describe(found) + "; it must be " + Describe(expected));
  absl::StatusOr<SnapshotFolder> snapshots = SnapshotFolder::Open(options.path);
  if (!snapshots.ok()) Fail(snapshots.status().ToString());
  const absl::StatusOr<std::string> trouble =
      ChooseSnapshot(*snapshots, options.path, kRunsIdentity, ReadThrough, found);
  if (!trouble.ok()) Fail(trouble.status().ToString());
  if (!trouble->empty()) Fail(*trouble);
  if (found.snapshot.last != expected.snapshot.last) Fail("it does not go on from its newest snapshot");
  log.DropUpTo(found.start.index);
  return *std::move(snapshots);
}

// Tried again while the disk is full.
void Commit(DurableLog& log) {
  absl::Status status = log.Commit();
  while (absl::IsResourceExhausted(status)) status = log.Commit();
  if (!status.ok()) Fail(status.ToString());
}

void Live(RunTeller& teller, DurableLog& log, const SnapshotFolder& snapshots) {
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

void LiveAndEnd(const TestFolder& folder, uint64_t seed, size_t number, uint64_t killed_after_us) {
  const LogRuns runs = RunsOf(seed);
  const Run& run = runs.runs.at(number);
  const raft::RestoredState before = StateBefore(runs, number);
  const StorageOptions options = RunsOptions(folder, runs, run.sync, kBootBeforeCut);
  UsePretendedDisk(folder);
  KillAfter(killed_after_us);
  std::unique_ptr<DurableLog> log = Open(options);
  const bool was_to_be_killed = killed_after_us > 0;
  KillAfter(0);
  const SnapshotFolder snapshots = GoOnFrom(before, *log, options);
  if (was_to_be_killed) return;  // it was faster
  if (run.disk_fills_up) FillDisk(run.story_seed);
  RunTeller teller(run, before);
  Live(teller, *log, snapshots);
  FreeDisk();
  if (!run.killed) log.reset();
  LeaveDiskForCut();
  if (run.killed) raise(SIGKILL);
}

}  // namespace
}  // namespace hedgerow::storage

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: hr-log-runs-victim FOLDER SEED LIFE [KILLED_AFTER_US]\n");
    return 2;
  }
  const auto number = [&](int argument) { return argument < argc ? std::strtoull(argv[argument], nullptr, 10) : 0; };
  const hedgerow::storage::TestFolder folder(std::filesystem::canonical(argv[1]));
  hedgerow::storage::LiveAndEnd(folder, number(2), number(3), number(4));
  return 0;
}
