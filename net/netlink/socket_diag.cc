// SPDX-License-Identifier: Apache-2.0
#include "net/netlink/socket_diag.h"

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include <span>

#include "net/netlink/netlink.h"

namespace hedgerow::net {
namespace {

PortSocket FromMessage(const inet_diag_msg& message) {
  PortSocket socket{.family = message.idiag_family,
                    .state = message.idiag_state,
                    .ifindex = message.id.idiag_if,
                    .uid = message.idiag_uid,
                    .inode = message.idiag_inode,
                    .cookie = static_cast<uint64_t>(message.id.idiag_cookie[1]) << 32 | message.id.idiag_cookie[0]};
  const size_t bytes = message.idiag_family == AF_INET ? 4 : 16;
  const auto local = IpAddress::FromBytes(std::span(reinterpret_cast<const uint8_t*>(message.id.idiag_src), bytes));
  if (local.ok()) socket.local = *local;
  return socket;
}

}  // namespace

absl::StatusOr<std::vector<PortSocket>> SocketsOfPort(int protocol, uint16_t port, uint32_t states) {
  auto netlink = netlink::Socket::Open({}, NETLINK_SOCK_DIAG);
  if (!netlink.ok()) return netlink.status();
  std::vector<PortSocket> sockets;
  for (const int family : {AF_INET, AF_INET6}) {
    inet_diag_req_v2 wanted{};
    wanted.sdiag_family = static_cast<uint8_t>(family);
    wanted.sdiag_protocol = static_cast<uint8_t>(protocol);
    wanted.idiag_states = states;
    wanted.id.idiag_sport = htons(port);
    netlink::Request request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, wanted);
    const absl::Status status = netlink->Ask(request, "list sockets", [&](const netlink::Message& message) {
      const auto header = message.Header<inet_diag_msg>();
      if (message.type == SOCK_DIAG_BY_FAMILY) sockets.push_back(FromMessage(header));
    });
    if (!status.ok()) return status;
  }
  return sockets;
}

}  // namespace hedgerow::net
