// SPDX-License-Identifier: Apache-2.0
//
// The loop of the servers that answer a request after a time of its own: an echo by way of a WorkerQueue, over
// one or several sockets. What a request takes is a function of its id. Used by the echo server.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/worker_queue.h"

namespace hedgerow::bench {

class QueueServer {
 public:
  // `service_ns(id, now_ns)`; nothing: whole batches are answered at once. `factor()`: how many times slower everything
  // is now.
  static absl::StatusOr<QueueServer> Listen(
      const std::string& addresses, int32_t workers, int32_t load_offset,
      std::function<int64_t(uint32_t, int64_t)> service_ns, std::function<double()> factor = [] { return 1.0; });

  // Says "ready", and serves until the time has passed or a signal asks to stop; then prints its counters with
  // `more`, a JSON object's members that begin with a comma.
  void Run(double seconds, const std::function<std::string()>& more);

 private:
  QueueServer(std::vector<UdpSocket> sockets, WorkerQueue queue, std::function<int64_t(uint32_t, int64_t)> service_ns,
              std::function<double()> factor);
  void TakeRequests(uint8_t socket);
  void SendAnswers();

  std::vector<UdpSocket> sockets_;
  WorkerQueue queue_;
  std::function<int64_t(uint32_t, int64_t)> service_ns_;
  std::function<double()> factor_;
  Batch received_;
  std::vector<Batch> answers_{sockets_.size()};  // by socket
  uint64_t requests_ = 0;
  uint64_t refused_ = 0;  // too short, too many held, or not taken by the kernel
};

}  // namespace hedgerow::bench
