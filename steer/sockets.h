// SPDX-License-Identifier: Apache-2.0
//
// The sockets that a supervisor makes for its group. An address that other processes hold is refused with their names:
// the kernel would put their sockets into the same reuseport group. Called at the start, and when slots are added.
#pragma once

#include <sys/socket.h>

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

// What the kernel says of a slot's sockets.

// Of getsockopt(2); all zero where the socket has no such option.
template <typename T>
T OptionOf(int socket, int level, int name) {
  T value{};
  socklen_t bytes = sizeof(value);
  return getsockopt(socket, level, name, &value, &bytes) == 0 ? value : T{};
}

struct UdpSocketState {
  uint64_t queued_bytes = 0;  // of memory, the datagrams' with the kernel's own bookkeeping
  uint64_t dropped = 0;       // by the full queue
};
UdpSocketState UdpState(int socket);

// Of no use to a next worker: connected to one peer, by which it may have left its reuseport group for good, or shut
// down.
bool IsSpoilt(int udp_socket);

// The user that the socket belongs to.
uint32_t OwnerOf(int socket);
// SO_COOKIE; 0: it cannot be read.
inline uint64_t CookieOf(int socket) { return OptionOf<uint64_t>(socket, SOL_SOCKET, SO_COOKIE); }
inline bool IsListening(int socket) { return OptionOf<int>(socket, SOL_SOCKET, SO_ACCEPTCONN) != 0; }
// Of a socket that was shut down, and keeps its address.
absl::Status ListenAgain(int socket);

// Connections that wait to be accepted.
uint32_t TcpBacklog(int listener);

}  // namespace hedgerow::steer
