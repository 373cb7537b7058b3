// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/socket_address.h"
#include "net/unique_fd.h"
#include "absl/time/clock.h"

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

Open Send(const ProbeTarget& target, ProbeResult& result) {
  const net::SocketAddress address(target.address, target.port);
  Open open{.socket = net::UniqueFd(socket(target.address.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), .sent = absl::Now()};
  const bool connected = open.socket.valid() && connect(open.socket.get(), address.get(), address.bytes) == 0;
  if (connected && !Prepare(target, open.socket.get())) {
    open.socket.Reset();
    return open;
  }
  open.sent = absl::Now();
  if (connected && send(open.socket.get(), target.payload.data(), target.payload.size(), 0) >= 0) return open;
  result = {.kind = Kind::kUnsent, .error = errno};
  open.socket.Reset();
  return open;
}

// Without effect where nothing has come.
void Receive(Open& open, ProbeResult& result) {
  std::string buffer(kMaxDatagram, '\0');
  const ssize_t bytes = recv(open.socket.get(), buffer.data(), buffer.size(), 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  result.kind = bytes < 0 ? Kind::kError : Kind::kReply;
  result.error = bytes < 0 ? errno : 0;
  result.elapsed_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(absl::Now() - open.sent), 1);
  if (bytes >= 0) result.reply = buffer.substr(0, static_cast<size_t>(bytes));
  open.socket.Reset();
}

void ProbeSilent(const std::vector<ProbeTarget>& targets, absl::Duration timeout, std::vector<ProbeResult>& results) {
  std::vector<Open> open(targets.size());
  for (size_t i = 0; i < targets.size(); ++i)
    if (results[i].kind == Kind::kSilent) open[i] = Send(targets[i], results[i]);
  const absl::Time end = absl::Now() + timeout;
  while (absl::Now() < end) {
    std::vector<pollfd> wanted;
    for (const Open& each : open) wanted.push_back({.fd = each.socket.valid() ? each.socket.get() : -1, .events = POLLIN, .revents = 0});
    if (std::all_of(wanted.begin(), wanted.end(), [](const pollfd& each) { return each.fd < 0; })) return;
    if (poll(wanted.data(), wanted.size(), static_cast<int>(absl::ToInt64Milliseconds(end - absl::Now())) + 1) <= 0) continue;
    for (size_t i = 0; i < open.size(); ++i)
      if (wanted[i].revents != 0) Receive(open[i], results[i]);
  }
}

}  // namespace

std::vector<ProbeResult> ProbeAll(const std::vector<ProbeTarget>& targets, absl::Duration timeout) {
  std::vector<ProbeResult> results(targets.size());
  for (int i = 0; i < kTries; ++i) ProbeSilent(targets, timeout, results);
  return results;
}

}  // namespace hedgerow::cli
