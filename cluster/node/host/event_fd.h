// SPDX-License-Identifier: Apache-2.0
//
// How other threads and signals wake the loop (eventfd(2)).

#pragma once

#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "operate/log.h"

namespace hedgerow::node {

class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) operate::EndForWantOf("a descriptor to wake the loop by");
  }
  ~EventFd() { close(fd_); }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int fd() const { return fd_; }

  // Any thread; also in a signal handler.
  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));  // full: it will wake anyway
  }
  // The loop.
  void Drain() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(fd_, &count, sizeof(count));
  }

 private:
  int fd_;
};

}  // namespace hedgerow::node
