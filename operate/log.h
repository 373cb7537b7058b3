// SPDX-License-Identifier: Apache-2.0
//
// The log of every daemon: one line per event on stderr, with the time in UTC and its level. Under `up` stderr
// is the instance's log file; under systemd it is the journal, which has the time, and takes the level as a
// prefix (sd-daemon(3)). Events are rare by design (starts, losses, repairs); nothing is logged per packet.
//
// A line never holds up its caller. stderr may be a pipe that no process reads, a terminal that is stopped, or
// a file on a disk that hangs. O_NONBLOCK is no way out: it belongs to the open file, which other processes
// share. So a thread writes, and what finds no room in its queue is lost, and counted.

#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hedgerow {

// Any thread. `level` is "info", "warning" or "error".
void LogLine(absl::string_view level, absl::string_view text);

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  LogLine("info", absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  LogLine("warning", absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  LogLine("error", absl::StrCat(parts...));
}

namespace operate {

// What waits for the writing thread at most.
inline constexpr size_t kLogBytes = 256 * 1024;

// From here on a thread writes the log. A program calls it once, when it has taken from itself the rights that
// it does not need, which a thread keeps. Before it, and in programs that never call it, a line waits for a
// tenth of a second at most, and is lost then. At the process's end what waits has one second.
void StartLogThread();

// Lines that were not written: stderr was full for long, or cannot be written. Any thread.
uint64_t LostLogLines();

// First thing in every main(). A program that is started without a stdin, stdout or stderr would give the number to the
// next file or socket that it opens, and write its log there. And a library that gets no descriptor, thread or memory
// ends the process (gRPC and std::thread do): with exit code 1 and a line that says what to do, then. A broken
// invariant, and a SIGABRT of another process, still dump core.
void BeginProgram();

// Ends the process so: the system has refused (errno) what the caller cannot do without.
[[noreturn]] void EndForWantOf(absl::string_view what);

// From now on the process ends within a few seconds, with exit code 1 and a line. For when all that must be kept is
// kept, and threads of libraries remain, whose connections may never become writable again.
void BoundTheEnd();

}  // namespace operate
}  // namespace hedgerow
