// SPDX-License-Identifier: Apache-2.0
//
// The signals of a daemon, one list for all of them (docs/cli.md, "Signals"). SIGTERM and SIGINT end it, SIGHUP
// has it read again what it can, and SIGUSR1 and SIGUSR2, whose default is the process's end, do nothing. A
// pipe without a reader and a file that may not grow (SIGPIPE, SIGXFSZ) are errors of the call.
#pragma once

#include <signal.h>

#include <optional>

#include "net/unique_fd.h"

namespace hedgerow::operate {

// Before any thread starts, so that every thread inherits the mask and the signals arrive at the descriptor
// alone (signalfd(2), O_NONBLOCK). A SIGHUP that was ignored when the program started stays ignored: nohup(1).
// Invalid, with errno: no descriptor is left.
net::UniqueFd HearSignals();

// Takes SIGHUP out of what a program is about to block, where it was ignored when the program started: a signal that is
// blocked is queued all the same.
void LeaveNohup(sigset_t& signals);

// The next SIGTERM, SIGINT or SIGHUP; nothing when none is there. The others are logged.
std::optional<int> NextSignal(int fd);

}  // namespace hedgerow::operate
