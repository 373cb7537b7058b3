// SPDX-License-Identifier: Apache-2.0
//
// How long something took, counted from a microsecond to 17 s: eight buckets for each power of two, so that a
// quantile is wrong by at most an eighth of itself; the sum is exact to the nanosecond. For what a node
// measures of itself (elections, fences, syncs) and tells in its status. Of one thread; never allocates.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace hedgerow::operate {

class Durations {
 public:
  void Record(uint64_t duration_ns) {
    sum_ns_ += duration_ns;
    const int octave = std::bit_width(duration_ns) - 1;
    if (octave < kFirstOctave) {
      ++counts_[0];
    } else if (octave >= kEndOctave) {
      ++above_;
    } else {
      const auto within = static_cast<size_t>((duration_ns >> (octave - kSubBits)) & ((1u << kSubBits) - 1));
      ++counts_[1 + (static_cast<size_t>(octave - kFirstOctave) << kSubBits) + within];
    }
  }

  uint64_t samples() const { return std::accumulate(counts_.begin(), counts_.end(), above_); }

  // A repeated v1::Histogram of node.proto gets another one, with all buckets.
  template <typename Histograms>
  void AddTo(Histograms& histograms, const char* name) const {
    auto& out = *histograms.Add();
    out.set_name(name);
    out.set_above(above_);
    out.set_sum_ns(sum_ns_);
    for (size_t i = 0; i < kBuckets; ++i) {
      auto& bucket = *out.add_buckets();
      const int octave = kFirstOctave + static_cast<int>((i - 1) >> kSubBits);
      const uint64_t next = (1u << kSubBits) + ((i - 1) & ((1u << kSubBits) - 1)) + 1;
      bucket.set_upper_ns((i == 0 ? 1u << kFirstOctave : next << (octave - kSubBits)) - 1);
      bucket.set_count(counts_[i]);
    }
  }

 private:
  static constexpr int kSubBits = 3;
  static constexpr int kFirstOctave = 10;  // shorter: all in the first bucket
  static constexpr int kEndOctave = 34;    // from here on: above
  static constexpr size_t kBuckets = 1 + ((kEndOctave - kFirstOctave) << kSubBits);

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t above_ = 0;
  uint64_t sum_ns_ = 0;
};

}  // namespace hedgerow::operate
