// SPDX-License-Identifier: Apache-2.0
//
// Datagrams waiting for the time at which they are to be sent: the service time of the echo server and the
// wire delay of the relay. Thousands wait at once without a thread each. Bounded: a full queue refuses, and the
// owner counts it. Time comes in as an argument, which is how the tests drive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/load/udp_socket.h"

namespace hedgerow::bench {

class DelayQueue {
 public:
  struct Held {
    Address peer;
    uint8_t socket = 0;  // The place of the server's socket that it came by, and leaves by.
    uint16_t bytes = 0;
    uint8_t data[Batch::kDatagramBytes];

    std::span<const uint8_t> datagram() const { return {data, bytes}; }
  };

  explicit DelayQueue(size_t capacity) : capacity_(capacity) {}

  // False when `capacity` datagrams are waiting already.
  bool Push(int64_t due_ns, std::span<const uint8_t> datagram, const Address& peer, uint8_t socket = 0);

  // The next datagram due at `now_ns` or nullptr; those of one due time leave in the order they came. It stays
  // valid until the next Push().
  const Held* PopDue(int64_t now_ns);

  // When the next one is due; INT64_MAX when none waits.
  int64_t NextDueNs() const;
  size_t size() const { return heap_.size(); }

 private:
  struct Entry {
    int64_t due_ns;
    uint64_t order;
    uint32_t slot;
    bool operator<(const Entry& other) const {  // For a heap whose front is the earliest.
      return due_ns != other.due_ns ? due_ns > other.due_ns : order > other.order;
    }
  };

  size_t capacity_;
  uint64_t next_order_ = 0;
  std::vector<Entry> heap_;
  std::vector<std::unique_ptr<Held>> slots_;  // Grows to what was ever needed at once.
  std::vector<uint32_t> free_;
};

}  // namespace hedgerow::bench
