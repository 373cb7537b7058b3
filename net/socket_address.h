// SPDX-License-Identifier: Apache-2.0
//
// An address and a port as the socket calls take them. Used where a program sends datagrams of its own: the daemon's
// self-test, `hedgerow check`.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "net/ip_address.h"

namespace hedgerow::net {

struct SocketAddress {
  SocketAddress(const IpAddress& address, uint16_t port);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

struct SocketEnd {
  IpAddress address;
  uint16_t port = 0;

  friend bool operator==(const SocketEnd&, const SocketEnd&) = default;
};

absl::StatusOr<SocketEnd> EndOf(const sockaddr_storage& storage);

// What a bound or connected IPv4 or IPv6 socket has as its own end (getsockname(2)).
absl::StatusOr<SocketEnd> OwnEnd(int socket);

}  // namespace hedgerow::net
