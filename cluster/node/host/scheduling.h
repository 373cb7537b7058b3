// SPDX-License-Identifier: Apache-2.0
//
// What a node asks of the kernel's scheduler, so that its loop does not wait long where others keep the
// processors busy: a leader that waits seems dead.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hedgerow::node {

// Linux shares the processors out between sessions first (autogroup, sched(7): since 2.6.38, and on in the
// kernels of Debian and Ubuntu), and a nice value counts among the processes of one session only. Whatever
// systemd starts is a session by itself, so `Nice=` in its unit alone changes nothing between it and the others.
//
// Gives the session that this process leads the process's own nice value. Does nothing in a session that
// another process leads, such as a shell's, and where the kernel does not group sessions. Called once, before
// anything waits for this process: it may sleep for a second. PermissionDenied: a value below 0 takes
// RLIMIT_NICE (LimitNICE= of a unit) or CAP_SYS_NICE.
absl::Status GiveSessionOwnNice();

// Half a millisecond. The kernel's own are 1.4 ms on two processors, 2.8 on eight and more (Linux 6.18).
inline constexpr uint64_t kSlice_ns = 500'000;

// Asks that the calling thread, and what it starts later, runs for a short slice at a time: a thread with a
// shorter slice runs earlier, and gets no more of the processor for it (EEVDF, Linux 6.12). Does nothing on
// older kernels, and where the thread's policy is not the usual one.
absl::Status ShortenSlices();

}  // namespace hedgerow::node
