// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/visits.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>

#include "bench/steer/message.h"
#include "bench/steer/source.h"

namespace hedgerow::bench {
namespace {

class Visits {
 public:
  explicit Visits(const VisitOptions& options) : options_(options), visits_(options.visits) {}

  void Run(const std::function<bool()>& stop) {
    const int64_t began_ns = MonotonicNs();
    const uint32_t at_once = options_.at_once == 0 ? options_.visits : options_.at_once;
    uint32_t next = 0;
    while ((next < options_.visits || under_way_ > 0) && !stop()) {
      // Answers are looked at now and then while a burst goes out, as the first ones come before the last visit begins.
      for (uint32_t begun = 0; next < options_.visits && under_way_ < at_once && begun < 64; ++begun) Begin(next++);
      Wait(next < options_.visits && under_way_ < at_once ? 0 : 10);
      EndLate();
    }
    result_.took_ns = MonotonicNs() - began_ns;
  }

  VisitResult Take() { return std::move(result_); }

 private:
  struct One {
    net::UniqueFd fd{};
    bool sent = false;
    int64_t began_ns = 0;
  };

  void Begin(uint32_t number) {
    One& one = visits_[number];
    one.began_ns = MonotonicNs();
    ++under_way_;
    by_age_.push_back(number);
    const absl::StatusOr<Address> source = SourceAddress(options_.first_source, number % options_.sources);
    absl::StatusOr<net::UniqueFd> fd =
        source.ok() ? ConnectFrom(*source, options_.target, options_.tcp) : source.status();
    if (!fd.ok()) {
      End(one, result_.not_sent);
      return;
    }
    one.fd = *std::move(fd);
    Watch(epoll_.get(), EPOLL_CTL_ADD, one.fd.get(), options_.tcp ? EPOLLOUT : EPOLLIN, number);
    if (!options_.tcp) Send(one, number);
  }

  void Send(One& one, uint32_t number) {
    SteerMessage message;
    message.id = number;
    message.source = number % options_.sources;
    message.bytes = options_.bytes;
    message.flags = SteerMessage::kAnswerWanted;
    std::array<uint8_t, kSteerMessageMost> bytes{};
    std::memcpy(bytes.data(), &message, sizeof message);
    one.sent = true;
    if (options_.tcp) result_.connect_ns.Record(static_cast<uint64_t>(MonotonicNs() - one.began_ns));
    if (send(one.fd.get(), bytes.data(), options_.bytes, MSG_DONTWAIT | MSG_NOSIGNAL) != options_.bytes) {
      EndBy(one, errno);
      return;
    }
    Watch(epoll_.get(), EPOLL_CTL_MOD, one.fd.get(), EPOLLIN, number);
  }

  void Receive(One& one) {
    SteerMessage answer;
    const ssize_t bytes = recv(one.fd.get(), &answer, sizeof answer, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes < 0) return EndBy(one, errno);
    if (bytes != static_cast<ssize_t>(sizeof answer)) return End(one, result_.reset);  // closed without an answer
    result_.answer_ns.Record(static_cast<uint64_t>(MonotonicNs() - one.began_ns));
    End(one, result_.answered);
  }

  void EndBy(One& one, int error) {
    End(one, error == ECONNREFUSED ? result_.refused : error == ETIMEDOUT ? result_.timed_out : result_.reset);
  }

  void End(One& one, uint64_t& counted) {
    ++counted;
    one.fd.Reset();
    --under_way_;
  }

  void Wait(int timeout_ms) {
    std::array<epoll_event, 256> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      const auto number = static_cast<uint32_t>(event.data.u64);
      One& one = visits_[number];
      if (!one.fd.valid()) continue;
      if (!one.sent && (event.events & (EPOLLERR | EPOLLHUP)) != 0) {
        int error = 0;
        socklen_t bytes = sizeof error;
        getsockopt(one.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
        EndBy(one, error);
      } else if (!one.sent) {
        Send(one, number);
      } else {
        Receive(one);
      }
    }
  }

  void EndLate() {
    const int64_t now_ns = MonotonicNs();
    while (!by_age_.empty()) {
      One& oldest = visits_[by_age_.front()];
      if (oldest.fd.valid() && now_ns - oldest.began_ns < options_.timeout_ns) return;
      if (oldest.fd.valid()) End(oldest, result_.timed_out);
      by_age_.pop_front();
    }
  }

  const VisitOptions& options_;
  net::UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<One> visits_;
  std::deque<uint32_t> by_age_;
  uint32_t under_way_ = 0;
  VisitResult result_;
};

}  // namespace

absl::StatusOr<VisitResult> Visit(const VisitOptions& options, const std::function<bool()>& stop) {
  if (options.visits == 0 || options.visits > 10'000'000 || options.sources == 0) {
    return absl::InvalidArgumentError("visits are 1 to 10 million, and there is at least one source");
  }
  if (options.bytes < sizeof(SteerMessage) || options.bytes > kSteerMessageMost) {
    return absl::InvalidArgumentError("a message has 24 to 1400 bytes");
  }
  const uint32_t at_once = options.at_once == 0 ? options.visits : options.at_once;
  if (absl::Status status = RaiseFileLimit(uint64_t{at_once} + 64); !status.ok()) return status;
  Visits visits(options);
  visits.Run(stop);
  return visits.Take();
}

}  // namespace hedgerow::bench
