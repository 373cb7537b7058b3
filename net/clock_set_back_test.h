// SPDX-License-Identifier: Apache-2.0
//
// For one source of a test: the wall clock of its process is an hour ahead of the kernel's, as it is for a wait that
// began before the clock was set back by an hour.
#pragma once

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += 3600;
  return result;
}

// Abseil takes the deadline of a wait from it.
extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  const int result = static_cast<int>(syscall(SYS_gettimeofday, time, zone));
  time->tv_sec += 3600;
  return result;
}
