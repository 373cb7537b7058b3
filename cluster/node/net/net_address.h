// SPDX-License-Identifier: Apache-2.0
//
// An IP address and a UDP port, both families in one type: 16 bytes, IPv4 as ::ffff:a.b.c.d, as announcements
// carry it.

#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/socket.h>

#include "absl/status/statusor.h"

namespace hedgerow::node {

struct NetAddress {
  std::array<uint8_t, 16> bytes{};  // network order
  uint16_t port = 0;                // host order

  // "10.0.0.1:4801" or "[fd00::1]:4801". InvalidArgument names the text and what is wrong with it.
  static absl::StatusOr<NetAddress> Parse(std::string_view text);
  // From what the kernel filled in; family AF_INET or AF_INET6.
  static NetAddress FromSockaddr(const sockaddr_storage& address);

  bool is_v4() const;
  bool is_unspecified() const;
  // For a socket of the address's own family. Returns the length used.
  socklen_t ToSockaddr(sockaddr_storage& address) const;
  // For an IPv6 socket, which reaches IPv4 hosts under their mapped addresses.
  socklen_t ToSockaddr6(sockaddr_storage& address) const;
  std::string ToString() const;

  auto operator<=>(const NetAddress&) const = default;
};

}  // namespace hedgerow::node
