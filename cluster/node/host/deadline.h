// SPDX-License-Identifier: Apache-2.0
//
// The end of a wait, by the monotonic clock: the wall clock may be set meanwhile. Used by the commands and by
// everything else of a node that waits outside its loop.

#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace hedgerow::node {

class Deadline {
 public:
  explicit Deadline(absl::Duration timeout) : until_(Clock::now() + absl::ToChronoNanoseconds(timeout)) {}

  bool passed() const { return Clock::now() >= until_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point until_;
};

}  // namespace hedgerow::node
