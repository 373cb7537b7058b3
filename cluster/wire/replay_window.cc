// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/replay_window.h"

#include <algorithm>

namespace hedgerow::wire {

ReplayWindow::Verdict ReplayWindow::Take(uint64_t number) {
  if (number <= floor_) return Verdict::kTooOld;
  if (number > highest_) {
    Advance(number);
  } else if (highest_ - number >= kNumbers) {
    return Verdict::kTooOld;
  }
  uint64_t& word = seen_[number % kNumbers / 64];
  const uint64_t bit = uint64_t{1} << (number % 64);
  if ((word & bit) != 0) return Verdict::kSeen;
  word |= bit;
  return Verdict::kNew;
}

// The numbers from the highest to this one were not seen; their bits still say what was true of those 4,096
// below.
void ReplayWindow::Advance(uint64_t number) {
  uint64_t left = std::min(number - highest_, kNumbers);
  uint64_t next = number - left + 1;
  while (left > 0) {
    const uint64_t count = std::min(left, 64 - next % 64);
    const uint64_t bits = count == 64 ? ~uint64_t{0} : ((uint64_t{1} << count) - 1) << (next % 64);
    seen_[next % kNumbers / 64] &= ~bits;
    next += count;
    left -= count;
  }
  highest_ = number;
}

}  // namespace hedgerow::wire
