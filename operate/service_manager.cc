// SPDX-License-Identifier: Apache-2.0
#include "operate/service_manager.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace hedgerow::operate {

void NotifyServiceManager(absl::string_view state, int descriptor) {
  const char* path = getenv("NOTIFY_SOCKET");
  if (path == nullptr || path[0] == '\0') return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t bytes = strlen(path);
  if (bytes >= sizeof(address.sun_path)) return;
  memcpy(address.sun_path, path, bytes);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  iovec part{.iov_base = const_cast<char*>(state.data()), .iov_len = state.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address, message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes);
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control, message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  sendmsg(fd, &message, MSG_NOSIGNAL);
  close(fd);
}

}  // namespace hedgerow::operate
