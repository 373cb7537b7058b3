// SPDX-License-Identifier: Apache-2.0
//
// The kernel's clocks as numbers.
#pragma once

#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace hedgerow::operate {

inline uint64_t Clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// How far the time namespace of this process, if a container runtime made one, is ahead of the kernel's own clock. A
// process that has made one for its children is not in it itself.
inline int64_t TimeNamespace_ns() {
  char own[32] = "", childrens[32] = "";
  if (readlink("/proc/self/ns/time", own, sizeof(own) - 1) < 0) return 0;
  if (readlink("/proc/self/ns/time_for_children", childrens, sizeof(childrens) - 1) < 0) return 0;
  FILE* file = strcmp(own, childrens) == 0 ? fopen("/proc/self/timens_offsets", "re") : nullptr;
  if (file == nullptr) return 0;
  int64_t s = 0, ns = 0;
  const bool read = fscanf(file, "%*s %" SCNd64 " %" SCNd64, &s, &ns) == 2;  // CLOCK_MONOTONIC's line stands first
  fclose(file);
  return read ? s * 1'000'000'000 + ns : 0;
}

// The clock that kernel programs go by, also in a time namespace.
inline uint64_t Monotonic_ns() {
  static const int64_t ahead_ns = TimeNamespace_ns();
  return Clock_ns(CLOCK_MONOTONIC) - static_cast<uint64_t>(ahead_ns);
}
inline uint64_t UnixNow_ms() { return Clock_ns(CLOCK_REALTIME) / 1'000'000; }

}  // namespace hedgerow::operate
