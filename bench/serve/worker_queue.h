// SPDX-License-Identifier: Apache-2.0
//
// A server with a fixed number of workers and a queue before them: a request waits for the first worker that is
// free, which then sleeps for its service time. No worker needs a thread: what is being served is a DelayQueue of
// answers, and an answer that leaves frees its worker for the request that has waited longest. With 0 workers each
// request is served at once. Used by the bench servers.
#pragma once

#include <cstdint>
#include <cstddef>
#include <deque>
#include <span>

#include "absl/status/statusor.h"
#include "bench/serve/delay_queue.h"

namespace hedgerow::bench {

class WorkerQueue {
 public:
  // `load_offset`: where an answer that is long enough reports the load; a negative one, nowhere.
  static absl::StatusOr<WorkerQueue> Make(size_t capacity, int32_t workers, int32_t load_offset);

  // False when `capacity` requests are being served or wait.
  bool Push(int64_t now_ns, int64_t service_ns, std::span<const uint8_t> request, const Address& peer,
            uint8_t socket = 0);

  // The next answer that is ready at `now_ns` or nullptr, with the load without it written into it. Valid until
  // the next Push().
  const DelayQueue::Held* PopDue(int64_t now_ns);

  // Requests that a worker takes from now on take so many times as long. Those that wait are slow or fast by when
  // they are taken, as with a server whose disk is slow for a time.
  void SetFactor(double factor) { factor_ = factor; }

  int64_t NextDueNs() const { return answers_.NextDueNs(); }

  // Requests in service and waiting, as a share of the workers, in 1/255; 255 where more wait.
  uint8_t Load() const;

  // Of all requests that were taken so far: what the workers were taken for.
  int64_t served_ns() const { return served_ns_; }

 private:
  struct Waiting {
    int64_t service_ns;
    DelayQueue::Held request;
  };

  WorkerQueue(size_t capacity, size_t workers, int32_t load_offset);
  bool Serve(int64_t now_ns, int64_t service_ns, std::span<const uint8_t> request, const Address& peer, uint8_t socket);

  size_t capacity_;
  DelayQueue answers_;  // what is being served
  std::deque<Waiting> waiting_;
  size_t workers_;
  int32_t load_offset_;
  double factor_ = 1;
  DelayQueue::Held answer_;
  int64_t served_ns_ = 0;
};

}  // namespace hedgerow::bench
