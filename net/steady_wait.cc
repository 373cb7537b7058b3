// SPDX-License-Identifier: Apache-2.0
#include "net/steady_wait.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace hedgerow::net {
namespace {

using Clock = std::chrono::steady_clock;

struct Wait {
  absl::Mutex* mutex = nullptr;
  bool ended = false;  // under *mutex; the thread of Alarms touches nothing of it afterwards
};

// One thread for all waits of the process: it ends each at its time. std::condition_variable knows the monotonic clock,
// and absl::Mutex evaluates conditions.
class Alarms {
 public:
  using Entry = std::multimap<Clock::time_point, Wait*>::iterator;

  // Nothing: no thread can be had now.
  std::optional<Entry> Add(Clock::time_point at, Wait* wait) {
    const std::lock_guard lock(mutex_);
    if (!running_ && !Start()) return std::nullopt;
    const Entry entry = waits_.emplace(at, wait);
    if (entry == waits_.begin()) changed_.notify_one();
    return entry;
  }
  // False: it is being ended.
  bool Remove(Entry entry, const Wait* wait) {
    const std::lock_guard lock(mutex_);
    if (ending_ == wait) return false;
    waits_.erase(entry);
    return true;
  }

 private:
  // It takes no signal: those of the program are another thread's.
  bool Start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { Run(); }).detach();
      running_ = true;
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return running_;
  }

  [[noreturn]] void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (waits_.empty()) {
        changed_.wait(lock);
      } else if (const Clock::time_point next = waits_.begin()->first; next > Clock::now()) {
        changed_.wait_until(lock, next);
      } else {
        ending_ = waits_.begin()->second;
        waits_.erase(waits_.begin());
        lock.unlock();
        {
          const absl::MutexLock theirs(ending_->mutex);
          ending_->ended = true;
        }
        lock.lock();
        ending_ = nullptr;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, Wait*> waits_;
  Wait* ending_ = nullptr;  // by Run(), which alone changes it
  bool running_ = false;
};

// A child has the memory and not the thread.
Alarms*& TheAlarms() {
  static Alarms* alarms = [] {
    pthread_atfork(nullptr, nullptr, [] { TheAlarms() = new Alarms; });
    return new Alarms;
  }();
  return alarms;
}

}  // namespace

bool AwaitSteadily(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) {
  if (condition.Eval() || timeout <= absl::ZeroDuration()) return condition.Eval();
  Alarms* const alarms = TheAlarms();
  Wait wait{.mutex = &mutex};
  // Beyond a century the clock would overflow.
  const auto at = Clock::now() + absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365 * 100)));
  const std::optional<Alarms::Entry> entry = alarms->Add(at, &wait);
  if (!entry.has_value()) return mutex.AwaitWithTimeout(condition, timeout);
  const auto over = [&] { return wait.ended || condition.Eval(); };
  mutex.Await(absl::Condition(&over));
  if (!wait.ended && !alarms->Remove(*entry, &wait)) mutex.Await(absl::Condition(&wait.ended));
  return condition.Eval();
}

}  // namespace hedgerow::net
