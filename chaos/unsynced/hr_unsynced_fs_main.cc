// SPDX-License-Identifier: Apache-2.0
//
// hr-unsynced-fs: a file system that forgets, on command, what was not synced. Started by the chaos runner and
// by tests, one for each node; README.md says what it promises.

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "chaos/unsynced/control.h"
#include "chaos/unsynced/fuse_operations.h"

ABSL_FLAG(std::string, names, "strict",
          "strict: only a folder's own sync covers its names; journal: every sync covers every name");
ABSL_FLAG(std::string, ignore_sync, "",
          "a planted fault: syncs of files and folders whose name matches this pattern succeed and do nothing");

namespace {

// Every file of the tree is open.
void AllowManyFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

// In every thread, so that one of them can wait for them.
void BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  (void)pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  (void)signal(SIGPIPE, SIG_IGN);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hedgerow::unsynced;  // NOLINT(google-build-using-namespace)
  absl::SetProgramUsageMessage(
      "hr-unsynced-fs [flags] BACKING MOUNT\n\nIt says 'ready' once it is mounted; then write 'cut', 'cut "
      "SEED', 'slow MS', 'full' or 'well' to it. It unmounts when its input ends.");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const std::string names = absl::GetFlag(FLAGS_names);
  if (arguments.size() != 3 || (names != "strict" && names != "journal")) {
    std::fprintf(stderr, "usage: hr-unsynced-fs [--names=strict|journal] [--ignore_sync=PATTERN] BACKING MOUNT\n");
    return 2;
  }
  const std::string mount_point = arguments[2];
  DiskOptions options = {.backing = arguments[1],
                         .names = names == "strict" ? Names::kStrict : Names::kJournal,
                         .ignore_sync = std::nullopt};
  if (const std::string pattern = absl::GetFlag(FLAGS_ignore_sync); !pattern.empty()) {
    options.ignore_sync = pattern;
  }
  AllowManyFiles();
  BlockSignals();
  Disk disk(options);
  const bool served = Serve(disk, mount_point, [&] {
    std::printf("ready\n");
    std::fflush(stdout);
    std::thread([&disk, mount_point] {
      ObeyUntilTheEnd(disk, STDIN_FILENO, STDOUT_FILENO);
      // A program that still has a file open there gets errors from now on, as from a disk that was pulled out.
      (void)umount2(mount_point.c_str(), MNT_DETACH);
      _exit(0);
    }).detach();
  });
  // Another program has unmounted it, or it never was mounted: the other thread must not outlive the disk.
  _exit(served ? 0 : 1);
}
