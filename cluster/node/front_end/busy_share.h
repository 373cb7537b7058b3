// SPDX-License-Identifier: Apache-2.0
//
// How much of its time the node's loop works, lately: an exponential average over 100 ms. Pure; the loop says when it
// goes to rest and when it is back.

#pragma once

#include <algorithm>
#include <cstdint>

namespace hedgerow::node {

class BusyShare {
 public:
  static constexpr uint64_t kOver_ns = 100'000'000;

  void Rests(uint64_t now_ns) { Take(now_ns, 1); }
  void Works(uint64_t now_ns) { Take(now_ns, 0); }
  double share() const { return share_; }  // 0 to 1

 private:
  void Take(uint64_t now_ns, double was_busy) {
    const uint64_t span_ns = now_ns > since_ns_ ? now_ns - since_ns_ : 0;
    share_ += (was_busy - share_) * std::min(1.0, static_cast<double>(span_ns) / static_cast<double>(kOver_ns));
    since_ns_ = now_ns;
  }

  uint64_t since_ns_ = 0;
  double share_ = 0;
};

}  // namespace hedgerow::node
