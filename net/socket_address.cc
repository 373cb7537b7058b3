// SPDX-License-Identifier: Apache-2.0
#include "net/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

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

}  // namespace hedgerow::net
