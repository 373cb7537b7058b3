// SPDX-License-Identifier: Apache-2.0
#include "steer/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "net/socket_address.h"
#include "operate/service_manager.h"
#include "steer/sock_diag.h"

namespace hedgerow::steer {
namespace {

constexpr int kBacklog = INT_MAX;  // net.core.somaxconn bounds it

absl::Status Held(const Settings& settings, Transport transport, const std::vector<InetSocket>& holders) {
  return absl::AlreadyExistsError(
      absl::StrCat(settings.listen.ToString(), " (", NameOf(transport), ") is held by ", DescribeHolders(holders),
                   ": end that first, attach to it with `hedgerow steer adopt`, or choose another address"));
}

absl::Status BindError(const Settings& settings, Transport transport, int error) {
  const std::string what = absl::StrCat("bind ", settings.listen.ToString(), " (", NameOf(transport), ")");
  if (error == EADDRINUSE) {
    const auto holders = ListHolders(transport, settings.listen, true);
    if (holders.ok() && !holders->empty()) return Held(settings, transport, *holders);
  }
  if (error == EADDRNOTAVAIL) {
    return absl::NotFoundError(absl::StrCat(what, ": no interface of this host has the address (yet)"));
  }
  return absl::ErrnoToStatus(error, what);
}

absl::StatusOr<net::UniqueFd> Open(const Settings& settings, Transport transport) {
  const int type = transport == Transport::kUdp ? SOCK_DGRAM : SOCK_STREAM;
  // A socket belongs to its maker's fsuid, which is a thread's.
  const auto own_fsuid = static_cast<uid_t>(setfsuid(settings.socket_uid));
  // Without O_NONBLOCK: a daemon that needs it sets it, and a daemon written for blocking sockets would fail.
  net::UniqueFd fd(socket(settings.listen.address.family(), type | SOCK_CLOEXEC, 0));
  setfsuid(own_fsuid);
  const int on = 1, off = 0;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make a socket of ", NameOf(transport)));
  }
  // Connections of an earlier run may linger (TIME_WAIT).
  if (transport == Transport::kTcp) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!settings.listen.address.is_v4()) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (settings.receive_buffer > 0) {
    // The kernel doubles it, for its own bookkeeping (socket(7)).
    const int half = static_cast<int>(settings.receive_buffer / 2);
    if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &half, sizeof(half)) != 0) {
      return absl::ErrnoToStatus(errno, "--receive-buffer: set the socket's buffer");
    }
  }
  return fd;
}

absl::Status Bind(const Settings& settings, Transport transport, int fd) {
  const net::SocketAddress address(settings.listen.address, settings.listen.port);
  if (bind(fd, address.get(), address.bytes) != 0) return BindError(settings, transport, errno);
  if (transport == Transport::kTcp && listen(fd, kBacklog) != 0) return BindError(settings, transport, errno);
  return absl::OkStatus();
}

std::string NameInStore(Transport transport, int slot) {
  return absl::StrCat("\nFDNAME=", TransportText(transport), "-", slot);
}

}  // namespace

absl::Status RefuseHolders(const Settings& settings) {
  for (const Transport transport : settings.transports()) {
    const auto holders = ListHolders(transport, settings.listen, false);
    if (!holders.ok()) return holders.status();
    if (!holders->empty()) return Held(settings, transport, *holders);
  }
  return absl::OkStatus();
}

absl::StatusOr<net::UniqueFd> MakeSocket(const Settings& settings, Transport transport, KernelGroup& group,
                                         bool first) {
  auto fd = Open(settings, transport);
  if (!fd.ok()) return fd;
  if (first) {
    if (const absl::Status attached = group.Attach(transport, fd->get()); !attached.ok()) return attached;
  }
  if (const absl::Status bound = Bind(settings, transport, fd->get()); !bound.ok()) return bound;
  return fd;
}

void Store(Transport transport, int slot, int socket) {
  operate::NotifyServiceManager(absl::StrCat("FDSTORE=1\nFDPOLL=0", NameInStore(transport, slot)), socket);
}

void Unstore(Transport transport, int slot) {
  operate::NotifyServiceManager(absl::StrCat("FDSTOREREMOVE=1", NameInStore(transport, slot)));
}

std::vector<int> HandedDescriptors() {
  const char *pid_text = getenv("LISTEN_PID"), *count_text = getenv("LISTEN_FDS");
  int pid = 0, count = 0;
  std::vector<int> handed;
  if (pid_text == nullptr || count_text == nullptr || !absl::SimpleAtoi(pid_text, &pid) ||
      !absl::SimpleAtoi(count_text, &count) || pid != getpid())
    return handed;
  constexpr int kFirst = 3;  // SD_LISTEN_FDS_START
  for (int fd = kFirst; fd < kFirst + count; ++fd) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    handed.push_back(fd);
  }
  return handed;
}

std::map<uint64_t, net::UniqueFd> TakeStored() {
  std::map<uint64_t, net::UniqueFd> stored;
  for (const int fd : HandedDescriptors()) stored[CookieOf(fd)] = net::UniqueFd(fd);
  return stored;
}

void DropStored(std::map<uint64_t, net::UniqueFd> stored) {
  stored.clear();
  const char* names = getenv("LISTEN_FDNAMES");
  for (const absl::string_view name : absl::StrSplit(names == nullptr ? "" : names, ':', absl::SkipEmpty()))
    operate::NotifyServiceManager(absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name));
}

absl::Status CheckGroupIsOurs(const Settings& settings, Transport transport, const KernelGroup& group, int socket) {
  auto holders = ListHolders(transport, settings.listen, false);
  if (!holders.ok()) return holders.status();
  const uint32_t ours = InodeOf(socket);
  std::erase_if(*holders, [ours](const InetSocket& each) { return each.inode == ours; });
  if (!holders->empty()) return Held(settings, transport, *holders);
  const auto program = group.ProgramOf(socket);
  if (!program.ok()) return program.status();
  if (*program == group.OwnProgram(transport)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(settings.listen.ToString(), " (", NameOf(transport),
                                               ") is another program's group: its sockets have the program ",
                                               *program));
}

UdpSocketState UdpState(int socket) {
  const auto values = OptionOf<std::array<uint32_t, SK_MEMINFO_VARS>>(socket, SOL_SOCKET, SO_MEMINFO);
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

absl::Status ListenAgain(int socket) {
  return listen(socket, INT_MAX) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "listen again");
}

// Of a listening socket tcpi_unacked is its queue (tcp_get_info in the kernel).
uint32_t TcpBacklog(int listener) { return OptionOf<tcp_info>(listener, IPPROTO_TCP, TCP_INFO).tcpi_unacked; }

}  // namespace hedgerow::steer
