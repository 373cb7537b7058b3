// SPDX-License-Identifier: Apache-2.0
//
// Until when something is waited for, by the monotonic clock: somebody may set the wall clock meanwhile. Used by the
// commands, and by whatever else of a node waits outside its loop.

#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace hedgerow::node {

class Deadline {
 public:
  explicit Deadline(absl::Duration patience) : until_(Clock::now() + absl::ToChronoNanoseconds(patience)) {}

  bool passed() const { return Clock::now() >= until_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point until_;
};

}  // namespace hedgerow::node
