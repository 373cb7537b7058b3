// SPDX-License-Identifier: Apache-2.0
//
// What a CPU was doing at a sample, told from the names of the kernel's functions on its stack: the innermost
// one that says something decides, so that a wake-up inside of a receive is scheduling, and a copy inside of it
// is the network stack. Used by hr-cpu-profile; docs/benchmarks.md says to users what the shares mean.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hedgerow::bench {

enum class Work : uint8_t {
  kIdle,
  kUser,     // the process's own code
  kStack,    // sockets, protocols, bridge, veth, queues
  kSwitch,   // waking, choosing and switching tasks
  kOffload,  // BPF programs and what they call
  kOther,    // the rest of the kernel: system call entry, timers, epoll, files
};
constexpr size_t kWorkKinds = 6;
std::string_view Name(Work work);

// Nothing a function's name says by itself is kOther.
Work WorkOf(std::string_view symbol);

// `frames` from the innermost outwards, of the kernel only; empty means that user code ran.
Work WorkOf(std::span<const std::string_view> frames);

// Whether the sample was in a soft interrupt, which runs on top of whichever task there is.
bool InSoftIrq(std::span<const std::string_view> frames);

}  // namespace hedgerow::bench
