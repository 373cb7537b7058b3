// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of a slot's sockets, for reports. Pure but for getsockopt(2).
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hedgerow::steer {

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
// SO_RCVBUF; 0: it cannot be read.
int ReceiveBuffer(int socket);
// SO_COOKIE; 0: it cannot be read.
uint64_t CookieOf(int socket);

bool IsListening(int socket);
// Of a socket that was shut down, and keeps its address.
absl::Status ListenAgain(int socket);

// Connections that wait to be accepted.
uint32_t TcpBacklog(int listener);

}  // namespace hedgerow::steer
