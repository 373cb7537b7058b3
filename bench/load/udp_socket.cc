// SPDX-License-Identifier: Apache-2.0
#include "bench/load/udp_socket.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "operate/clock.h"

namespace hedgerow::bench {

int64_t MonotonicNs() { return static_cast<int64_t>(operate::Monotonic_ns()); }

void AskForExactTimers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

bool Address::SameAs(const Address& other) const {
  if (storage.ss_family != other.storage.ss_family) return false;
  if (storage.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(storage);
    const auto& b = reinterpret_cast<const sockaddr_in&>(other.storage);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  const auto& a = reinterpret_cast<const sockaddr_in6&>(storage);
  const auto& b = reinterpret_cast<const sockaddr_in6&>(other.storage);
  return a.sin6_port == b.sin6_port && std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  const absl::Status bad =
      absl::InvalidArgumentError(absl::StrCat("'", text, "' is no address: expected 10.0.0.1:53 or [fd00::1]:53"));
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) return bad;
  std::string host(text.substr(0, colon));
  Address address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) != 1) return bad;
    address.bytes = sizeof in6;
    return address;
  }
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) != 1) return bad;
  address.bytes = sizeof in;
  return address;
}

struct Batch::Storage {
  std::array<std::array<uint8_t, kDatagramBytes>, kCapacity> bytes;
  std::array<Address, kCapacity> peers;
  std::array<iovec, kCapacity> vectors;
  std::array<mmsghdr, kCapacity> messages;
};

Batch::Batch() : storage_(std::make_unique<Storage>()) {
  for (size_t i = 0; i < kCapacity; ++i) {
    storage_->vectors[i] = {storage_->bytes[i].data(), kDatagramBytes};
    msghdr& header = storage_->messages[i].msg_hdr;
    header = {};
    header.msg_iov = &storage_->vectors[i];
    header.msg_iovlen = 1;
    header.msg_name = &storage_->peers[i].storage;
  }
}

Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

std::span<uint8_t> Batch::Bytes(size_t i) { return {storage_->bytes[i].data(), storage_->messages[i].msg_len}; }

const Address& Batch::Peer(size_t i) const { return storage_->peers[i]; }

std::span<uint8_t, Batch::kDatagramBytes> Batch::Next() { return storage_->bytes[size_]; }

void Batch::Commit(size_t bytes, const Address& peer) {
  storage_->messages[size_].msg_len = static_cast<unsigned>(bytes);
  storage_->peers[size_] = peer;
  ++size_;
}

absl::StatusOr<UdpSocket> UdpSocket::Make(int family) {
  const int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  // Room for a burst of some thousand small datagrams: what the buffer drops would be counted against the
  // system under test. The kernel caps this at net.core.rmem_max for ordinary users, so the forcing variant is
  // tried first.
  const int buffer_bytes = 8 << 20;
  for (const auto& [forced, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(fd, SOL_SOCKET, forced, &buffer_bytes, sizeof buffer_bytes) != 0) {
      setsockopt(fd, SOL_SOCKET, plain, &buffer_bytes, sizeof buffer_bytes);
    }
  }
  return UdpSocket(fd);
}

absl::StatusOr<UdpSocket> UdpSocket::Open(const Address& like) {
  Address any;
  any.storage.ss_family = like.storage.ss_family;
  any.bytes = like.bytes;
  return Listen(any);
}

absl::StatusOr<UdpSocket> UdpSocket::Listen(const Address& local) {
  absl::StatusOr<UdpSocket> made = Make(local.storage.ss_family);
  if (!made.ok()) return made;
  if (bind(made->fd(), local.get(), local.bytes) != 0) return absl::ErrnoToStatus(errno, "bind");
  return made;
}

absl::StatusOr<Address> UdpSocket::LocalAddress() const {
  Address local;
  local.bytes = sizeof local.storage;
  if (getsockname(fd(), local.get(), &local.bytes) != 0) return absl::ErrnoToStatus(errno, "getsockname");
  return local;
}

void UdpSocket::Receive(Batch& batch) {
  Batch::Storage& storage = *batch.storage_;
  for (size_t i = 0; i < Batch::kCapacity; ++i) {
    storage.vectors[i].iov_len = Batch::kDatagramBytes;
    storage.messages[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage);
  }
  int received = 0;
  do {
    received = recvmmsg(fd(), storage.messages.data(), Batch::kCapacity, 0, nullptr);
  } while (received < 0 && errno == EINTR);
  batch.size_ = received > 0 ? static_cast<size_t>(received) : 0;
  for (size_t i = 0; i < batch.size_; ++i) storage.peers[i].bytes = storage.messages[i].msg_hdr.msg_namelen;
}

size_t UdpSocket::Send(Batch& batch) {
  Batch::Storage& storage = *batch.storage_;
  for (size_t i = 0; i < batch.size_; ++i) {
    storage.vectors[i].iov_len = storage.messages[i].msg_len;
    storage.messages[i].msg_hdr.msg_namelen = storage.peers[i].bytes;
  }
  size_t taken = 0;
  size_t next = 0;
  while (next < batch.size_) {
    const int sent = sendmmsg(fd(), &storage.messages[next], static_cast<unsigned>(batch.size_ - next), 0);
    if (sent > 0) {
      taken += static_cast<size_t>(sent);
      next += static_cast<size_t>(sent);
    } else if (errno != EINTR) {
      ++next;  // This one cannot leave now; the others may.
    }
  }
  return taken;
}

bool UdpSocket::SendOne(std::span<const uint8_t> datagram, const Address& peer) {
  ssize_t sent = 0;
  do {
    sent = sendto(fd(), datagram.data(), datagram.size(), 0, peer.get(), peer.bytes);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(datagram.size());
}

void WaitReadable(std::span<const int> fds, int64_t due_ns, std::span<bool> readable) {
  constexpr size_t kMaxFds = 64;
  std::array<pollfd, kMaxFds> set;
  const size_t count = std::min(fds.size(), kMaxFds);
  for (size_t i = 0; i < count; ++i) set[i] = {fds[i], POLLIN, 0};
  const int64_t wait_ns = std::max<int64_t>(0, due_ns - MonotonicNs());
  const timespec timeout{static_cast<time_t>(wait_ns / 1'000'000'000), static_cast<long>(wait_ns % 1'000'000'000)};
  const int ready = ppoll(set.data(), count, &timeout, nullptr);
  for (size_t i = 0; i < count; ++i) readable[i] = ready > 0 && (set[i].revents & (POLLIN | POLLERR)) != 0;
}

}  // namespace hedgerow::bench
