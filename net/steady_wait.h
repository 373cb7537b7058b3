// SPDX-License-Identifier: Apache-2.0
//
// Waits by the monotonic clock. A wait of Abseil's with a timeout ends at a time of the wall clock (20220623, Debian
// 12): where that is set back by an hour, as by NTP on a host whose clock has local time, a wait of a second takes an
// hour. Everything that waits for a condition and for a time takes these.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hedgerow::net {

// For what compares times in one process.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Beyond a century the clock would overflow.
inline std::chrono::nanoseconds SteadyTimeout(absl::Duration timeout) {
  return absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365 * 100)));
}

// What changes a condition that is awaited calls SignalAll().
class SteadyCondVar {
 public:
  void SignalAll() { changed_.notify_all(); }
  // As mutex.AwaitWithTimeout(): whether the condition holds. The mutex is held.
  template <typename Condition>
  bool Await(absl::Mutex& mutex, absl::Duration timeout, const Condition& holds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Held held{mutex};
    return changed_.wait_for(held, SteadyTimeout(timeout), holds);
  }

 private:
  struct Held {
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }
    absl::Mutex& mutex;
  };
  std::condition_variable_any changed_;
};

// As absl::Notification. Ends a thread's pauses. Any thread.
class SteadyNotification {
 public:
  void Notify() {
    const std::lock_guard lock(mutex_);
    notified_ = true;
    changed_.notify_all();
  }
  // Whether it was notified.
  bool WaitFor(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, SteadyTimeout(timeout), [this] { return notified_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
};

}  // namespace hedgerow::net
