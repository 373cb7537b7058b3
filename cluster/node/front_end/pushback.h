// SPDX-License-Identifier: Apache-2.0
//
// What this node asks of the proxies and clients that hedge. Hedging is for a replica that is slower than it
// should be; one that has too much to do becomes slower by every copy that its queue gets, and so do the others
// it would be sent to, since they ask this one or are asked by it. So with a queue that is a quarter full a
// node asks for hedges no sooner than the queue takes at the present rate (Little's law), and with half of it
// full for none. A node that works most of the time asks for no copies at once, by the shortest wait that there is.
// Pure; used by the node's loop for each answer to a client. What is said is forgotten after a second
// (docs/WIRE_FORMAT.md), so nothing has to be taken back.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cluster/wire/hkv.h"

namespace hedgerow::node {

class Pushback {
 public:
  explicit Pushback(size_t waiting_max) : waiting_max_(waiting_max) {}

  // For an answer that is sent now, while `waiting` requests wait for theirs and the loop works for this share of its
  // time: wire::HkvAnswer::pushback.
  uint32_t ForAnswer(uint64_t now_ns, size_t waiting, double busy_share = 0) {
    if (now_ns - since_ns_ >= kWindow_ns) {
      // After a rest the rate of before says nothing.
      answers_per_s_ = now_ns - since_ns_ < kForget_ns ? Rate(now_ns) : 0;
      since_ns_ = now_ns;
      answers_ = 0;
    }
    ++answers_;
    if (2 * waiting >= waiting_max_) return wire::kHkvNeverHedge;
    if (4 * waiting < waiting_max_) return busy_share < kBusy ? 0 : 1;
    const double rate = answers_per_s_ > 0 ? answers_per_s_ : Rate(now_ns);
    return static_cast<uint32_t>(std::clamp(1e3 * static_cast<double>(waiting) / rate, 1.0, kMost_ms));
  }

 private:
  // A copy to a follower is forwarded, so at twice the work the leader would still have room below this.
  static constexpr double kBusy = 0.5;
  static constexpr uint64_t kWindow_ns = 100'000'000;
  static constexpr uint64_t kForget_ns = 10 * kWindow_ns;
  static constexpr double kMost_ms = 1000;

  // Of the present window, which is taken to be no shorter than a millisecond.
  double Rate(uint64_t now_ns) const {
    return 1e9 * static_cast<double>(answers_) / static_cast<double>(std::max<uint64_t>(now_ns - since_ns_, 1'000'000));
  }

  size_t waiting_max_;
  uint64_t since_ns_ = 0;
  uint64_t answers_ = 0;
  double answers_per_s_ = 0;  // of the window before; 0: not known
};

}  // namespace hedgerow::node
