// SPDX-License-Identifier: Apache-2.0
#include "operate/event_loop.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "operate/clock.h"

namespace hedgerow {

int64_t MonotonicNs() { return static_cast<int64_t>(operate::Monotonic_ns()); }

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop());
  loop->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->epoll_.valid() || !loop->wake_.valid()) return absl::ErrnoToStatus(errno, "making the event loop");
  EventLoop* self = loop.get();
  const absl::Status watched = loop->Watch(loop->wake_.get(), [self] {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(self->wake_.get(), &count, sizeof(count));
    return false;  // what was posted is work
  });
  if (!watched.ok()) return watched;
  return loop;
}

EventLoop::~EventLoop() = default;

absl::Status EventLoop::Watch(int fd, std::function<bool()> on_readable) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return absl::ErrnoToStatus(errno, "watching a descriptor");
  }
  watched_[fd] = std::make_shared<std::function<bool()>>(std::move(on_readable));
  return absl::OkStatus();
}

void EventLoop::Unwatch(int fd) {
  if (watched_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

absl::StatusOr<int> EventLoop::StartTimer(absl::Duration period, std::function<void()> action) {
  net::UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec spec{};
  spec.it_interval = absl::ToTimespec(period);
  spec.it_value = spec.it_interval;
  if (!timer.valid() || timerfd_settime(timer.get(), 0, &spec, nullptr) != 0) {
    return absl::ErrnoToStatus(errno, "making a timer");
  }
  const int fd = timer.get();
  const absl::Status watched = Watch(fd, [fd, action = std::move(action)] {
    uint64_t turns = 0;
    if (read(fd, &turns, sizeof(turns)) <= 0) return false;
    action();
    return true;
  });
  if (!watched.ok()) return watched;
  timers_.emplace(fd, std::move(timer));
  return fd;
}

void EventLoop::StopTimer(int timer) {
  Unwatch(timer);
  timers_.erase(timer);
}

bool EventLoop::Post(std::function<void()> closure) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_ || posted_.size() >= kMaxPosted) return false;
    posted_.push_back(std::move(closure));
  }
  Wake();
  return true;
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // EAGAIN means the counter is full, which wakes as well.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

bool EventLoop::RunPosted() {
  std::deque<std::function<void()>> taken;
  {
    absl::MutexLock lock(&mutex_);
    taken.swap(posted_);
  }
  for (const std::function<void()>& closure : taken) closure();
  return !taken.empty();
}

void EventLoop::Run() {
  epoll_event events[16];
  bool worked = false;
  while (true) {
    worked |= RunPosted();
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ && posted_.empty()) {
        ended_ = true;
        return;
      }
      if (!posted_.empty()) continue;
    }
    turns_.Count(std::exchange(worked, false));
    const int ready = epoll_wait(epoll_.get(), events, 16, -1);
    for (int i = 0; i < ready; ++i) {
      const auto found = watched_.find(events[i].data.fd);
      if (found == watched_.end()) continue;  // unwatched by a callback before it in this turn
      // The callback may unwatch itself: keep it alive while it runs.
      const std::shared_ptr<std::function<bool()>> callback = found->second;
      worked |= (*callback)();
    }
  }
}

void EventLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Wake();
}

}  // namespace hedgerow
