// SPDX-License-Identifier: Apache-2.0
//
// The kernel's events about single requests, as the daemon takes them: on for as long as a TraceSource lives
// and its lease is renewed. KernelTrace (kernel_trace.cc) reads the kernel's ring; tests have a fake. All calls
// come from the daemon's event-loop thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "bpf/abi/trace_abi.h"

namespace hedgerow {

// Events that were lost since the source was opened.
struct TraceLoss {
  uint64_t requests = 0;  // over the rate
  uint64_t events = 0;    // the ring was full
};

class TraceSource {
 public:
  using OnEvent = std::function<void(const hr_trace_event&)>;

  // Off at once; what was not drained is gone, and so is the ring.
  virtual ~TraceSource() = default;

  // The programs go on telling until `lease_ns` (CLOCK_MONOTONIC), and then stop by themselves.
  virtual void Renew(uint64_t lease_ns) = 0;
  // Takes at most `limit` of the waiting events; how many it were.
  virtual size_t Drain(size_t limit, const OnEvent& on_event) = 0;
  virtual TraceLoss Loss() const = 0;
};

}  // namespace hedgerow
