// SPDX-License-Identifier: Apache-2.0
//
// A non-blocking UDP socket that receives and sends in batches, its address type, and the monotonic clock.
// Shared by the load engine and the servers of bench/serve, so that both sides pay the same system calls per
// packet.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::bench {

int64_t MonotonicNs();

// Lets poll time-outs be exact: by default the kernel may delay a thread's timers by 50 us to batch wake-ups,
// which would be charged to every user-space hedge.
void AskForExactTimers();

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool SameAs(const Address& other) const;
};

// "10.77.0.11:53" or "[fd77::a]:53".
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// Datagrams of one receive or send call, in fixed buffers made once.
class Batch {
 public:
  static constexpr size_t kCapacity = 64;
  static constexpr size_t kDatagramBytes = 2048;

  Batch();
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();

  size_t size() const { return size_; }
  void clear() { size_ = 0; }
  bool full() const { return size_ == kCapacity; }

  std::span<uint8_t> Bytes(size_t i);  // The received or filled part of datagram i.
  const Address& Peer(size_t i) const;

  // The next free buffer; Commit() makes its first `bytes` bytes a datagram for `peer`.
  std::span<uint8_t, kDatagramBytes> Next();
  void Commit(size_t bytes, const Address& peer);

 private:
  friend class UdpSocket;
  struct Storage;
  std::unique_ptr<Storage> storage_;
  size_t size_ = 0;
};

class UdpSocket {
 public:
  // A socket for talking to peers of `like`'s family, bound to an ephemeral port.
  static absl::StatusOr<UdpSocket> Open(const Address& like);
  static absl::StatusOr<UdpSocket> Listen(const Address& local);

  int fd() const { return fd_.get(); }
  absl::StatusOr<Address> LocalAddress() const;

  // Fills `batch` with what is waiting; its size says how many.
  void Receive(Batch& batch);

  // Sends the whole batch and returns how many datagrams the kernel took (a full send buffer or an unreachable
  // peer makes it fewer; nothing is tried again).
  size_t Send(Batch& batch);
  bool SendOne(std::span<const uint8_t> datagram, const Address& peer);

 private:
  explicit UdpSocket(int fd) : fd_(fd) {}
  static absl::StatusOr<UdpSocket> Make(int family);
  net::UniqueFd fd_;
};

// Waits until one of `fds` is readable or the monotonic clock reads `due_ns`. `readable[i]` says which.
void WaitReadable(std::span<const int> fds, int64_t due_ns, std::span<bool> readable);

}  // namespace hedgerow::bench
