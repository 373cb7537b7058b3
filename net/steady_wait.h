// SPDX-License-Identifier: Apache-2.0
//
// Waits by the monotonic clock. A wait of Abseil's with a timeout ends at a time of the wall clock (20220623, Debian
// 12): where that is set back by an hour, as by NTP on a host whose clock has local time, a wait of a second takes an
// hour. Everything that waits for a condition and for a time takes these.
#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hedgerow::net {

// For what compares times in one process.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// As mutex.AwaitWithTimeout(): whether the condition holds. The mutex is held.
bool AwaitSteadily(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

// Ends a thread's pauses. Any thread.
class StopSignal {
 public:
  void Notify() {
    const absl::MutexLock lock(&mutex_);
    notified_ = true;
  }
  // Whether it was notified.
  bool WaitFor(absl::Duration timeout) {
    const absl::MutexLock lock(&mutex_);
    return AwaitSteadily(mutex_, absl::Condition(&notified_), timeout);
  }

 private:
  absl::Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hedgerow::net
