// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <sched.h>

#include <gtest/gtest.h>

namespace hedgerow::packets {

// The thread that it stands in runs on one CPU while it lives: what a CPU keeps for itself (free_list.bpf.h), another
// one does not take.
class OnCpu {
 public:
  explicit OnCpu(int cpu = sched_getcpu()) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(cpu), &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0) << cpu;
  }
  ~OnCpu() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

}  // namespace hedgerow::packets
