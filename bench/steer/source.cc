// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/source.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace hedgerow::bench {
namespace {

// Where the last four bytes of the address stand.
uint8_t* LastBytes(Address& address) {
  if (address.storage.ss_family == AF_INET6)
    return reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr.s6_addr + 12;
  return reinterpret_cast<uint8_t*>(&reinterpret_cast<sockaddr_in&>(address.storage).sin_addr);
}

}  // namespace

absl::StatusOr<Address> SourceAddress(const Address& first, uint32_t number) {
  Address source = first;
  uint32_t last;
  std::memcpy(&last, LastBytes(source), sizeof last);
  const uint64_t sum = uint64_t{ntohl(last)} + number;
  if (sum > UINT32_MAX)
    return absl::OutOfRangeError(absl::StrCat("there is no address ", number, " behind the first source's"));
  last = htonl(static_cast<uint32_t>(sum));
  std::memcpy(LastBytes(source), &last, sizeof last);
  if (source.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(source.storage).sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in&>(source.storage).sin_port = 0;
  }
  return source;
}

absl::StatusOr<net::UniqueFd> ConnectFrom(const Address& source, const Address& target, bool tcp) {
  net::UniqueFd socket_fd(
      socket(target.storage.ss_family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = socket_fd.get();
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const int one = 1;
  setsockopt(fd, SOL_IP, IP_FREEBIND, &one, sizeof one);  // no interface has an IPv6 address of a routed network
  // The port is chosen by connect(2), which knows both ends: addresses do not run out of ports.
  if (tcp) setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const bool bound = bind(fd, source.get(), source.bytes) == 0;
  if (!bound || (connect(fd, target.get(), target.bytes) != 0 && errno != EINPROGRESS)) {
    return absl::ErrnoToStatus(errno,
                               bound ? "connect" : "bind to a source's address (is there a local route for it?)");
  }
  return socket_fd;
}

bool Watch(int epoll, int operation, int fd, uint32_t events, uint64_t data) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(epoll, operation, fd, &event) == 0;
}

absl::Status RaiseFileLimit(uint64_t wanted) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  const rlimit more = {std::max<rlim_t>(limit.rlim_cur, wanted), std::max<rlim_t>(limit.rlim_max, wanted)};
  if (setrlimit(RLIMIT_NOFILE, &more) == 0) return absl::OkStatus();
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max >= wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(wanted, " descriptors are needed, ", limit.rlim_max, " are allowed: raise `ulimit -n`"));
}

}  // namespace hedgerow::bench
