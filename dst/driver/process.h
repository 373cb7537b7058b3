// SPDX-License-Identifier: Apache-2.0
//
// Programs in the machine's hosts, which are network namespaces: started, waited for. One thread; no shell in
// between, since each process that an emulated processor starts costs some ten milliseconds.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow::dst {

struct Command {
  std::string host{};  // a name below /run/netns; empty: the machine itself
  std::vector<std::string> argv{};
  std::vector<std::string> environment{};  // "NAME=value", beside what there is
  std::string output{};                    // file that both its outputs are appended to
  std::string errors{};                    // stderr's own; empty: with `output`
  int input_fd = -1;                       // -1: what the starter has
  int output_fd = -1;                      // its standard output, instead of `output`
};

// `at_ns`: CLOCK_MONOTONIC.
void SleepUntil(uint64_t at_ns);

absl::StatusOr<pid_t> Start(const Command& command);

// How it ended, in words: "exit 1", "signal 9".
std::string Ending(int status);

// Waits for the end of a child; DeadlineExceeded kills it. The status of waitpid.
absl::StatusOr<int> WaitFor(pid_t pid, uint64_t within_ns);

// Start, WaitFor; an error unless it ends with 0.
absl::Status RunToEnd(const Command& command, uint64_t within_ns);

}  // namespace hedgerow::dst
