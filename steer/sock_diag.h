// SPDX-License-Identifier: Apache-2.0
//
// Which sockets a port has in this network namespace (sock_diag(7)), and which processes hold them. Used before the
// first bind, to name the processes that hold the address, and for the open connections of a group.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/ip_address.h"
#include "net/unique_fd.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"

namespace hedgerow::steer {

struct InetSocket {
  int family = 0;  // AF_INET or AF_INET6
  int state = 0;   // TCP_ESTABLISHED and so on; of UDP TCP_CLOSE where it is not connected
  net::IpAddress local{};
  net::IpAddress peer{};
  uint16_t local_port = 0;
  uint16_t peer_port = 0;
  uint32_t uid = 0;
  uint32_t ifindex = 0;  // SO_BINDTODEVICE; 0: none
  uint64_t cookie = 0;   // SO_COOKIE
  uint32_t inode = 0;    // 0: no process holds it (a connection that was not accepted)
  bool only_ipv6 = false;
};

// `local_port` 0: of all ports. `states`: bits of 1 << TCP_LISTEN and so on; ~0u: all.
absl::StatusOr<std::vector<InetSocket>> ListSockets(Transport transport, uint16_t local_port, uint32_t states);

// Those on which packets to `listen` arrive: unconnected or listening, on the same address (0.0.0.0 and [::] are the
// same, unless the socket is for IPv6 only) or, `wildcards`, on one that overlaps.
absl::StatusOr<std::vector<InetSocket>> ListHolders(Transport transport, const Listen& listen, bool wildcards);

// "pid 4711 (nfcapd), user root", "pid 12 (a) and pid 13 (b), user 33", "user 33, of a process that cannot be seen".
// Reads /proc.
std::string DescribeHolders(const std::vector<InetSocket>& sockets);

// The other ends of the connections of this network namespace to `listen`, accepted or not: those on which data may
// still come.
absl::StatusOr<std::set<net::IpAddress>> OpenConnections(const Listen& listen);

// Copies of the sockets with these cookies, by their numbers, from the processes that hold them.
absl::StatusOr<std::map<int, net::UniqueFd>> FetchSockets(Transport transport, const Listen& listen,
                                                          const std::map<uint64_t, int>& numbers);

// The inode of a socket of this process.
uint32_t InodeOf(int socket);

}  // namespace hedgerow::steer
