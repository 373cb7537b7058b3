// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/worker_queue.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::bench {

absl::StatusOr<WorkerQueue> WorkerQueue::Make(size_t capacity, int32_t workers, int32_t load_offset) {
  constexpr int32_t kMostWorkers = 100'000;
  if (workers < 0 || workers > kMostWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are 0 (one for each request) to ", kMostWorkers, " workers, not ", workers));
  }
  if (load_offset >= static_cast<int32_t>(Batch::kDatagramBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("no answer has a byte ", load_offset, " for the load"));
  }
  if (load_offset >= 0 && workers == 0) {
    return absl::InvalidArgumentError("a server without a number of workers has no load to report");
  }
  return WorkerQueue(capacity, static_cast<size_t>(workers), load_offset);
}

WorkerQueue::WorkerQueue(size_t capacity, size_t workers, int32_t load_offset)
    : answers_(capacity), workers_(workers), load_offset_(load_offset) {
  for (size_t i = 0; i < workers; ++i) free_at_ns_.push(0);
}

bool WorkerQueue::Push(int64_t now_ns, int64_t service_ns, std::span<const uint8_t> request,
                       const Address& peer, uint8_t socket) {
  int64_t begin_ns = now_ns;
  if (workers_ > 0) begin_ns = std::max(now_ns, free_at_ns_.top());
  if (!answers_.Push(begin_ns + service_ns, request, peer, socket)) return false;
  served_ns_ += service_ns;
  if (workers_ > 0) {
    free_at_ns_.pop();
    free_at_ns_.push(begin_ns + service_ns);
  }
  return true;
}

const DelayQueue::Held* WorkerQueue::PopDue(int64_t now_ns) {
  const DelayQueue::Held* held = answers_.PopDue(now_ns);
  if (held == nullptr || load_offset_ < 0 || load_offset_ >= held->bytes) return held;
  marked_.peer = held->peer;
  marked_.socket = held->socket;
  marked_.bytes = held->bytes;
  std::copy_n(held->data, held->bytes, marked_.data);
  marked_.data[load_offset_] = Load();
  return &marked_;
}

uint8_t WorkerQueue::Load() const {
  if (workers_ == 0) return 0;
  return static_cast<uint8_t>(std::min<size_t>(255, answers_.size() * 255 / workers_));
}

}  // namespace hedgerow::bench
