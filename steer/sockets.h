// SPDX-License-Identifier: Apache-2.0
//
// The sockets that a supervisor makes for its group. An address that other processes hold is refused with their names:
// the kernel would put their sockets into the same reuseport group. Called at the start, and when slots are added.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

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
// A socket whose filter drops every packet silently.
absl::StatusOr<net::UniqueFd> MakeSink(const Settings& settings, Transport transport);

// systemd's descriptor store (FDSTORE=1 of sd_notify(3)), where systemd runs: what it holds outlives supervisor and
// workers.
void Store(Transport transport, int slot, int socket);
void Unstore(Transport transport, int slot);
// Of LISTEN_FDS (sd_listen_fds(3)), closed at an exec; none: they are another process's.
std::vector<int> HandedDescriptors();
// What it gave back to this start, by SO_COOKIE.
std::map<uint64_t, net::UniqueFd> TakeStored();
// Of a group that is not taken over: systemd gives its own up as well.
void DropStored(std::map<uint64_t, net::UniqueFd> stored);

// AlreadyExists when another process bound the address between the check and our bind, so that its program or socket is
// in the group. `socket` is the first one that was bound.
absl::Status CheckGroupIsOurs(const Settings& settings, Transport transport, const KernelGroup& group, int socket);

}  // namespace hedgerow::steer
