// SPDX-License-Identifier: Apache-2.0
//
// Linux shares the processors out between sessions first (autogroup, sched(7): since 2.6.38, and on in the
// kernels of Debian and Ubuntu), and a nice value counts among the processes of one session only. Whatever
// systemd starts is a session by itself, so `Nice=` in its unit alone changes nothing between it and the others.

#ifndef HEDGEROW_CLUSTER_NODE_SESSION_PRIORITY_H_
#define HEDGEROW_CLUSTER_NODE_SESSION_PRIORITY_H_

#include "absl/status/status.h"

namespace hedgerow::node {

// Gives the session that this process leads the process's own nice value. Does nothing in a session of somebody
// else's, such as a shell's, and where the kernel does not group sessions. Called once, before anything waits
// for this process: it may sleep for a second. PermissionDenied: a value below 0 takes RLIMIT_NICE (LimitNICE= of
// a unit) or CAP_SYS_NICE.
absl::Status GiveSessionOwnNice();

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_SESSION_PRIORITY_H_
