// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/peer_listener.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hedgerow::transfer {
namespace {

constexpr int kBacklog = 128;
// While no more may be accepted, or accept(2) has an error that may last, such as no descriptor being left.
constexpr int kNap_ms = 50;
// How often connections that have not shown the key are looked at: gRPC may read from them meanwhile what it likes.
constexpr int kUnprovedLook_ms = 5;

uint64_t Now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

// "10.0.0.1:4802", "[fd00::1]:4802", or gRPC's "%5Bfd00::1%25eth0%5D:4802".
std::optional<TcpEnd> ParseEnd(absl::string_view text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port)) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "%5B") || absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "%5D") && !absl::ConsumeSuffix(&host, "]")) return std::nullopt;
    host = host.substr(0, host.find('%'));  // a link-local address's interface
  }
  const absl::StatusOr<net::IpAddress> address = net::IpAddress::Parse(host);
  if (!address.ok() || port < 0 || port > 65535) return std::nullopt;
  return TcpEnd{.address = *address, .port = static_cast<uint16_t>(port)};
}

std::optional<TcpEnd> FromSockaddr(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &from, sizeof(v4));
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&v4.sin_addr);
    return TcpEnd{.address = *net::IpAddress::FromBytes(std::span(bytes, 4)), .port = ntohs(v4.sin_port)};
  }
  if (from.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &from, sizeof(v6));
  return TcpEnd{.address = *net::IpAddress::FromBytes(std::span(v6.sin6_addr.s6_addr, 16)),
                .port = ntohs(v6.sin6_port)};
}

socklen_t ToSockaddr(const TcpEnd& end, sockaddr_storage& out) {
  const std::span<const uint8_t> bytes = end.address.wire();
  out = {};
  out.ss_family = static_cast<sa_family_t>(end.address.family());
  if (end.address.is_v4()) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(out);
    v4.sin_port = htons(end.port);
    std::memcpy(&v4.sin_addr, bytes.data(), bytes.size());
    return sizeof(v4);
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
  v6.sin6_port = htons(end.port);
  std::memcpy(&v6.sin6_addr, bytes.data(), bytes.size());
  return sizeof(v6);
}

}  // namespace

std::optional<TcpEnd> ParseCaller(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return std::nullopt;
  return ParseEnd(peer);
}

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Listen(const std::string& address) {
  const std::optional<TcpEnd> end = ParseEnd(address);
  if (!end.has_value()) return absl::InvalidArgumentError(absl::StrCat(address, " is no address to listen on"));
  const auto failed = [&address] {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, " (TCP), where snapshots come in: ", strerror(errno),
                     errno == EADDRINUSE      ? "; another program has it"
                     : errno == EADDRNOTAVAIL ? "; no interface of this host has the address (yet)"
                                              : ""));
  };
  net::UniqueFd listening(socket(end->address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening.valid()) return failed();
  // Connections of the process that was here before may linger for a minute.
  const int on = 1;
  (void)setsockopt(listening.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage bytes{};
  const socklen_t length = ToSockaddr(*end, bytes);
  if (bind(listening.get(), reinterpret_cast<const sockaddr*>(&bytes), length) != 0) return failed();
  if (listen(listening.get(), kBacklog) != 0) return failed();
  return std::unique_ptr<PeerListener>(new PeerListener(std::move(listening)));
}

uint16_t PeerListener::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return 0;
  const std::optional<TcpEnd> end = FromSockaddr(own);
  return end.has_value() ? end->port : 0;
}

void PeerListener::Stop() {
  stopping_ = true;
  shutdown(listening_.get(), SHUT_RDWR);  // ends the thread's wait
  if (thread_.joinable()) thread_.join();
}

void PeerListener::Accept(IsMember is_member, Hand hand, Refusal refusal) {
  is_member_ = std::move(is_member);
  hand_ = std::move(hand);
  refusal_ = std::move(refusal);
  thread_ = std::thread([this] { Run(); });
}

void PeerListener::Run() {
  while (!stopping_) {
    Wait(left_ > 0);
    Refill();  // after the wait, which may have been a long one
    if (left_ == 0 || stopping_) continue;
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    net::UniqueFd connection(
        accept4(listening_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      const std::optional<TcpEnd> end = FromSockaddr(from);
      if (!end.has_value()) continue;
      if (is_member_(end->address)) {
        Place(std::move(connection), *end);
      } else {
        Refuse(connection, *end);
      }
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      (void)poll(nullptr, 0, kNap_ms);
    }
  }
}

void PeerListener::Refill() {
  const uint64_t now_ms = Now_ms();
  if (now_ms < refilled_ms_ + 1000) return;
  refilled_ms_ = now_ms;
  left_ = kPerSecond;
  handed_from_.clear();
}

// For a connection, and for the end of one: gRPC, or the other side, has shut down both directions.
void PeerListener::Wait(bool accepts) {
  std::vector<pollfd> polled = {{.fd = accepts ? listening_.get() : -1, .events = POLLIN, .revents = 0}};
  int wait_ms = accepts ? -1 : kNap_ms;
  {
    absl::MutexLock lock(&mutex_);
    for (const Connection& connection : connections_) {
      polled.push_back({.fd = connection.kept.get(), .events = 0, .revents = 0});
      if (!connection.proved) wait_ms = kUnprovedLook_ms;
    }
  }
  const int ready = poll(polled.data(), polled.size(), wait_ms);
  absl::MutexLock lock(&mutex_);
  EndUnproved();
  if (ready <= 0) return;
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    const int kept = connection->kept.get();
    const auto ended = [kept](const pollfd& one) { return one.fd == kept && one.revents != 0; };
    if (std::any_of(polled.begin(), polled.end(), ended)) Forget(connection);
  }
}

void PeerListener::EndUnproved() {
  const uint64_t now_ms = Now_ms();
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (connection->proved || getsockopt(connection->kept.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    if (info.tcpi_bytes_received <= kUnprovedMax_bytes && now_ms < connection->since_ms + kUnproved_ms) continue;
    shutdown(connection->kept.get(), SHUT_RDWR);
    ++statistics_.unproved;
    connections_.erase(connection);
  }
}

void PeerListener::Forget(Connections::iterator connection) {
  if (!connection->called) ++statistics_.silent;
  connections_.erase(connection);
}

void PeerListener::Refuse(const net::UniqueFd& connection, const TcpEnd& from) {
  if (refusal_ != nullptr) {
    const std::string why = refusal_(from.address);
    (void)send(connection.get(), why.data(), why.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  absl::MutexLock lock(&mutex_);
  ++statistics_.strangers;
}

void PeerListener::Place(net::UniqueFd connection, const TcpEnd& from) {
  net::UniqueFd handed(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  {
    absl::MutexLock lock(&mutex_);
    uint64_t Statistics::*const closed = handed.valid() ? WhyClosed(from) : &Statistics::no_descriptor;
    if (closed != nullptr) {
      ++(statistics_.*closed);
      return;
    }
    connections_.push_back({.kept = std::move(connection), .from = from, .since_ms = Now_ms()});
  }
  --left_;
  handed_from_.push_back(from.address);
  const int on = 1;
  (void)setsockopt(handed.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  hand_(handed.Release());
}

// Null: it has a place.
uint64_t PeerListener::Statistics::*PeerListener::WhyClosed(const TcpEnd& from) {
  if (std::count(handed_from_.begin(), handed_from_.end(), from.address) >= kOfSourcePerSecond)
    return &Statistics::rate;
  return MakeRoom(from) ? nullptr : &Statistics::no_place;
}

bool PeerListener::MakeRoom(const TcpEnd& from) {
  const auto shares = [&](const Connection& other) { return other.from.address == from.address; };
  const auto shared = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), shares));
  const bool full = connections_.size() >= kConnectionsMax;
  if (shared < kConnectionsOfSource && !full) return true;
  const auto makes_room = [&](const Connection& other) {
    return !other.proved && (shared < kConnectionsOfSource || shares(other));
  };
  const auto oldest = std::find_if(connections_.begin(), connections_.end(), makes_room);
  if (oldest == connections_.end()) return false;
  shutdown(oldest->kept.get(), SHUT_RDWR);
  ++statistics_.displaced;
  connections_.erase(oldest);
  return true;
}

PeerListener::Connection* PeerListener::Find(const std::string& caller) {
  const std::optional<TcpEnd> end = ParseCaller(caller);
  const auto found = std::find_if(connections_.begin(), connections_.end(), [&end](const Connection& connection) {
    return end.has_value() && connection.from == *end;
  });
  return found == connections_.end() ? nullptr : &*found;
}

bool PeerListener::BeginCall(const std::string& caller) {
  absl::MutexLock lock(&mutex_);
  Connection* const connection = Find(caller);
  if (connection == nullptr) return true;  // it has ended already
  connection->called = true;
  if (++connection->calls <= kCallsPerConnection) return true;
  ++statistics_.calls;
  return false;
}

void PeerListener::EndCall(const std::string& caller) {
  absl::MutexLock lock(&mutex_);
  Connection* const connection = Find(caller);
  if (connection != nullptr && connection->calls > 0) --connection->calls;
}

void PeerListener::Proved(const std::string& caller) {
  absl::MutexLock lock(&mutex_);
  if (Connection* const connection = Find(caller); connection != nullptr) connection->proved = true;
}

PeerListener::Statistics PeerListener::statistics() const {
  absl::MutexLock lock(&mutex_);
  return statistics_;
}

}  // namespace hedgerow::transfer
