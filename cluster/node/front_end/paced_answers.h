// SPDX-License-Identifier: Apache-2.0
//
// Answers of more datagrams than a client's socket has room for. A socket with the kernel's default holds
// 212,992 bytes of packets (net.core.rmem_default), an answer of memcached's up to a megabyte: sent at once,
// its end is dropped, and so it is each time the client asks again. So the first datagrams leave at once and
// the others in slices, as the loop turns. A client has one queue, however many such answers it has asked for.
// Memory is bounded, of a client and in all: what would pass a bound is not queued at all, and its client is
// told so. Owned by the memcached front end, on the loop's thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/node/net/net_address.h"

namespace hedgerow::node {

class PacedAnswers {
 public:
  // Of 1,400 bytes, with what the kernel counts for each where a driver gives it a page: 48 * 4,352 < 212,992. An item
  // of the largest value that one request can store (60 KiB) has 45.
  static constexpr size_t kAtOnce = 48;
  // 11 MB/s: a client that does not read for 5 ms loses nothing even right after the first ones.
  static constexpr size_t kSlice = 8;
  static constexpr uint64_t kPause_ns = 1'000'000;
  static constexpr size_t kClientMax_bytes = size_t{4} << 20;
  static constexpr size_t kMax_bytes = size_t{64} << 20;
  // Of all clients in one turn of the loop, which has other work. Clients that are passed over come first in the next.
  static constexpr size_t kTurnMax = 256;

  struct Counters {
    uint64_t paced = 0;    // answers
    uint64_t refused = 0;  // answers that passed a bound
  };
  // From a local address, to a client.
  using Send = std::function<void(const NetAddress& from, const NetAddress& to, std::string datagram)>;

  // The datagrams of one answer. False: they pass a bound, and none is sent.
  bool Answer(uint64_t now_ns, const NetAddress& from, const NetAddress& to, std::vector<std::string> datagrams,
              const Send& send);
  void SendDue(uint64_t now_ns, const Send& send);
  // When SendDue has something to do; UINT64_MAX: never.
  uint64_t next_ns() const { return queues_.empty() ? UINT64_MAX : queues_.front().next_ns; }

  size_t queued_bytes() const { return queued_bytes_; }
  const Counters& counters() const { return counters_; }

 private:
  using Ends = std::pair<NetAddress, NetAddress>;  // from, to
  struct Queue {
    Ends ends;
    std::deque<std::string> datagrams;
    size_t bytes = 0;
    uint64_t next_ns = 0;
  };

  std::list<Queue> queues_;  // by next_ns
  std::map<Ends, std::list<Queue>::iterator> by_ends_;
  size_t queued_bytes_ = 0;
  Counters counters_;
};

}  // namespace hedgerow::node
