// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/queue_server.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "bench/serve/server_loop.h"

namespace hedgerow::bench {
namespace {

// At 100,000 requests/s and a stall of 400 ms 40,000 wait at once.
constexpr size_t kMaxHeld = 200'000;
constexpr size_t kIdBytes = 4;

}  // namespace

absl::StatusOr<QueueServer> QueueServer::Listen(const std::string& addresses, int32_t workers, int32_t load_offset,
                                                std::function<int64_t(uint32_t, int64_t)> service_ns,
                                                std::function<double()> factor) {
  absl::StatusOr<WorkerQueue> queue = WorkerQueue::Make(kMaxHeld, workers, load_offset);
  if (!queue.ok()) return queue.status();
  absl::StatusOr<std::vector<UdpSocket>> sockets = ListenOnAll(addresses);
  if (!sockets.ok()) return sockets.status();
  return QueueServer(*std::move(sockets), *std::move(queue), std::move(service_ns), std::move(factor));
}

QueueServer::QueueServer(std::vector<UdpSocket> sockets, WorkerQueue queue,
                         std::function<int64_t(uint32_t, int64_t)> service_ns, std::function<double()> factor)
    : sockets_(std::move(sockets)),
      queue_(std::move(queue)),
      service_ns_(std::move(service_ns)),
      factor_(std::move(factor)) {}

void QueueServer::Run(double seconds, const std::function<std::string()>& more) {
  StopOnSignals();
  AskForExactTimers();
  std::vector<int> fds;
  for (const UdpSocket& socket : sockets_) fds.push_back(socket.fd());
  std::array<bool, UINT8_MAX + 1> readable{};
  SayReady();
  const int64_t end_ns = MonotonicNs() + static_cast<int64_t>(seconds * 1e9);
  while (!MustStop(end_ns)) {
    WaitReadable(fds, std::min(queue_.NextDueNs(), end_ns), readable);
    // Requests first: their service time counts from here. Answers next, so that a busy socket cannot hold them
    // up.
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (readable[i]) TakeRequests(static_cast<uint8_t>(i));
    }
    SendAnswers();
  }
  absl::PrintF("{\"requests\":%d,\"refused\":%d,\"served_ns\":%d%s}\n", requests_, refused_, queue_.served_ns(),
               more());
}

void QueueServer::TakeRequests(uint8_t socket) {
  sockets_[socket].Receive(received_);
  if (!service_ns_) {
    // A received batch has peers and lengths where a batch to be sent has them.
    requests_ += received_.size();
    refused_ += received_.size() - sockets_[socket].Send(received_);
    return;
  }
  const int64_t now_ns = MonotonicNs();
  queue_.SetFactor(factor_());
  for (size_t i = 0; i < received_.size(); ++i) {
    const auto bytes = received_.Bytes(i);
    ++requests_;
    if (bytes.size() < kIdBytes) {
      ++refused_;
      continue;
    }
    const uint32_t id = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
    if (!queue_.Push(now_ns, service_ns_(id, now_ns), bytes, received_.Peer(i), socket)) ++refused_;
  }
}

void QueueServer::SendAnswers() {
  const int64_t now_ns = MonotonicNs();
  queue_.SetFactor(factor_());
  for (size_t answered = 0; answered < Batch::kCapacity; ++answered) {
    const DelayQueue::Held* held = queue_.PopDue(now_ns);
    if (held == nullptr) break;
    Batch& answers = answers_[held->socket];
    std::copy_n(held->data, held->bytes, answers.Next().begin());
    answers.Commit(held->bytes, held->peer);
  }
  for (size_t i = 0; i < sockets_.size(); ++i) {
    if (answers_[i].size() > 0) sockets_[i].Send(answers_[i]);
    answers_[i].clear();
  }
}

}  // namespace hedgerow::bench
