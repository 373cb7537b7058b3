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
    : capacity_(capacity), answers_(capacity), workers_(workers), load_offset_(load_offset) {}

bool WorkerQueue::Serve(int64_t now_ns, int64_t service_ns, std::span<const uint8_t> request, const Address& peer,
                        uint8_t socket) {
  const auto takes_ns = static_cast<int64_t>(factor_ * static_cast<double>(service_ns));
  if (!answers_.Push(now_ns + takes_ns, request, peer, socket)) return false;
  served_ns_ += takes_ns;
  return true;
}

bool WorkerQueue::Push(int64_t now_ns, int64_t service_ns, std::span<const uint8_t> request, const Address& peer,
                       uint8_t socket) {
  if (workers_ == 0 || answers_.size() < workers_) return Serve(now_ns, service_ns, request, peer, socket);
  if (answers_.size() + waiting_.size() >= capacity_ || request.size() > Batch::kDatagramBytes) return false;
  Waiting& waiting = waiting_.emplace_back();
  waiting.service_ns = service_ns;
  waiting.request.peer = peer;
  waiting.request.socket = socket;
  waiting.request.bytes = static_cast<uint16_t>(request.size());
  std::copy(request.begin(), request.end(), waiting.request.data);
  return true;
}

const DelayQueue::Held* WorkerQueue::PopDue(int64_t now_ns) {
  const int64_t due_ns = answers_.NextDueNs();
  const DelayQueue::Held* held = answers_.PopDue(now_ns);
  if (held == nullptr || workers_ == 0) return held;
  answer_.peer = held->peer;
  answer_.socket = held->socket;
  answer_.bytes = held->bytes;
  std::copy_n(held->data, held->bytes, answer_.data);
  if (!waiting_.empty()) {  // its worker has been free since then
    const Waiting& next = waiting_.front();
    Serve(due_ns, next.service_ns, next.request.datagram(), next.request.peer, next.request.socket);
    waiting_.pop_front();
  }
  if (load_offset_ >= 0 && load_offset_ < answer_.bytes) answer_.data[load_offset_] = Load();
  return &answer_;
}

uint8_t WorkerQueue::Load() const {
  if (workers_ == 0) return 0;
  return static_cast<uint8_t>(std::min<size_t>(255, (answers_.size() + waiting_.size()) * 255 / workers_));
}

}  // namespace hedgerow::bench
