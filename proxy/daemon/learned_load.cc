// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/learned_load.h"

#include <algorithm>

#include "bpf/proxy/load.h"

namespace hedgerow {

int32_t LostRequests::Look(uint64_t now_ns, uint64_t lost_ns, int32_t in_flight) {
  // A counter that was set back belongs to another backend, which has this one's place.
  if (at_ns_ != 0 && now_ns > at_ns_ && lost_ns >= lost_ns_) {
    const double lately = static_cast<double>(lost_ns - lost_ns_) / static_cast<double>(now_ns - at_ns_);
    average_ = (average_ + lately) / 2;
  }
  at_ns_ = now_ns;
  lost_ns_ = lost_ns;
  return static_cast<int32_t>(std::clamp(average_, 0.0, static_cast<double>(std::max(in_flight, 0))));
}

uint32_t SlowAt::Look(uint64_t now_ns, const hr_backend_load& load) {
  hr_backend_load known = load;
  size_t recent = 0;  // levels up to the highest recent one
  for (size_t i = 0; i < levels_.size(); ++i) {
    Level& level = levels_.at(i);
    if (load.samples[i] != level.samples || level.reached_ns == 0) level = {load.samples[i], now_ns};
    if (now_ns - level.reached_ns <= kRecentNs && load.samples[i] > 0) recent = i + 1;
  }
  for (size_t i = recent; i < levels_.size(); ++i)
    if (now_ns - levels_.at(i).reached_ns > kRememberNs) known.samples[i] = 0;
  const uint32_t by_all = hr_slow_at(&known);
  for (size_t i = recent; i < levels_.size(); ++i) known.samples[i] = 0;
  const uint32_t lately = hr_slow_at(&known);
  return lately > 0 ? lately : by_all;
}

}  // namespace hedgerow
