// SPDX-License-Identifier: Apache-2.0
//
// How long a datagram has waited in its socket. The kernel stamps it by the wall clock (SO_TIMESTAMPNS), which
// may be set while it waits; a copy of a write must never be taken for younger than it is, since what is old
// enough is forgotten, and would be done once more (docs/SAFETY.md, Exactly once). One for each socket, on its
// thread.

#ifndef HEDGEROW_CLUSTER_NODE_ARRIVAL_CLOCK_H_
#define HEDGEROW_CLUSTER_NODE_ARRIVAL_CLOCK_H_

#include <cstdint>

namespace hedgerow::node {

class ArrivalClock {
 public:
  // Before the stamps of one reading of the socket; both clocks as of now, CLOCK_MONOTONIC and CLOCK_REALTIME.
  void Reading(uint64_t now_ns, uint64_t real_now_ns) {
    const int64_t offset_ns = static_cast<int64_t>(real_now_ns - now_ns);
    since_last_ns_ = last_ns_ == 0 ? 0 : now_ns - last_ns_;
    const int64_t moved_ns = last_ns_ == 0 ? 0 : offset_ns - offset_ns_;
    // Faster than adjtimex(2) lets it run: it was set.
    const auto tolerated_ns = static_cast<int64_t>(kReadings_ns + since_last_ns_ / kSlew);
    was_set_ = moved_ns > tolerated_ns || moved_ns < -tolerated_ns;
    last_ns_ = now_ns;
    real_now_ns_ = real_now_ns;
    offset_ns_ = offset_ns;
  }

  // Where the wall clock cannot say, as long as can be: since the reading before.
  uint64_t Waited_ns(uint64_t stamp_ns) const {
    if (was_set_ || stamp_ns > real_now_ns_) return since_last_ns_;
    return real_now_ns_ - stamp_ns;
  }

 private:
  static constexpr uint64_t kReadings_ns = 5'000'000;  // between the two clocks' readings
  static constexpr uint64_t kSlew = 1'000;             // twice the 500 ppm that the kernel allows

  uint64_t last_ns_ = 0;
  uint64_t real_now_ns_ = 0;
  int64_t offset_ns_ = 0;
  uint64_t since_last_ns_ = 0;
  bool was_set_ = false;
};

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_ARRIVAL_CLOCK_H_
