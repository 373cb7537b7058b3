// SPDX-License-Identifier: Apache-2.0
//
// How long something took, counted from a microsecond to 17 s: eight buckets for each power of two, so that a
// quantile is wrong by at most an eighth of itself; the sum is exact to the nanosecond. For what a node
// measures of itself (elections, fences) and tells in its status. On the loop's thread; never allocates.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cluster/node/status/status.h"

namespace hedgerow::node {

class Durations {
 public:
  void Record(uint64_t duration_ns);
  NodeHistogram As(std::string name) const;

 private:
  static constexpr int kSubBits = 3;
  static constexpr int kFirstOctave = 10;  // shorter: all in the first bucket
  static constexpr int kEndOctave = 34;    // from here on: above
  static constexpr size_t kBuckets = 1 + ((kEndOctave - kFirstOctave) << kSubBits);

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t above_ = 0;
  uint64_t sum_ns_ = 0;
};

}  // namespace hedgerow::node
