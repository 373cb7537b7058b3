// SPDX-License-Identifier: Apache-2.0
//
// How much time looks at the network may take: a tenth of a processor, beyond a reserve. Pure; used by the network
// follower.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hedgerow {

class LookBudget {
 public:
  static constexpr int64_t kShare = 10;                     // one part in ten
  static constexpr int64_t kReserveNs = 50'000'000;         // a burst of some twenty looks
  static constexpr int64_t kLongestWaitNs = 1'000'000'000;  // everything is followed within a second

  // How long the next look must wait; 0: it may be now. Times are CLOCK_MONOTONIC and do not go back.
  int64_t WaitNs(int64_t now_ns) {
    Earn(now_ns);
    return left_ns_ > 0 ? 0 : std::min(kLongestWaitNs, (1 - left_ns_) * kShare);
  }
  void Spend(int64_t now_ns, int64_t took_ns) {
    Earn(now_ns);
    // Not further into debt than a wait can pay off: a slow look must not put off what happens minutes later.
    left_ns_ = std::max(left_ns_ - took_ns, -kLongestWaitNs / kShare);
  }

 private:
  void Earn(int64_t now_ns) {
    left_ns_ = std::min(kReserveNs, left_ns_ + (now_ns - earned_until_ns_) / kShare);
    earned_until_ns_ = now_ns;
  }

  int64_t left_ns_ = kReserveNs;
  int64_t earned_until_ns_ = 0;
};

}  // namespace hedgerow
