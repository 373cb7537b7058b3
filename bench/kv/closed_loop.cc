// SPDX-License-Identifier: Apache-2.0
#include "bench/kv/closed_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/load/udp_socket.h"
#include "cluster/client/hkv_client.h"
#include "net/unique_fd.h"
#include "operate/clock.h"

namespace hedgerow::bench {
namespace {

// How often a paced load looks for what has fallen due. A wake-up for each request would cost the load, and the
// machine it shares with the store, more than the request.
constexpr uint64_t kTick_ns = 100'000;
// A request without an answer makes no descriptor readable: it is given up in a sweep.
constexpr uint64_t kSweep_ns = 50'000'000, kWaitMax_ns = 10'000'000;

uint64_t Ns(absl::Duration duration) { return static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration)); }

class Loop {
 public:
  Loop(const ClosedLoopOptions& options, Callers& callers)
      : options_(options), callers_(callers), next_key_(options.clients, 0), due_ns_(options.clients, 0) {
    for (size_t i = 0; i < options.clients; ++i) free_.push_back(i);
  }

  absl::StatusOr<ClosedLoopReport> Run(void (*on_phase)(const char*));

 private:
  bool paced() const { return options_.rate_per_s > 0; }
  uint64_t DueBy(uint64_t now_ns) const {
    return static_cast<uint64_t>(static_cast<double>(now_ns - started_ns_) / 1e9 * options_.rate_per_s);
  }
  absl::Status SendDue();
  absl::Status Take(const Callers::Ended& ended);
  absl::Status TurnUntil(uint64_t end_ns);

  const ClosedLoopOptions& options_;
  Callers& callers_;
  std::vector<uint64_t> next_key_;
  std::vector<uint64_t> due_ns_;  // paced: when what is under way fell due
  std::vector<size_t> free_;
  uint64_t started_ns_ = 0;
  uint64_t taken_ = 0;  // paced: how many of those that fall due have left
  uint64_t outstanding_ = 0;
  uint64_t begin_ns_ = UINT64_MAX;  // of the measured part
  bool stopping_ = false;
  ClosedLoopReport report_;
};

// In a closed loop a request is due whenever a client is free.
absl::Status Loop::SendDue() {
  const uint64_t fell_due = paced() ? DueBy(operate::Monotonic_ns()) : UINT64_MAX;
  while (taken_ < fell_due && !free_.empty() && !stopping_) {
    const size_t caller = free_.back();
    free_.pop_back();
    if (paced()) {
      due_ns_[caller] = started_ns_ + static_cast<uint64_t>(static_cast<double>(taken_) * 1e9 / options_.rate_per_s);
    }
    ++taken_;
    ++outstanding_;
    const uint64_t key = next_key_[caller]++ % options_.keys;
    if (absl::Status sent = callers_.Send(caller, absl::StrCat("bench/", caller, "/", key)); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status Loop::Take(const Callers::Ended& ended) {
  --outstanding_;
  const uint64_t from_ns = paced() ? due_ns_[ended.caller] : ended.sent_ns;
  if (from_ns >= begin_ns_) {
    report_.answered += ended.ending == Callers::Ending::kAnswered;
    report_.failed += ended.ending == Callers::Ending::kFailed;
    report_.lost += ended.ending == Callers::Ending::kLost;
    if (ended.ending == Callers::Ending::kAnswered) report_.latency_ns.Record(ended.ended_ns - from_ns);
  }
  free_.push_back(ended.caller);
  return SendDue();
}

absl::Status Loop::TurnUntil(uint64_t end_ns) {
  while (true) {
    const uint64_t now_ns = operate::Monotonic_ns();
    if (now_ns >= end_ns || (stopping_ && outstanding_ == 0)) return absl::OkStatus();
    if (absl::Status sent = SendDue(); !sent.ok()) return sent;
    const uint64_t until_ns = paced() && !stopping_ ? std::min(end_ns, now_ns + kTick_ns) : end_ns;
    absl::Status waited = callers_.Wait(until_ns, [this](const Callers::Ended& ended) { return Take(ended); });
    if (!waited.ok()) return waited;
  }
}

absl::StatusOr<ClosedLoopReport> Loop::Run(void (*on_phase)(const char*)) {
  AskForExactTimers();
  started_ns_ = operate::Monotonic_ns();
  if (absl::Status status = TurnUntil(started_ns_ + Ns(options_.warm_up)); !status.ok()) return status;
  on_phase("measuring");
  begin_ns_ = operate::Monotonic_ns();
  absl::Status status = TurnUntil(begin_ns_ + Ns(options_.measured));
  const uint64_t end_ns = operate::Monotonic_ns();
  report_.seconds = static_cast<double>(end_ns - begin_ns_) / 1e9;
  if (paced()) report_.behind = DueBy(end_ns) - std::min(taken_, DueBy(end_ns));
  stopping_ = true;
  on_phase("measured");
  // Each is given up at its time-out.
  if (status.ok()) status = TurnUntil(end_ns + Ns(options_.timeout) + 1'000'000'000);
  if (!status.ok()) return status;
  return std::move(report_);
}

// Each with a socket and a session of its own.
class HkvCallers final : public Callers {
 public:
  explicit HkvCallers(const ClosedLoopOptions& options) : options_(options), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

  absl::Status Connect();
  absl::Status Send(size_t caller, std::string key) override;
  absl::Status Wait(uint64_t until_ns, absl::FunctionRef<absl::Status(const Ended&)> on_ended) override;

 private:
  absl::Status Collect(size_t caller, absl::FunctionRef<absl::Status(const Ended&)> on_ended);

  const ClosedLoopOptions& options_;
  net::UniqueFd epoll_;
  std::vector<std::unique_ptr<client::HkvClient>> clients_;
  uint64_t swept_ns_ = 0;
};

absl::Status HkvCallers::Connect() {
  if (epoll_.get() < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (size_t i = 0; i < options_.clients; ++i) {
    absl::StatusOr<std::unique_ptr<client::HkvClient>> client =
        client::HkvClient::Connect(options_.server, /*outstanding_max=*/1024, options_.credentials);
    if (!client.ok()) return client.status();
    if (absl::Status opened = (*client)->Open(absl::Seconds(10)); !opened.ok()) return opened;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, (*client)->fd(), &event) != 0) {
      return absl::ErrnoToStatus(errno, "epoll_ctl");
    }
    clients_.push_back(*std::move(client));
  }
  return absl::OkStatus();
}

absl::Status HkvCallers::Send(size_t caller, std::string key) {
  client::HkvClient& client = *clients_[caller];
  if (options_.operation == KvOperation::kGet) return client.SendGet(std::move(key), options_.timeout).status();
  kv::Operation put;
  put.kind = kv::OperationKind::kPut;
  put.key = std::move(key);
  put.value.assign(options_.value_bytes, 'v');
  return client.SendWrite({std::move(put)}, options_.timeout).status();
}

absl::Status HkvCallers::Wait(uint64_t until_ns, absl::FunctionRef<absl::Status(const Ended&)> on_ended) {
  const uint64_t now_ns = operate::Monotonic_ns();
  const uint64_t wait_ns = std::min(until_ns > now_ns ? until_ns - now_ns : 0, kWaitMax_ns);
  const timespec wait = {.tv_sec = 0, .tv_nsec = static_cast<long>(wait_ns)};
  std::array<epoll_event, 64> events;
  const int ready = epoll_pwait2(epoll_.get(), events.data(), events.size(), &wait, nullptr);
  for (int i = 0; i < ready; ++i) {
    if (absl::Status done = Collect(events[static_cast<size_t>(i)].data.u64, on_ended); !done.ok()) return done;
  }
  if (now_ns - swept_ns_ < kSweep_ns) return absl::OkStatus();
  swept_ns_ = now_ns;
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (absl::Status done = Collect(i, on_ended); !done.ok()) return done;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};  // EEXIST, unless the client has another socket by now
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, clients_[i]->fd(), &event);
  }
  return absl::OkStatus();
}

absl::Status HkvCallers::Collect(size_t caller, absl::FunctionRef<absl::Status(const Ended&)> on_ended) {
  for (const client::Outcome& outcome : clients_[caller]->Poll(absl::ZeroDuration())) {
    Ending ending = Ending::kLost;
    if (outcome.answer.has_value()) {
      const bool none = options_.operation == KvOperation::kGet && outcome.answer->status == wire::HkvStatus::kNotFound;
      ending = none || outcome.answer->status == wire::HkvStatus::kOk ? Ending::kAnswered : Ending::kFailed;
    }
    const Ended ended = {.caller = caller, .ending = ending, .sent_ns = outcome.sent_ns, .ended_ns = outcome.ended_ns};
    if (absl::Status taken = on_ended(ended); !taken.ok()) return taken;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClosedLoopReport> RunLoop(const ClosedLoopOptions& options, Callers& callers,
                                         void (*on_phase)(const char* phase)) {
  return Loop(options, callers).Run(on_phase);
}

absl::StatusOr<ClosedLoopReport> RunClosedLoop(const ClosedLoopOptions& options, void (*on_phase)(const char* phase)) {
  HkvCallers callers(options);
  if (absl::Status connected = callers.Connect(); !connected.ok()) return connected;
  return RunLoop(options, callers, on_phase);
}

}  // namespace hedgerow::bench
