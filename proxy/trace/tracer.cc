// SPDX-License-Identifier: Apache-2.0
#include "proxy/trace/tracer.h"

#include <utility>

#include "net/steady_wait.h"

namespace hedgerow {
namespace {

// The loop has other work: what is more waits for the next turn.
constexpr size_t kEventsPerTurn = 20'000;

uint64_t LeaseEndNs() { return static_cast<uint64_t>(MonotonicNs() + absl::ToInt64Nanoseconds(kTraceLease)); }

}  // namespace

TraceStream::Batch TraceStream::Take(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || !events_.empty(); };
  came_.Await(mutex_, timeout, something);
  Batch batch{.events = std::exchange(events_, {}),
              .loss = {.requests = kernel_.requests, .events = kernel_.events + dropped_},
              .ended = ended_,
              .why = why_};
  waiting_since_ = absl::InfiniteFuture();
  return batch;
}

void TraceStream::Abandon() {
  absl::MutexLock lock(&mutex_);
  abandoned_ = true;
}

void TraceStream::Give(std::vector<hr_trace_event> events, const TraceLoss& kernel, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  kernel_ = kernel;
  if (events.empty()) return;
  if (events_.empty()) waiting_since_ = now;
  const size_t room = kMaxEvents - events_.size();
  if (events.size() > room) {
    dropped_ += events.size() - room;
    events.resize(room);
  }
  events_.insert(events_.end(), events.begin(), events.end());
  came_.SignalAll();
}

void TraceStream::End(const std::string& why) {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  came_.SignalAll();
  why_ = why;
}

bool TraceStream::Abandoned() const {
  absl::MutexLock lock(&mutex_);
  return abandoned_;
}

absl::Duration TraceStream::Waiting(absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  return now - waiting_since_;
}

absl::StatusOr<std::shared_ptr<TraceStream>> Tracer::Start(const Open& open) {
  if (stream_ != nullptr && stream_->Abandoned()) Stop("");
  if (stream_ != nullptr) return absl::ResourceExhaustedError("another trace is open, and only one can be");
  auto source = open();
  if (!source.ok()) return source.status();
  const auto timer = loop_.StartTimer(kTraceTurn, [this] { Turn(); });
  if (!timer.ok()) return timer.status();
  timer_ = *timer;
  source_ = *std::move(source);
  stream_ = std::make_shared<TraceStream>();
  source_->Renew(LeaseEndNs());
  return stream_;
}

void Tracer::Turn() {
  std::vector<hr_trace_event> events;
  source_->Drain(kEventsPerTurn, [&events](const hr_trace_event& event) { events.push_back(event); });
  const absl::Time now = net::MonotonicNow();
  stream_->Give(std::move(events), source_->Loss(), now);
  if (stream_->Abandoned()) return Stop("");
  if (stream_->Waiting(now) > patience_) return Stop("the client did not take its events");
  source_->Renew(LeaseEndNs());
}

void Tracer::Stop(const std::string& why) {
  if (stream_ == nullptr) return;
  source_.reset();
  loop_.StopTimer(timer_);
  stream_->End(why);
  stream_.reset();
}

}  // namespace hedgerow
