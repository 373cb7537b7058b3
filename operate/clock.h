// SPDX-License-Identifier: Apache-2.0
//
// The kernel's clocks as numbers.
#pragma once

#include <cstdint>
#include <ctime>

namespace hedgerow::operate {

inline uint64_t Clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t Monotonic_ns() { return Clock_ns(CLOCK_MONOTONIC); }
inline uint64_t UnixNow_ms() { return Clock_ns(CLOCK_REALTIME) / 1'000'000; }

}  // namespace hedgerow::operate
