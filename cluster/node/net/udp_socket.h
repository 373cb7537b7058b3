// SPDX-License-Identifier: Apache-2.0
//
// A UDP socket of the node's loop: never blocks, receives and sends many datagrams with one system call each.
// What the kernel will not take is dropped and counted, as the network would have; the protocols above expect
// it. Used by the peer transport, the front end and the announcer, on the loop's thread only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/node/net/arrival_clock.h"
#include "cluster/node/net/net_address.h"

namespace hedgerow::node {

struct Datagram {
  NetAddress from;
  NetAddress to;            // the local address that it was sent to; unspecified where the socket is bound to one
  std::string_view bytes;   // valid until the next Receive
  uint64_t arrived_ns = 0;  // CLOCK_MONOTONIC, from the kernel's time stamp: a node that stood still has old ones
};

// Where the peers' datagrams leave: a socket, or the simulator's network.
class DatagramSender {
 public:
  virtual ~DatagramSender() = default;
  // `mark` not 0: the packet's mark (SO_MARK), by which programs of ours recognise it.
  virtual void Send(const NetAddress& to, std::string bytes, uint32_t mark) = 0;
};

class UdpSocket final : public DatagramSender {
 public:
  struct Counters {
    uint64_t received = 0;
    uint64_t sent = 0;
    uint64_t send_failed = 0;       // the kernel would not take it
    uint64_t truncated = 0;         // longer than kDatagramMax_bytes: dropped
    uint64_t receive_overflow = 0;  // dropped by the kernel because the socket's buffer was full
  };

  static constexpr size_t kBatch = 64;
  static constexpr size_t kDatagramMax_bytes = 65'535;

  // Bound to `address`; `buffer_bytes` is asked for both ways.
  static absl::StatusOr<std::unique_ptr<UdpSocket>> Bind(const NetAddress& address, size_t buffer_bytes,
                                                         size_t datagram_max_bytes);
  ~UdpSocket() override;
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  int fd() const { return fd_; }
  absl::StatusOr<NetAddress> LocalAddress() const;

  // Up to kBatch datagrams; fewer than that means that the socket is empty for now.
  const std::vector<Datagram>& Receive(uint64_t now_ns);
  // In place of a Receive: a poll at that time has found nothing in it.
  void WasEmpty(uint64_t polled_ns) { arrivals_.Emptied(polled_ns); }

  // Leaves with the next Flush, or at once if kBatch wait. A mark needs CAP_NET_ADMIN.
  void Send(const NetAddress& to, std::string bytes, uint32_t mark = 0) override;
  // From `from`, a local address (its port does not matter): a client that asked one address of several takes no
  // answer from another. Unspecified: from the address that routing chooses.
  void SendFrom(const NetAddress& from, const NetAddress& to, std::string bytes);
  void Flush();

  const Counters& counters() const { return counters_; }

 private:
  struct Queued {
    NetAddress to;
    std::string bytes;
    uint32_t mark;
    NetAddress from;
  };
  void Queue(Queued queued);
  struct Buffers;

  UdpSocket(int fd, bool ipv6, size_t datagram_max_bytes);

  int fd_;
  bool ipv6_;
  std::unique_ptr<Buffers> buffers_;
  ArrivalClock arrivals_;
  std::vector<Datagram> received_;
  std::vector<Queued> queue_;
  Counters counters_;
};

}  // namespace hedgerow::node
