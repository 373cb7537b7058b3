// SPDX-License-Identifier: Apache-2.0
//
// The sockets of one port in the calling thread's network namespace, as the kernel's sock_diag lists them (sock_diag(7)). One dump
// costs less than a look at the descriptors of every process, so `hedgerow steer adopt` asks several times a second.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "net/ip_address.h"

namespace hedgerow::net {

struct PortSocket {
  int family = 0;  // AF_INET or AF_INET6: of the socket, which may be IPv6 and have a mapped IPv4 address
  IpAddress local{};
  uint8_t state = 0;        // TCP_LISTEN, TCP_ESTABLISHED, ...; of UDP TCP_CLOSE (7), and TCP_ESTABLISHED where it is connected
  uint32_t ifindex = 0;     // SO_BINDTODEVICE; 0: none
  uint32_t uid = 0;         // of its owner
  uint32_t inode = 0;       // as in the link of /proc/PID/fd; 0: no process has it
  uint64_t cookie = 0;      // SO_COOKIE
};

// `protocol`: IPPROTO_UDP or IPPROTO_TCP; of TCP those in one of `states` (bits, 1 << TCP_LISTEN). Both families.
absl::StatusOr<std::vector<PortSocket>> SocketsOfPort(int protocol, uint16_t port, uint32_t states);

}  // namespace hedgerow::net
