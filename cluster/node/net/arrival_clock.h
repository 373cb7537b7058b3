// SPDX-License-Identifier: Apache-2.0
//
// How long a datagram has waited in its socket. The kernel stamps it by the wall clock (SO_TIMESTAMPNS), which
// may be set while it waits; a copy of a write must never be taken for younger than it is, since what is old
// enough is forgotten, and would be done once more (docs/SAFETY.md, Exactly once). One for each socket, on its
// thread.

#pragma once

#include <cstdint>

namespace hedgerow::node {

class ArrivalClock {
 public:
  // Nothing is left in the socket, at `now_ns` of CLOCK_MONOTONIC.
  void Emptied(uint64_t now_ns) {
    emptied_ns_ = now_ns;
    was_set_ = false;
  }

  // Datagrams were taken from it, all of which came before now: by CLOCK_MONOTONIC and by CLOCK_REALTIME, read
  // together.
  void Took(uint64_t now_ns, uint64_t real_now_ns) {
    const auto offset_ns = static_cast<int64_t>(real_now_ns - now_ns);
    if (compared_ns_ != 0) {
      // Faster than adjtimex(2) lets it run: it was set. More of what it had stamped before may be left.
      const auto tolerated_ns = static_cast<int64_t>(kReadings_ns + (now_ns - compared_ns_) / kSlew);
      was_set_ |= offset_ns - offset_ns_ > tolerated_ns || offset_ns_ - offset_ns > tolerated_ns;
    }
    longest_ns_ = emptied_ns_ == 0 ? 0 : now_ns - emptied_ns_;
    compared_ns_ = now_ns;
    real_now_ns_ = real_now_ns;
    offset_ns_ = offset_ns;
  }

  // Of a datagram that was just taken. Where the wall clock cannot say, as long as can be.
  uint64_t Waited_ns(uint64_t stamp_ns) const {
    if (was_set_ || stamp_ns > real_now_ns_) return longest_ns_;
    return real_now_ns_ - stamp_ns;
  }

 private:
  static constexpr uint64_t kReadings_ns = 5'000'000;  // between the two clocks' readings
  static constexpr uint64_t kSlew = 1'000;             // twice the 500 ppm that the kernel allows

  uint64_t emptied_ns_ = 0;
  uint64_t compared_ns_ = 0;  // when both clocks were last read
  uint64_t real_now_ns_ = 0;
  int64_t offset_ns_ = 0;
  uint64_t longest_ns_ = 0;
  bool was_set_ = false;
};

}  // namespace hedgerow::node
