// SPDX-License-Identifier: Apache-2.0
//
// hr-no_ipv6.so: a kernel that was booted with ipv6.disable=1, for a program of the lab: it makes no socket of IPv6,
// and its rtnetlink knows no such family. A request of IPv6 is sent as one of a family that has no handlers, so that
// the answer is the kernel's own.
#include <dlfcn.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace {

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int Option(int fd, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
}

}  // namespace

extern "C" int socket(int domain, int type, int protocol) noexcept {
  if (domain != AF_INET6) return Next<int (*)(int, int, int)>("socket")(domain, type, protocol);
  errno = EAFNOSUPPORT;
  return -1;
}

extern "C" ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  const auto* const text = static_cast<const char*>(data);
  std::vector<char> request(text, text + bytes);
  // The family is the first byte behind the header in all of its messages.
  if (bytes > NLMSG_HDRLEN && Option(fd, SO_DOMAIN) == AF_NETLINK && Option(fd, SO_PROTOCOL) == NETLINK_ROUTE &&
      request[NLMSG_HDRLEN] == AF_INET6)
    request[NLMSG_HDRLEN] = AF_CAN;
  return Next<ssize_t (*)(int, const void*, size_t, int)>("send")(fd, request.data(), bytes, flags);
}
