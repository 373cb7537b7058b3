// SPDX-License-Identifier: Apache-2.0
//
// Samples of every CPU by perf_event_open: a software clock, so that it works in virtual machines without
// counters; the process and the kernel's part of the stack. The clock is a timer, so a sample that falls into a
// part with interrupts off is taken at its end. One thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

struct Sample {
  uint32_t pid;                      // of the process; 0: the idle task, or one of another pid namespace
  std::span<const uint64_t> frames;  // from the innermost outwards; empty: user code
};

class Sampler {
 public:
  // Begins at once, `per_second` times on each CPU.
  static absl::StatusOr<Sampler> Start(uint64_t per_second);
  Sampler(Sampler&&) noexcept;
  ~Sampler();

  void Stop();
  // What has come since the last call; to be called several times a second.
  void Drain(const std::function<void(const Sample&)>& on_sample);
  uint64_t lost() const { return lost_; }

 private:
  struct Cpu;
  Sampler();
  std::vector<std::unique_ptr<Cpu>> cpus_;
  uint64_t lost_ = 0;
};

}  // namespace hedgerow::bench
