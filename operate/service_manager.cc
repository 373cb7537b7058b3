// SPDX-License-Identifier: Apache-2.0
#include "operate/service_manager.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "net/pass_fd.h"

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
  const net::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes);
  if (fd.valid() && connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0)
    net::SendWithFd(fd.get(), state.data(), state.size(), descriptor);
}

}  // namespace hedgerow::operate
