// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/probe.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/time/clock.h"
#include "net/netlink/in_place.h"
#include "net/steady_wait.h"
#include "net/unique_fd.h"

namespace hedgerow::cli {
namespace {

using Kind = ProbeResult::Kind;

constexpr int kTries = 2;
constexpr size_t kMaxDatagram = 65'536;

struct Open {
  net::UniqueFd socket;
  absl::Time sent;
};

// True where the target wants no preparation.
bool Prepare(const ProbeTarget& target, int socket) {
  if (target.prepare == nullptr) return true;
  const absl::StatusOr<net::SocketEnd> own = net::OwnEnd(socket);
  return own.ok() && target.prepare(own->address, own->port);
}

// An ICMP error reaches a socket that is not connected only where it asks for errors.
bool AskForErrors(const ProbeTarget& target, int socket) {
  const int on = 1;
  return target.address.is_v4() ? setsockopt(socket, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)) == 0
                                : setsockopt(socket, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on)) == 0;
}

Open Send(const ProbeTarget& target, bool from_anywhere, ProbeResult& result) {
  const net::SocketAddress address(target.address, target.port);
  Open open{.socket = net::UniqueFd(socket(target.address.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
            .sent = net::MonotonicNow()};
  const int fd = open.socket.get();
  // If this user may.
  if (setsockopt(fd, SOL_SOCKET, SO_MARK, &net::kOwnQuestionMark, sizeof(net::kOwnQuestionMark)) != 0 &&
      errno == EPERM && target.past_translation) {
    result = {.kind = Kind::kNotAsked};
    open.socket.Reset();
    return open;
  }
  const bool ready = open.socket.valid() &&
                     (from_anywhere ? AskForErrors(target, fd) : connect(fd, address.get(), address.bytes) == 0);
  if (ready && !Prepare(target, fd)) {
    open.socket.Reset();
    return open;
  }
  open.sent = net::MonotonicNow();
  const sockaddr* to = from_anywhere ? address.get() : nullptr;
  if (ready && sendto(fd, target.payload.data(), target.payload.size(), 0, to, from_anywhere ? address.bytes : 0) >= 0)
    return open;
  result = {.kind = Kind::kUnsent, .error = errno};
  open.socket.Reset();
  return open;
}

// Without effect where nothing has come.
void Receive(const ProbeTarget& target, Open& open, ProbeResult& result) {
  std::string buffer(kMaxDatagram, '\0');
  sockaddr_storage sender{};
  socklen_t size = sizeof(sender);
  const ssize_t bytes =
      recvfrom(open.socket.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&sender), &size);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  result.kind = bytes < 0 ? Kind::kError : Kind::kReply;
  result.error = bytes < 0 ? errno : 0;
  result.elapsed_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(net::MonotonicNow() - open.sent), 1);
  if (bytes >= 0) {
    result.reply = buffer.substr(0, static_cast<size_t>(bytes));
    const absl::StatusOr<net::SocketEnd> from = net::EndOf(sender);
    if (from.ok() && !(*from == net::SocketEnd{.address = target.address, .port = target.port})) {
      result.kind = Kind::kFromElsewhere;
      result.from = *from;
    }
  }
  open.socket.Reset();
}

void ProbeSilent(const std::vector<ProbeTarget>& targets, absl::Duration timeout, bool from_anywhere,
                 std::vector<ProbeResult>& results) {
  std::vector<Open> open(targets.size());
  for (size_t i = 0; i < targets.size(); ++i)
    if (results[i].kind == Kind::kSilent)
      open[i] = Send(targets[i], from_anywhere && targets[i].prepare == nullptr, results[i]);
  const absl::Time end = net::MonotonicNow() + timeout;
  while (net::MonotonicNow() < end) {
    std::vector<pollfd> wanted;
    for (const Open& each : open)
      wanted.push_back({.fd = each.socket.valid() ? each.socket.get() : -1, .events = POLLIN, .revents = 0});
    if (std::all_of(wanted.begin(), wanted.end(), [](const pollfd& each) { return each.fd < 0; })) return;
    if (poll(wanted.data(), wanted.size(),
             static_cast<int>(absl::ToInt64Milliseconds(end - net::MonotonicNow())) + 1) <= 0)
      continue;
    for (size_t i = 0; i < open.size(); ++i)
      if (wanted[i].revents != 0) Receive(targets[i], open[i], results[i]);
  }
}

}  // namespace

std::vector<ProbeResult> ProbeAll(const std::vector<ProbeTarget>& targets, absl::Duration timeout) {
  std::vector<ProbeResult> results(targets.size());
  for (int i = 0; i < kTries; ++i) ProbeSilent(targets, timeout, i > 0, results);
  return results;
}

}  // namespace hedgerow::cli
