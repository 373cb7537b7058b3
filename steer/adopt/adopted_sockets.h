// SPDX-License-Identifier: Apache-2.0
//
// The sockets of a running daemon whose processes set SO_REUSEPORT themselves: found by sock_diag and /proc, and
// paired, UDP with TCP, where one process or one epoll set has both. `hedgerow steer adopt` puts them into a group's
// slots (adopted_slots.h).
//
// No descriptor of a socket is kept here: with a second holder the socket would not close when its worker ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "steer/api/record.pb.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"
#include "steer/process.h"
#include "steer/slot.h"

namespace hedgerow::steer {

struct SocketSearch {
  std::vector<pid_t> pids{};           // and all that descend from them
  Listen listen{};                     // as it was bound: 0.0.0.0 and :: are addresses like others
  std::set<Transport> transports{};    // these must be found; empty: those that are there
  std::map<uint64_t, size_t> slots{};  // of the sockets, by their cookies, that have one: they need no pairing
  // Without pids, those among all holders of these sockets, oldest first; by default all where they are of one program.
  std::function<absl::StatusOr<std::vector<pid_t>>(const std::vector<Process>&)> choose{};
};

struct AdoptedWorker {
  Process process{};
  std::optional<AdoptedSocket> udp{}, tcp{};
  bool certain = true;  // false: several processes hold its sockets, and none alone polls them; the oldest one is named
};

struct AdoptedWorkers {
  std::vector<AdoptedWorker> workers{};  // in the order in which they started
  std::vector<Process> others{};         // that hold sockets of this address and port, and were not named
};

// Refuses, by name: a pid that is gone, holds no such socket or is in another network namespace; sockets without
// SO_REUSEPORT, of different users or bound to different devices; MPTCP; a worker that lacks the transport that others
// have; sockets of both transports of which it is not known which belong together; more than HR_STEER_SLOTS. Without
// pids, NotFound: no process has the sockets; PermissionDenied: the processes cannot be seen; FailedPrecondition:
// programs of different paths have them.
absl::StatusOr<AdoptedWorkers> FindWorkers(SocketSearch search);

// FailedPrecondition: processes that were not named hold sockets of the group, which would receive nothing.
absl::Status RefuseOthers(const AdoptedWorkers& found);

// A descriptor of the socket for as long as it is needed. NotFound: it has closed, or the descriptor is another one
// now.
absl::StatusOr<net::UniqueFd> OpenSocket(const AdoptedSocket& socket);

// The cookies of the sockets of the address and port. Cheap: no process is looked at.
absl::StatusOr<std::set<uint64_t>> CookiesOf(const SocketSearch& search);

// A daemon's own classic filters, by transport (KernelGroup::ClassicFilterOf).
using Filters = std::map<Transport, std::vector<uint32_t>>;
Filters FiltersOf(const v1::Record& record);

// Detaches the group's programs from the sockets of the address and port, and puts the daemon's filters back.
// `group` null: of an earlier version, whose programs cannot be told from others.
void GiveBack(const KernelGroup* group, const SocketSearch& search, Filters filters);

}  // namespace hedgerow::steer
