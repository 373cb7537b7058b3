// SPDX-License-Identifier: Apache-2.0
//
// LAEDGE's rule for requests that are done twice (Primorac, Argyraki, Bugnion, NSDI 2021, as NetClone describes
// it): a coordinator before the servers knows what each of them still owes. With two idle servers a request
// goes to both and the first answer to the client; with one it goes there; with none it waits, and leaves when
// a server is idle again. A server is idle while it has fewer requests than workers, so that nothing ever waits
// at a server. What is sent goes through two functions, no socket is known here. Used by hr-coordinator.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bench/load/udp_socket.h"

namespace hedgerow::bench {

class Coordinator {
 public:
  struct Options {
    size_t servers = 0;
    size_t workers = 1;                 // Of each server.
    size_t most_queued = 200'000;       // Beyond, a request is dropped and counted.
    int64_t forget_ns = 2'000'000'000;  // A copy without an answer for so long is lost, and its worker free.
  };
  struct Counters {
    uint64_t requests = 0;
    uint64_t copies = 0;  // Sent to servers.
    uint64_t queued = 0;
    uint64_t losers = 0;  // Second answers, which end here.
    uint64_t forgotten = 0;
    uint64_t refused = 0;  // Too short, its id in use, or the queue full.
    uint64_t stray = 0;    // Answers to nothing.
  };
  using ToServer = std::function<void(size_t server, std::span<const uint8_t>)>;
  using ToClient = std::function<void(const Address&, std::span<const uint8_t>)>;

  Coordinator(Options options, ToServer to_server, ToClient to_client);

  // A request is known by its first 4 bytes, which differ among all clients.
  void OnRequest(std::span<const uint8_t> request, const Address& client, int64_t now_ns);
  void OnAnswer(size_t server, std::span<const uint8_t> answer, int64_t now_ns);
  void Forget(int64_t now_ns);

  size_t queued() const { return queue_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  struct Request {
    uint64_t serial = 0;
    uint8_t outstanding = 0;  // One bit for each server.
    bool answered = false;
    Address client;
  };
  struct Queued {
    Address client;
    std::vector<uint8_t> request;
  };
  struct Sent {
    int64_t forget_ns;
    uint32_t id;
    uint64_t serial;
    size_t server;
  };

  std::optional<size_t> MostIdle(std::optional<size_t> except);
  void Dispatch(std::span<const uint8_t> request, const Address& client, size_t server, int64_t now_ns);
  void SendTo(size_t server, Request& request, std::span<const uint8_t> bytes, int64_t now_ns);
  void SendQueued(int64_t now_ns);

  Options options_;
  ToServer to_server_;
  ToClient to_client_;
  absl::flat_hash_map<uint32_t, Request> requests_;  // By id, as long as a copy is out.
  uint64_t next_serial_ = 0;
  std::vector<size_t> outstanding_;  // By server.
  std::deque<Queued> queue_;
  std::deque<Sent> sent_;
  size_t turn_ = 0;
  Counters counters_;
};

}  // namespace hedgerow::bench
