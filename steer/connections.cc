// SPDX-License-Identifier: Apache-2.0
#include "steer/connections.h"

#include <netinet/tcp.h>

#include "steer/sock_diag.h"

namespace hedgerow::steer {

absl::StatusOr<std::set<net::IpAddress>> OpenConnections(const Listen& listen) {
  constexpr uint32_t kOpen = 1u << TCP_SYN_RECV | 1u << TCP_ESTABLISHED | 1u << TCP_CLOSE_WAIT;
  constexpr uint32_t kHalfClosed = 1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2;  // of a process that still reads, if it has an inode
  const auto sockets = ListSockets(Transport::kTcp, listen.port, kOpen | kHalfClosed);
  if (!sockets.ok()) return sockets.status();
  std::set<net::IpAddress> peers;
  for (const InetSocket& each : *sockets) {
    const bool ours = listen.wildcard() || each.local == listen.address;
    const bool open = (1u << each.state & kOpen) != 0 || each.inode != 0;
    if (ours && open) peers.insert(each.peer);
  }
  return peers;
}

}  // namespace hedgerow::steer
