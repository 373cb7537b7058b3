// SPDX-License-Identifier: Apache-2.0
//
// The sockets of a group that the supervisor makes. Refuses, by name, an address that others hold: on it the kernel would mix their
// sockets with the group's. Called at the start, and when slots are added.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// AlreadyExists, with pids and users, when packets to `listen` arrive on sockets of others.
absl::Status RefuseHolders(const Settings& settings);

// A socket that is bound, and listens (TCP). The group's `first` one of a transport has the program before it is bound.
absl::StatusOr<net::UniqueFd> MakeSocket(const Settings& settings, Transport transport, KernelGroup& group, bool first);
// One that drops all that comes, in silence.
absl::StatusOr<net::UniqueFd> MakeSink(const Settings& settings, Transport transport);

// AlreadyExists when another process bound the address between the check and our bind, so that its program or socket is in the
// group. `socket` is the first one that was bound.
absl::Status CheckGroupIsOurs(const Settings& settings, Transport transport, const KernelGroup& group, int socket);

}  // namespace hedgerow::steer
