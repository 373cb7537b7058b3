// SPDX-License-Identifier: Apache-2.0
//
// A descriptor that goes with a message over a unix socket (SCM_RIGHTS, unix(7)). Each returns as send(2) and recv(2)
// do.
#pragma once

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

#include "net/unique_fd.h"

namespace hedgerow::net {

// `fd`: -1: none goes with it.
inline ssize_t SendWithFd(int socket, const void* data, size_t bytes, int fd) {
  iovec part{.iov_base = const_cast<void*>(data), .iov_len = bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control, message.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  ssize_t sent = 0;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

inline ssize_t ReceiveWithFd(int socket, void* data, size_t bytes, UniqueFd& fd) {
  iovec part{.iov_base = data, .iov_len = bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const cmsghdr* const rights = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  int came = -1;
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) memcpy(&came, CMSG_DATA(rights), sizeof(int));
  fd.Reset(came);
  return got;
}

}  // namespace hedgerow::net
