// SPDX-License-Identifier: Apache-2.0
//
// sched_getattr(2) and sched_setattr(2), which glibc has from 2.41 on; the kernel's header for them cannot be
// included beside <sched.h> before Linux 6.8.

#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace hedgerow::node {

// struct sched_attr of Linux 3.14, which later kernels take as well.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // of the usual policy since Linux 6.12: the slice
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedAttributes) == 48);

// Of the calling thread. False: errno says why.
inline bool GetSched(SchedAttributes& attributes) {
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0;
}
inline bool SetSched(const SchedAttributes& attributes) { return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0; }

}  // namespace hedgerow::node
