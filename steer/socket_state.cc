// SPDX-License-Identifier: Apache-2.0
#include "steer/socket_state.h"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace hedgerow::steer {

UdpSocketState UdpState(int socket) {
  uint32_t values[SK_MEMINFO_VARS] = {};
  socklen_t bytes = sizeof(values);
  if (getsockopt(socket, SOL_SOCKET, SO_MEMINFO, values, &bytes) != 0) return {};
  return {values[SK_MEMINFO_RMEM_ALLOC], values[SK_MEMINFO_DROPS]};
}

bool IsSpoilt(int udp_socket) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof(peer);
  if (getpeername(udp_socket, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0) return true;
  pollfd shut{.fd = udp_socket, .events = POLLRDHUP, .revents = 0};
  return poll(&shut, 1, 0) > 0 && (shut.revents & POLLRDHUP) != 0;
}

uint32_t OwnerOf(int socket) {
  struct stat info {};
  return fstat(socket, &info) == 0 ? info.st_uid : geteuid();
}

int ReceiveBuffer(int socket) {
  int size = 0;
  socklen_t bytes = sizeof(size);
  return getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, &bytes) == 0 ? size : 0;
}

uint64_t CookieOf(int socket) {
  uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  return getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

bool IsListening(int socket) {
  int listening = 0;
  socklen_t bytes = sizeof(listening);
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) == 0 && listening != 0;
}

absl::Status ListenAgain(int socket) {
  return listen(socket, INT_MAX) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "listen again");
}

uint32_t TcpBacklog(int listener) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  return info.tcpi_unacked;  // of a listening socket: its queue (tcp_get_info in the kernel)
}

}  // namespace hedgerow::steer
