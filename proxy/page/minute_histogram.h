// SPDX-License-Identifier: Apache-2.0
//
// The durations of the last minute, from a histogram of the kernel's that only ever grows: quantiles cannot be
// averaged, so the seconds' own counts are kept, as the few buckets that are not empty. Used by History.

#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class MinuteHistogram {
 public:
  static constexpr uint64_t kMinuteNs = 60'000'000'000;

  // Takes the whole histogram as it is at `now_ns`. Returns what came since the last call: nothing at the first one,
  // everything when the kernel's part was started anew and counts from zero.
  Histogram Add(uint64_t now_ns, const Histogram& total);

  // What came within the minute before the last Add.
  const Histogram& Recent() const { return recent_; }

 private:
  struct Bucket {
    uint32_t index;
    uint32_t count;
  };
  struct Part {
    uint64_t at_ns;
    std::vector<Bucket> buckets;
  };

  bool begun_ = false;
  Histogram last_;
  Histogram recent_;
  std::deque<Part> parts_;
};

}  // namespace hedgerow
