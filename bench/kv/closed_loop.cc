// SPDX-License-Identifier: Apache-2.0
#include "bench/kv/closed_loop.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cluster/client/hkv_client.h"
#include "operate/clock.h"

namespace hedgerow::bench {
namespace {

// How often a paced load looks for what has fallen due. A timer for each request would cost the load, and the
// machine it shares with the store, more than the request.
constexpr uint64_t kTick_ns = 100'000;
constexpr uint64_t kTimer = ~uint64_t{0};  // among the clients' indices

class Loop {
 public:
  Loop(const ClosedLoopOptions& options) : options_(options), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Loop() {
    if (timer_ >= 0) close(timer_);
    close(epoll_);
  }

  absl::Status Connect();
  absl::StatusOr<ClosedLoopReport> Run(void (*on_phase)(const char*));

 private:
  struct Caller {
    std::unique_ptr<client::HkvClient> client;
    uint64_t next_key = 0;
    uint64_t due_ns = 0;  // paced: when what is under way fell due
  };

  bool paced() const { return options_.rate_per_s > 0; }
  absl::Status Begin();
  absl::Status StartTimer();
  absl::Status SendDue();
  uint64_t DueBy(uint64_t now_ns) const;
  absl::Status Send(size_t index);
  absl::Status Collect(size_t index);
  absl::Status PollUntil(uint64_t end_ns);

  const ClosedLoopOptions& options_;
  int epoll_;
  int timer_ = -1;
  uint64_t started_ns_ = 0;
  uint64_t taken_ = 0;  // paced: how many of those that fall due have left
  std::vector<size_t> free_;
  std::vector<Caller> callers_;
  uint64_t outstanding_ = 0;
  uint64_t begin_ns_ = UINT64_MAX;  // of the measured part
  bool stopping_ = false;
  ClosedLoopReport report_;
};

absl::Status Loop::Connect() {
  if (epoll_ < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (size_t i = 0; i < options_.clients; ++i) {
    absl::StatusOr<std::unique_ptr<client::HkvClient>> client =
        client::HkvClient::Connect(options_.server, /*outstanding_max=*/1024, options_.credentials);
    if (!client.ok()) return client.status();
    if (absl::Status opened = (*client)->Open(absl::Seconds(10)); !opened.ok()) return opened;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, (*client)->fd(), &event) != 0) return absl::ErrnoToStatus(errno, "epoll_ctl");
    callers_.push_back({.client = *std::move(client)});
  }
  return absl::OkStatus();
}

absl::Status Loop::Begin() {
  started_ns_ = operate::Monotonic_ns();
  if (paced()) return StartTimer();
  for (size_t i = 0; i < callers_.size(); ++i) {
    if (absl::Status sent = Send(i); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status Loop::StartTimer() {
  for (size_t i = 0; i < callers_.size(); ++i) free_.push_back(i);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_ < 0) return absl::ErrnoToStatus(errno, "timerfd_create");
  itimerspec ticks{};
  ticks.it_interval.tv_nsec = ticks.it_value.tv_nsec = kTick_ns;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimer;
  if (timerfd_settime(timer_, 0, &ticks, nullptr) != 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, timer_, &event) != 0) {
    return absl::ErrnoToStatus(errno, "start the timer");
  }
  return absl::OkStatus();
}

absl::Status Loop::SendDue() {
  if (uint64_t ticks = 0; read(timer_, &ticks, sizeof ticks) < 0 && errno != EAGAIN) {
    return absl::ErrnoToStatus(errno, "read the timer");
  }
  const uint64_t fell_due = DueBy(operate::Monotonic_ns());
  while (taken_ < fell_due && !free_.empty()) {
    const size_t index = free_.back();
    free_.pop_back();
    callers_[index].due_ns =
        started_ns_ + static_cast<uint64_t>(static_cast<double>(taken_++) * 1e9 / options_.rate_per_s);
    if (absl::Status sent = Send(index); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

uint64_t Loop::DueBy(uint64_t now_ns) const {
  return static_cast<uint64_t>(static_cast<double>(now_ns - started_ns_) / 1e9 * options_.rate_per_s);
}

absl::Status Loop::Send(size_t index) {
  ++outstanding_;
  Caller& caller = callers_[index];
  std::string key = absl::StrCat("bench/", index, "/", caller.next_key++ % options_.keys);
  if (options_.operation == KvOperation::kGet) return caller.client->SendGet(std::move(key), options_.timeout).status();
  kv::Operation put;
  put.kind = kv::OperationKind::kPut;
  put.key = std::move(key);
  put.value.assign(options_.value_bytes, 'v');
  return caller.client->SendWrite({std::move(put)}, options_.timeout).status();
}

absl::Status Loop::Collect(size_t index) {
  for (const client::Outcome& outcome : callers_[index].client->Poll(absl::ZeroDuration())) {
    --outstanding_;
    const uint64_t from_ns = paced() ? callers_[index].due_ns : outcome.sent_ns;
    if (from_ns >= begin_ns_) {
      if (!outcome.answer.has_value()) {
        ++report_.lost;
      } else if (outcome.answer->status == wire::HkvStatus::kOk ||
                 (options_.operation == KvOperation::kGet && outcome.answer->status == wire::HkvStatus::kNotFound)) {
        ++report_.answered;
        report_.latency_ns.Record(outcome.ended_ns - from_ns);
      } else {
        ++report_.failed;
      }
    }
    if (stopping_) continue;
    if (paced()) {
      free_.push_back(index);
      continue;
    }
    if (absl::Status sent = Send(index); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status Loop::PollUntil(uint64_t end_ns) {
  std::array<epoll_event, 64> events;
  uint64_t swept_ns = operate::Monotonic_ns();
  while (true) {
    const uint64_t now_ns = operate::Monotonic_ns();
    if (now_ns >= end_ns || (stopping_ && outstanding_ == 0)) return absl::OkStatus();
    const int ready = epoll_wait(epoll_, events.data(), events.size(), 10);
    for (int i = 0; i < ready; ++i) {
      const uint64_t index = events[static_cast<size_t>(i)].data.u64;
      if (index == kTimer) continue;
      if (absl::Status collected = Collect(index); !collected.ok()) return collected;
    }
    if (paced() && !stopping_) {
      if (absl::Status sent = SendDue(); !sent.ok()) return sent;
    }
    // A request without an answer makes no descriptor readable: it is given up here.
    if (now_ns - swept_ns < 50'000'000) continue;
    swept_ns = now_ns;
    for (size_t i = 0; i < callers_.size(); ++i) {
      if (absl::Status collected = Collect(i); !collected.ok()) return collected;
    }
  }
}

absl::StatusOr<ClosedLoopReport> Loop::Run(void (*on_phase)(const char*)) {
  if (absl::Status begun = Begin(); !begun.ok()) return begun;
  if (absl::Status status =
          PollUntil(operate::Monotonic_ns() + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.warm_up)));
      !status.ok()) {
    return status;
  }
  on_phase("measuring");
  begin_ns_ = operate::Monotonic_ns();
  absl::Status status = PollUntil(begin_ns_ + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.measured)));
  const uint64_t end_ns = operate::Monotonic_ns();
  report_.seconds = static_cast<double>(end_ns - begin_ns_) / 1e9;
  if (paced()) report_.behind = DueBy(end_ns) - std::min(taken_, DueBy(end_ns));
  stopping_ = true;
  on_phase("measured");
  if (!status.ok()) return status;
  // The client gives each up at its time-out, and a sweep finds that.
  status = PollUntil(end_ns + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.timeout)) + 1'000'000'000);
  if (!status.ok()) return status;
  return std::move(report_);
}

}  // namespace

absl::StatusOr<ClosedLoopReport> RunClosedLoop(const ClosedLoopOptions& options, void (*on_phase)(const char* phase)) {
  Loop loop(options);
  if (absl::Status connected = loop.Connect(); !connected.ok()) return connected;
  return loop.Run(on_phase);
}

}  // namespace hedgerow::bench
