// SPDX-License-Identifier: Apache-2.0
#include "operate/listen_address.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "operate/http_access.h"
#include "operate/unix_socket.h"

namespace hedgerow::operate {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;  // 0: the text is no address with a port
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress ParseAddress(absl::string_view text) {
  SocketAddress result;
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return result;
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (bracketed != (host.find(':') != absl::string_view::npos)) return result;
  const std::string port(text.substr(colon + 1));
  // No host would be taken for this one.
  if (host.empty() || port.empty()) return result;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found) != 0) return result;
  memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

// A burst that does not fit is answered a second later, when its first packets are sent again.
constexpr int kBacklog = 256;

// Listening, or invalid with errno.
net::UniqueFd Listen(const SocketAddress& address) {
  net::UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Connections that we closed linger in the kernel for a minute; a program that starts again needs its port.
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), address.get(), address.bytes) != 0 || listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

std::string BoundAddress(const net::UniqueFd& fd, const std::string& listen) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  char port[NI_MAXSERV] = "";
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), bytes, nullptr, 0, port, sizeof(port), NI_NUMERICSERV) != 0) {
    return listen;
  }
  return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
}

absl::StatusOr<Listener> ListenOnPath(const std::string& listen, const std::string& path, const std::string& setting,
                                      const std::string& group) {
  const UnixSocketOptions options = {.what = "socket of the metrics",
                                     .hint = absl::StrCat("give this program its own ", setting),
                                     .group = group,
                                     .backlog = kBacklog};
  if (absl::Status free = PrepareUnixSocket(path, options); !free.ok()) return free;
  absl::StatusOr<net::UniqueFd> fd = ListenOnUnixSocket(path, options);
  if (!fd.ok()) return fd.status();
  if (fcntl(fd->get(), F_SETFL, O_NONBLOCK) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("listen on ", listen));
  return Listener{*std::move(fd), listen, path};
}

}  // namespace

bool IsListenText(const std::string& listen) { return !UnixPathOf(listen).empty() || ParseAddress(listen).bytes != 0; }

absl::StatusOr<Listener> ListenOn(const std::string& listen, const std::string& setting, const std::string& group) {
  if (const std::string path = UnixPathOf(listen); !path.empty()) return ListenOnPath(listen, path, setting, group);
  const SocketAddress address = ParseAddress(listen);
  if (address.bytes == 0)
    return absl::InvalidArgumentError(
        absl::StrCat(setting, ": got \"", listen, "\", expected ADDRESS:PORT or unix:/PATH"));
  net::UniqueFd fd = Listen(address);
  if (!fd.valid()) {
    const int error = errno;
    const std::string port = listen.substr(listen.rfind(':'));
    const std::string remedy = error == EADDRINUSE     ? absl::StrCat("`ss -ltnp 'sport = ", port,
                                                                      "'` names the process that has the port; or another ")
                               : error == EACCES       ? "a port from 1024 on: "
                               : error == EAFNOSUPPORT ? "this host has no IPv6; or an IPv4 address as "
                                                       : "the address is none of this host's; or another ";
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": ", strerror(error), " (", remedy, setting, ")"));
  }
  std::string bound = BoundAddress(fd, listen);
  return Listener{std::move(fd), std::move(bound)};
}

}  // namespace hedgerow::operate
