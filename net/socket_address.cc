// SPDX-License-Identifier: Apache-2.0
#include "net/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <span>

namespace hedgerow::net {

SocketAddress::SocketAddress(const IpAddress& address, uint16_t port) {
  if (address.is_v4()) {
    auto& in = reinterpret_cast<sockaddr_in&>(storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    memcpy(&in.sin_addr, address.wire().data(), sizeof(in.sin_addr));
    bytes = sizeof(in);
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(storage);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    memcpy(&in.sin6_addr, address.wire().data(), sizeof(in.sin6_addr));
    bytes = sizeof(in);
  }
}

absl::StatusOr<SocketEnd> OwnEnd(int socket) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0)
    return absl::ErrnoToStatus(errno, "getsockname");
  return EndOf(storage);
}

absl::StatusOr<SocketEnd> EndOf(const sockaddr_storage& storage) {
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6)
    return absl::InvalidArgumentError("neither IPv4 nor IPv6");
  const bool v4 = storage.ss_family == AF_INET;
  const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
  const std::span<const uint8_t> wire = v4 ? std::span(reinterpret_cast<const uint8_t*>(&in.sin_addr), 4)
                                           : std::span(reinterpret_cast<const uint8_t*>(&in6.sin6_addr), 16);
  const absl::StatusOr<IpAddress> address = IpAddress::FromBytes(wire);
  if (!address.ok()) return address.status();
  return SocketEnd{.address = *address, .port = ntohs(v4 ? in.sin_port : in6.sin6_port)};
}

}  // namespace hedgerow::net
