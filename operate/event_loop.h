// SPDX-License-Identifier: Apache-2.0
//
// The one owner thread of a daemon (hedgerowd, the supervisor of `hedgerow steer`): file descriptors, timers and
// closures from other threads (gRPC, the metrics server) all run here, one at a time, so that nothing behind it needs a
// lock.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "net/steady_wait.h"
#include "net/unique_fd.h"
#include "operate/loop_turns.h"

namespace hedgerow {

// CLOCK_MONOTONIC, which the kernel programs and the loop's timers go by.
int64_t MonotonicNs();

class EventLoop {
 public:
  // How many closures may wait; more are refused, since a loop that far behind is stuck.
  static constexpr size_t kMaxPosted = 256;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // On the loop's thread, or before Run. `fd` stays the caller's and must be unwatched before it is closed.
  // `on_readable` reads what made it readable, or unwatches it, and returns whether anything had come.
  absl::Status Watch(int fd, std::function<bool()> on_readable);
  void Unwatch(int fd);
  // Calls `action` every `period`, the first time after one period, until StopTimer. Late turns are not made up for.
  absl::StatusOr<int> StartTimer(absl::Duration period, std::function<void()> action);
  void StopTimer(int timer);

  // From any thread. False: the queue is full or the loop has ended; the closure is dropped.
  bool Post(std::function<void()> closure);

  // From any thread but the loop's: runs `body` on the loop and waits for its result. Unavailable when the loop
  // has ended, DeadlineExceeded when it does not come to it in time; `body` does not run afterwards.
  template <typename T>
  absl::StatusOr<T> Call(absl::Duration timeout, std::function<absl::StatusOr<T>()> body);

  // On the loop's thread.
  const LoopTurns& turns() const { return turns_; }

  // Returns after Stop, once what was posted before has run.
  void Run();
  void Stop();  // from any thread

 private:
  EventLoop() = default;
  bool RunPosted();  // false: there was nothing
  void Wake();

  net::UniqueFd epoll_;
  net::UniqueFd wake_;
  std::map<int, std::shared_ptr<std::function<bool()>>> watched_;
  std::map<int, net::UniqueFd> timers_;
  LoopTurns turns_;

  absl::Mutex mutex_;
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

template <typename T>
absl::StatusOr<T> EventLoop::Call(absl::Duration timeout, std::function<absl::StatusOr<T>()> body) {
  struct State {
    absl::Mutex mutex;
    net::SteadyCondVar returned;
    bool abandoned ABSL_GUARDED_BY(mutex) = false;
    std::optional<absl::StatusOr<T>> result ABSL_GUARDED_BY(mutex);
  };
  auto state = std::make_shared<State>();
  const bool posted = Post([state, body = std::move(body)] {
    // The lock is held while the body runs, so that a caller which gives up waits for the body's end and keeps alive
    // what it refers to.
    absl::MutexLock lock(&state->mutex);
    if (!state->abandoned) state->result = body();
    state->returned.SignalAll();
  });
  if (!posted) return absl::UnavailableError("the daemon is stopping or overloaded");
  absl::MutexLock lock(&state->mutex);
  const auto done = [&state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) { return state->result.has_value(); };
  if (!state->returned.Await(state->mutex, timeout, done)) {
    state->abandoned = true;
    return absl::DeadlineExceededError("the daemon's event loop did not answer in time");
  }
  return *std::move(state->result);
}

}  // namespace hedgerow
